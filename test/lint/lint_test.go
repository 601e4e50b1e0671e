// Package lint tests that the linter's rules about the architecture bite: each
// is given a file that keeps it and one that breaks it.
package lint

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const (
	module = "github.com/joulevirt/joulevirt"
	root   = "../.."
)

// importing is a file of one folder that imports one package.
type importing struct {
	folder, imports string
	allowed         bool
}

func importCases() []importing {
	own := func(folder string) string { return module + "/" + folder }
	return []importing{
		{"api/v1alpha1", "k8s.io/apimachinery", true},
		{"api/v1alpha1", "k8s.io/client-go", false},
		{"api/v1alpha1", own("internal/units"), false},

		{"internal/units", "strconv", true},
		{"internal/units", "os", false},
		{"internal/units", own("internal/model"), false},
		{"internal/model", own("internal/units"), true},
		{"internal/model", own("internal/power"), false},
		{"internal/model", "k8s.io/apimachinery", true},
		{"internal/power", own("internal/model"), true},
		{"internal/power", own("internal/planner"), false},
		{"internal/planner", own("internal/power"), true},
		{"internal/planner", own("internal/symptoms"), true},
		{"internal/planner", own("api/v1alpha1"), true},
		{"internal/planner", own("internal/trials"), false},
		{"internal/planner", "net/http", false},
		{"internal/planner/affinity", own("internal/model"), true},
		{"internal/planner/affinity", "os", false},
		{"internal/planner/placement/fit", own("internal/planner/placement"), true},
		{"internal/planner/placement/fit", own("internal/model"), false},
		{"internal/planner/placement/fit", "os", false},
		{"internal/trials", own("internal/model"), true},
		{"internal/trials", own("internal/planner"), false},
		{"internal/ledger", "os", false},

		{"internal/observe", own("api/v1alpha1"), true},
		{"internal/observe", own("controllers"), false},
		{"internal/energy/prometheus", own("internal/cli"), false},
		{"internal/routing/service", own("controllers"), false},

		{"controllers", own("internal/planner"), true},
		{"controllers", own("internal/agent"), false},
		{"internal/agent/sample", own("internal/model"), true},
		{"internal/agent/sample", own("controllers"), false},
		{"internal/agent/sample", own("internal/planner"), false},
		{"cmd/agent", own("internal/planner"), false},
		{"cmd/manager", own("controllers"), true},
		{"internal/host", own("test/hosttest"), false},
		{"internal/planner", own("test/sim"), false},
		{"test/sim", own("internal/power"), false},
		{"test/sim", own("internal/host"), true},
		{"test/e2e", own("test/cluster"), true},
	}
}

// calling is a file of one folder that makes one call.
type calling struct {
	folder, imports, call string
	allowed               bool
}

func callCases() []calling {
	return []calling{
		{"controllers", "os", `_ = os.Getenv("NODE_NAME")`, false},
		{"internal/agent", "os", `_, _ = os.LookupEnv("NODE_NAME")`, false},
		{"internal/agent", "flag", `flag.Parse()`, false},
		{"internal/agent", "time", `time.Sleep(1)`, false},
		{"test/e2e", "time", `time.Sleep(1)`, false},
		{"cmd/agent", "os", `_ = os.Getenv("NODE_NAME")`, true},
		{"cmd/agent", "flag", `flag.Parse()`, true},
		{"hack/bench", "os", `_ = os.Getenv("HOME")`, true},
	}
}

func TestArchitectureRulesBite(t *testing.T) {
	files, want := map[string]string{}, map[string]bool{}
	add := func(i int, folder, kind, text string, allowed bool) {
		name := fmt.Sprintf("%s/%s%d/case.go", folder, kind, i)
		files[name], want[name] = text, allowed
	}
	for i, c := range importCases() {
		add(i, c.folder, "importing", fmt.Sprintf("package p\n\nimport _ %q\n", c.imports), c.allowed)
	}
	for i, c := range callCases() {
		add(i, c.folder, "calling", fmt.Sprintf("package p\n\nimport %q\n\nfunc f() { %s }\n", c.imports, c.call), c.allowed)
	}
	found := lint(t, writeModule(t, files))
	for name, allowed := range want {
		if refusals := found[name]; (len(refusals) == 0) != allowed {
			t.Errorf("%s, which must be allowed=%v:\n%sfindings: %q", name, allowed, files[name], refusals)
		}
	}
}

// writeModule makes a module of the project's name from the files, with empty
// packages where they import some.
func writeModule(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	all := map[string]string{
		"go.mod": "module " + module + "\n\ngo 1.26\n\n" +
			"require (\n\tk8s.io/apimachinery v0.0.0\n\tk8s.io/client-go v0.0.0\n)\n\n" +
			"replace k8s.io/apimachinery => ./outside/apimachinery\n\nreplace k8s.io/client-go => ./outside/client-go\n",
	}
	for _, name := range []string{"apimachinery", "client-go"} {
		all["outside/"+name+"/go.mod"] = "module k8s.io/" + name + "\n\ngo 1.26\n"
		all["outside/"+name+"/stub.go"] = "package stub\n"
	}
	for _, c := range importCases() {
		if folder, ok := strings.CutPrefix(c.imports, module+"/"); ok {
			all[folder+"/stub.go"] = "package stub\n"
		}
	}
	for name, text := range files {
		all[name] = text
	}
	for name, text := range all {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// lint runs the architecture's linters with the project's configuration and
// returns their findings by file.
func lint(t *testing.T, dir string) map[string][]string {
	t.Helper()
	config, err := filepath.Abs(filepath.Join(root, ".golangci.yml"))
	if err != nil {
		t.Fatal(err)
	}
	find := exec.CommandContext(t.Context(), "make", "--silent", "-C", root, "golangci-lint")
	find.Stderr = os.Stderr
	path, err := find.Output()
	if err != nil {
		t.Fatalf("build the linter: %v", err)
	}
	cmd := exec.CommandContext(t.Context(), strings.TrimSpace(string(path)), "run",
		"--config", config, "--enable-only", "depguard,forbidigo",
		"--path-mode", "abs", "--output.json.path", "stdout", "--output.text.path", os.DevNull,
		"--show-stats=false", "--allow-parallel-runners", "./...")
	cmd.Dir = dir
	text, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 1) {
		t.Fatalf("lint: %v\n%s", err, text)
	}
	var report struct {
		Issues []struct {
			FromLinter, Text string
			Pos              struct{ Filename string }
		}
	}
	if err := json.NewDecoder(strings.NewReader(string(text))).Decode(&report); err != nil {
		t.Fatalf("read the linter's report: %v\n%s", err, text)
	}
	found := map[string][]string{}
	for _, issue := range report.Issues {
		name, err := filepath.Rel(dir, issue.Pos.Filename)
		if err != nil {
			t.Fatal(err)
		}
		if issue.FromLinter == "typecheck" {
			t.Fatalf("%s: %s", name, issue.Text)
		}
		found[name] = append(found[name], issue.Text)
	}
	return found
}
