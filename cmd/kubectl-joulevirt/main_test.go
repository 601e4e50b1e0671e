package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// cliVariable makes the test binary be the program.
const cliVariable = "JOULEVIRT_TEST_CLI"

func TestMain(m *testing.M) {
	if os.Getenv(cliVariable) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// answer is what a call of the program gave.
type answer struct {
	out, err string
	code     int
}

// call runs the program as a process, under a name.
func call(t *testing.T, kubeconfig, name string, args ...string) answer {
	t.Helper()
	var out, problems bytes.Buffer
	command := exec.CommandContext(t.Context(), os.Args[0], args...)
	command.Args[0] = name
	command.Env = append(os.Environ(), cliVariable+"=1", "KUBECONFIG="+kubeconfig)
	command.Stdout, command.Stderr = &out, &problems
	err := command.Run()
	var ended *exec.ExitError
	if err != nil && !errors.As(err, &ended) {
		t.Fatal(err)
	}
	a := answer{out: out.String(), err: problems.String(), code: command.ProcessState.ExitCode()}
	if strings.Contains(a.err, "goroutine ") || strings.Contains(a.err, "panic") {
		t.Errorf("kubectl joulevirt %v panics:\n%s", args, a.err)
	}
	return a
}

// want compares the exit code, and wants parts in either stream.
func (a answer) want(t *testing.T, code int, parts ...string) {
	t.Helper()
	if a.code != code {
		t.Errorf("exit code %d, want %d\n%s%s", a.code, code, a.out, a.err)
	}
	for _, part := range parts {
		if !strings.Contains(a.out+a.err, part) {
			t.Errorf("it does not say %q:\n%s%s", part, a.out, a.err)
		}
	}
}

// TestBadCalls covers what fails without a cluster.
func TestBadCalls(t *testing.T) {
	nowhere := []string{"--server=https://127.0.0.1:1"}
	for name, tc := range map[string]struct {
		args []string
		want []string
	}{
		"no kubeconfig":     {[]string{"top", "nodes"}, []string{"there is no kubeconfig", "--kubeconfig"}},
		"no server":         {append(nowhere, "top", "nodes"), []string{"no answer from the API server at https://127.0.0.1:1", "kubectl config current-context"}},
		"doctor, no server": {append(nowhere, "doctor"), []string{"no answer from the API server"}},
		"bad output":        {append(nowhere, "version", "-o", "yaml"), []string{"unknown shorthand flag"}},
		"unknown command":   {[]string{"tops"}, []string{"tops"}},
		"unknown resource":  {[]string{"top", "pods"}, []string{`unknown command "pods"`, "pods"}},
		"unknown order":     {append(nowhere, "top", "nodes", "--sort-by=age"), []string{"neither name nor watts"}},
		"bad selector":      {append(nowhere, "top", "vms", "-l", "a=b=c"), []string{"--selector"}},
		"no name":           {[]string{"explain", "vm"}, []string{"the name of one vm"}},
		"no revision":       {[]string{"approve"}, []string{"needs a policy or a revision"}},
		"nothing to pause":  {append(nowhere, "pause"), []string{"add --all"}},
		"dry runs":          {append(nowhere, "pause", "p", "--dry-run=maybe"), []string{"--dry-run=maybe"}},
	} {
		t.Run(name, func(t *testing.T) {
			call(t, "", "kubectl-joulevirt", tc.args...).want(t, exitFailed, append(tc.want, "error: ")...)
		})
	}
}

func TestVersionAndHelp(t *testing.T) {
	call(t, "", "kubectl-joulevirt", "version").want(t, 0)
	call(t, "", "kubectl-joulevirt").want(t, 0, "kubectl joulevirt [command]", "doctor", "approve")
	call(t, "", "kubectl-joulevirt", "top").want(t, 0, "kubectl joulevirt top")
}

func TestArgsOf(t *testing.T) {
	for name, tc := range map[string]struct{ call, want []string }{
		"plain":       {[]string{"/usr/bin/kubectl-joulevirt", "top", "nodes"}, []string{"top", "nodes"}},
		"completions": {[]string{"/usr/bin/kubectl_complete-joulevirt", "top", ""}, []string{"__complete", "top", ""}},
	} {
		if diff := cmp.Diff(tc.want, argsOf(tc.call)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
