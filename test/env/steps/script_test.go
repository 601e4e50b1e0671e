package steps

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// script runs hack/step.sh, which shows what happens before any Go program runs, on a screen.
func script(t *testing.T, out *screen, cache string, args ...string) error {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "../../../hack/step.sh", args...)
	cmd.Env = append(cmd.Environ(), "XDG_CACHE_HOME="+cache, "ROUGH=4m")
	cmd.Stdout, cmd.Stderr = out, out
	return cmd.Run()
}

// TestScript checks that the script prints and stores what a Reporter does.
func TestScript(t *testing.T) {
	cache := t.TempDir()
	// A step that ends once its line is shown.
	out, shown := newScreen(), filepath.Join(cache, "shown")
	go func() {
		if err := errors.Join(out.await("setup: build a program"), os.WriteFile(shown, nil, 0o600)); err != nil {
			t.Error(err)
		}
	}()
	if err := script(t, out, cache, "build a program", "sh", "-c", `until [ -e "$0" ]; do sleep 0.1; done; echo output`, shown); err != nil {
		t.Fatal(err, out)
	}
	const want = "setup: build a program, roughly 4m\nsetup: build a program: done in Ns\n"
	if got := withoutTimes(out.String()); got != want {
		t.Errorf("printed:\n%s\nwant:\n%s", got, want)
	}
	dir := filepath.Join(cache, "joulevirt")
	if log, err := os.ReadFile(New(nil, dir).file("build a program", ".log")); err != nil || string(log) != "output\n" {
		t.Errorf("the log is %q, %v", log, err)
	}
	if got := New(nil, dir).expected("build a program"); !strings.HasPrefix(got, ", last time ") {
		t.Errorf("a Reporter expects %q, want what the script stored", got)
	}
}

// TestScriptFailure checks the end of the log, its path, and the exit code.
func TestScriptFailure(t *testing.T) {
	cache, out := t.TempDir(), newScreen()
	err := script(t, out, cache, "build a program", "sh", "-c", "seq 100; exit 3")
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() != 3 {
		t.Errorf("the script ended with %v, want exit code 3", err)
	}
	want := "setup: build a program: failed after Ns. Last lines of " + cache + "/joulevirt/steps/build-a-program.log:\n  81\n"
	if got := withoutTimes(out.String()); !strings.HasPrefix(got, want) || !strings.HasSuffix(got, "\n  100\n") {
		t.Errorf("printed:\n%s\nwant it to start:\n%s", got, want)
	}
}

// TestScriptQuick checks that a step with nothing to do prints nothing.
func TestScriptQuick(t *testing.T) {
	out := newScreen()
	if err := script(t, out, t.TempDir(), "build a program", "true"); err != nil || out.String() != "" {
		t.Errorf("printed %q, %v", out, err)
	}
}
