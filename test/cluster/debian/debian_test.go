package debian

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/joulevirt/joulevirt/test/env/steps"
)

// machine returns a System on which only util-linux is installed, and the commands that it ran.
func machine(root bool, apt error) (System, *[]string) {
	var commands []string
	return System{Root: root, Run: func(_ context.Context, log io.Writer, name string, args ...string) ([]byte, error) {
		commands = append(commands, strings.Join(append([]string{name}, args...), " "))
		if name == "dpkg-query" {
			return []byte("ii  util-linux\nun  runc\n"), nil
		}
		fmt.Fprintln(log, "E: Unable to locate package runc")
		return nil, apt
	}}, &commands
}

func TestEnsureNeedsRoot(t *testing.T) {
	system, commands := machine(false, nil)
	err := system.Ensure(t.Context(), steps.New(io.Discard, t.TempDir()), "util-linux", "runc", "crun")
	want := "missing Debian packages: crun runc: run as root: apt-get install --yes --no-install-recommends crun runc"
	if err == nil || err.Error() != want {
		t.Errorf("the error is %v, want %s", err, want)
	}
	if len(*commands) != 1 {
		t.Errorf("it ran %q, want only the query", *commands)
	}
}

func TestEnsureFails(t *testing.T) {
	cause := errors.New("exit status 100")
	system, _ := machine(true, cause)
	err := system.Ensure(t.Context(), steps.New(io.Discard, t.TempDir()), "util-linux", "runc")
	if !errors.Is(err, cause) {
		t.Fatalf("the error is %v, want %v in it", err, cause)
	}
	for _, want := range []string{"install runc: ", "apt-get update: ", "\n  E: Unable to locate package runc"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error is\n%v\nwant %q in it", err, want)
		}
	}
}

func TestEnsureInstallsNothing(t *testing.T) {
	system, commands := machine(true, nil)
	if err := system.Ensure(t.Context(), nil, "util-linux"); err != nil || len(*commands) != 1 {
		t.Errorf("with all there it ran %q: %v", *commands, err)
	}
}
