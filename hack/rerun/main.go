// Command rerun runs the failed tests of the gate again, each up to twice and by itself:
//
//	rerun FILE
//
// FILE has the events of the gate's run (test2json). A test that passes then is printed as flaky and
// does not fail the gate. A package that crashed, or failed without a failed test, is not run again:
// some of its tests may never have run. Nor are more than ten tests: so many do not fail by accident.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
)

const (
	attempts = 2
	most     = 10
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: rerun FILE")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := rerunFile(os.Args[1], func(t test) ([]event, error) { return runTest(ctx, t) }, os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "rerun:", err)
		os.Exit(1)
	}
}

// event is a line of test2json. Test is empty for events of the package.
type event struct{ Action, Package, Test, Output string }

// test is a top-level test.
type test struct{ Package, Name string }

func (t test) String() string { return t.Package + "." + t.Name }

func decode(r io.Reader) ([]event, error) {
	var events []event
	for decoder := json.NewDecoder(r); ; {
		var e event
		if err := decoder.Decode(&e); errors.Is(err, io.EOF) {
			return events, nil
		} else if err != nil {
			return nil, fmt.Errorf("read events of tests: %w", err)
		}
		events = append(events, e)
	}
}

// failures returns the top-level tests that failed, and the packages whose failure no rerun clears,
// each with its reason.
func failures(events []event) (failed []test, final []string) {
	crashed, running := map[string]bool{}, map[test]bool{}
	var packages []string
	for _, e := range events {
		t := test{e.Package, e.Test}
		switch e.Action {
		case "run":
			running[t] = true
		case "output":
			if strings.HasPrefix(e.Output, "panic: ") || strings.HasPrefix(e.Output, "fatal error: ") {
				crashed[e.Package] = true
			}
		case "fail":
			if e.Test == "" {
				packages = append(packages, e.Package)
			} else if !strings.Contains(e.Test, "/") {
				failed = append(failed, t)
			}
			delete(running, t)
		case "pass", "skip":
			delete(running, t)
		}
	}
	for t := range running {
		crashed[t.Package] = true
	}
	for _, p := range packages {
		switch {
		case crashed[p]:
			final = append(final, p+": it crashed, so some of its tests may not have run")
		case !slices.ContainsFunc(failed, func(t test) bool { return t.Package == p }):
			final = append(final, p+": it failed outside of its tests")
		}
	}
	return failed, final
}

// rerunFile reruns the failed tests of a run and prints what became of them. The error says why the
// gate fails.
func rerunFile(file string, run func(test) ([]event, error), out io.Writer) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	events, err := decode(f)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return rerun(events, run, out)
}

func rerun(events []event, run func(test) ([]event, error), out io.Writer) error {
	tests, final := failures(events)
	switch {
	case len(final) > 0:
		return fmt.Errorf("not run again: %s", strings.Join(final, "; "))
	case len(tests) == 0:
		return errors.New("the run failed without a failed test")
	case len(tests) > most:
		return fmt.Errorf("%d tests failed: more than %d are not run again", len(tests), most)
	}
	var results []string
	failed := 0
	for _, t := range tests {
		attempt := 1
		for attempt <= attempts && !passes(t, run, out) {
			attempt++
		}
		if attempt > attempts {
			failed++
			results = append(results, "failed "+t.String())
		} else {
			results = append(results, fmt.Sprintf("flaky %s: passed when run again (%d of %d)", t, attempt, attempts))
		}
	}
	fmt.Fprintf(out, "%s\nrerun: %d passed, %d failed\n", strings.Join(results, "\n"), len(tests)-failed, failed)
	if failed > 0 {
		return fmt.Errorf("%d of %d tests failed again", failed, len(tests))
	}
	return nil
}

// passes runs a test once. A run that exits with 0 counts only if it reports the pass of exactly this
// test: a program that runs no test exits with 0, too.
func passes(t test, run func(test) ([]event, error), out io.Writer) bool {
	events, err := run(t)
	var passed []test
	for _, e := range events {
		if e.Action == "pass" && e.Test != "" && !strings.Contains(e.Test, "/") {
			passed = append(passed, test{e.Package, e.Test})
		}
	}
	failed, final := failures(events)
	if err == nil && len(failed)+len(final) == 0 && slices.Equal(passed, []test{t}) {
		return true
	}
	fmt.Fprintf(out, "=== %s failed again: %v\n", t, err)
	for _, e := range events {
		fmt.Fprint(out, e.Output)
	}
	return false
}

func runTest(ctx context.Context, t test) ([]event, error) {
	cmd := exec.CommandContext(ctx, "go", "test", "-json", "-ldflags=-s", "-count=1", "-timeout=20m", "-run=^"+t.Name+"$", t.Package)
	cmd.Stderr = os.Stderr
	text, err := cmd.Output()
	events, broken := decode(strings.NewReader(string(text)))
	return events, errors.Join(err, broken)
}
