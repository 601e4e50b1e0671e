package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestStoriesIn(t *testing.T) {
	const tests = "package p\n\nfunc TestMain(m *testing.M) {}\n\nfunc TestA(t *testing.T) {\n}\n\nfunc helper(t *testing.T) {}\n\n// TestB2 is one.\n//\n//e2e:alone it counts\nfunc TestB2(t *testing.T) {}\n"
	stories := []story{{Folder: "p", Test: "TestA"}, {Folder: "p", Test: "TestB2", Alone: true}}
	for text, want := range map[string][]story{
		"//go:build e2e\n\n" + tests:          stories,
		"//go:build e2e && !held\n\n" + tests: stories,
		"//go:build linux\n\n" + tests:        nil,
		tests:                                 nil,
	} {
		if got := storiesIn("p", []byte(text)); !slices.Equal(got, want) {
			t.Errorf("stories of %q are %v, want %v", text, got, want)
		}
	}
}

func TestChoose(t *testing.T) {
	all := []story{{Folder: "test/e2e", Test: "TestA"}, {Folder: "test/e2e/nodes", Test: "TestA"}, {Folder: "test/e2ex", Test: "TestB"}}
	for _, c := range []struct {
		only, name string
		want       []story
	}{
		{".", "", all},
		{"./test/e2e", "", all[:2]},
		{"./test/e2e/", "TestA", all[:2]},
		{".", "test/e2e.TestA", all[:1]},
		{".", "TestC", nil},
	} {
		if got := choose(all, c.only, c.name); !slices.Equal(got, c.want) {
			t.Errorf("below %s of name %q: %v, want %v", c.only, c.name, got, c.want)
		}
	}
}

func TestJudge(t *testing.T) {
	exit := errors.New("exit status 1")
	for name, c := range map[string]struct {
		log     string
		ended   error
		ok      bool
		problem string
	}{
		"passed":                  {"=== RUN   TestA\n--- PASS: TestA (0.10s)\nPASS\n", nil, true, ""},
		"did not run":             {"testing: warning: no tests to run\nPASS\n", nil, false, "<nil>: PASS"},
		"another passed":          {"=== RUN   TestAB\n--- PASS: TestAB (0.10s)\nPASS\n", nil, false, "<nil>: PASS"},
		"ended badly":             {"--- PASS: TestA (0.10s)\nPASS\nnetwork is left\n", exit, false, "exit status 1: network is left"},
		"failed":                  {"=== RUN   TestA\n    a_test.go:5: fine\n    a_test.go:6: broken\n        more\n--- FAIL: TestA (0.10s)\nFAIL\n", exit, false, "TestA: a_test.go:6: broken"},
		"a part failed":           {"=== RUN   TestA\n    a_test.go:1: x\n=== RUN   TestA/part\n    a_test.go:6: broken\n=== RUN   TestA/next\n    a_test.go:7: fine\n--- FAIL: TestA (0.10s)\n    --- FAIL: TestA/part (0.00s)\n    --- PASS: TestA/next (0.00s)\nFAIL\n", exit, false, "part: a_test.go:6: broken"},
		"a part that ran on":      {"=== RUN   TestA/p\n=== RUN   TestA/q\n    a_test.go:6: of q\n=== NAME  TestA/p\n    a_test.go:7: of p\n--- FAIL: TestA (0.10s)\n    --- FAIL: TestA/p (0.00s)\nFAIL\n", exit, false, "p: a_test.go:7: of p"},
		"panic":                   {"=== RUN   TestA\npanic: test timed out after 30m0s\n\ngoroutine 1\n", exit, false, "panic: test timed out after 30m0s"},
		"panic in a part":         {"=== RUN   TestA/part\n--- FAIL: TestA (0.10s)\n    --- FAIL: TestA/part (0.00s)\npanic: nil map\n", exit, false, "panic: nil map"},
		"the suite did not start": {"images: no space left\n", exit, false, "exit status 1: images: no space left"},
		"nothing":                 {"", exit, false, "exit status 1: it wrote nothing"},
	} {
		t.Run(name, func(t *testing.T) {
			if ok, problem := judge("TestA", c.log, c.ended); ok != c.ok || problem != c.problem {
				t.Errorf("judged %v, %q; want %v, %q", ok, problem, c.ok, c.problem)
			}
		})
	}
}

func TestSummarize(t *testing.T) {
	of := func(name string, oks ...bool) result {
		r := result{story: story{Folder: "test", Test: name}}
		for i, ok := range oks {
			a := attempt{OK: ok, Load: 2.5, Log: "file"}
			if !ok {
				a.Problem = "TestX: waited " + strings.Repeat("9", i+1) + " s"
			}
			r.attempts = append(r.attempts, a)
		}
		return r
	}
	listed := map[string]quarantined{"test.TestListed": {}}
	report, ok := summarize([]result{of("TestA", true), of("TestFlaky", false, true), of("TestListed", false, false, false)}, listed, 90*time.Second)
	const want = `FLAKY test.TestFlaky attempt 1: TestX: waited 9 s (load 2.5) log file
QUARANTINED test.TestListed attempt 1: TestX: waited 9 s (load 2.5) log file
QUARANTINED test.TestListed attempt 2: TestX: waited 99 s (load 2.5) log file
QUARANTINED test.TestListed attempt 3: TestX: waited 999 s (load 2.5) log file
QUARANTINED test.TestListed: 1 different problems in 3 attempts
figure e2e_min 1.5 min
figure e2e_failed 0 stories
figure e2e_flaky_pct 33.3 %
E2E 3 stories: 1 ok, 1 flaky, 0 failed, 1 quarantined, 2 min
`
	if report != want || !ok {
		t.Errorf("the report is, ok=%v:\n%swant:\n%s", ok, report, want)
	}
	if report, ok := summarize([]result{of("TestA", true), of("TestFails", false, false, false)}, listed, time.Minute); ok || !strings.HasSuffix(report, "E2E 2 stories: 1 ok, 0 flaky, 1 failed, 0 quarantined, 1 min\n") {
		t.Errorf("with a story that fails the report is, ok=%v:\n%s", ok, report)
	}
}

func TestQuarantine(t *testing.T) {
	stories := []story{{Folder: "test", Test: "TestA"}, {Folder: "test", Test: "TestB"}}
	day := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		text, want, problem string
	}{
		"empty":          {"# comment\n\n", "", ""},
		"listed":         {"test.TestA 2026-11-10 2026-11-20 kernel panics at its start\n", "test.TestA", ""},
		"past":           {"test.TestA 2026-11-10 2026-11-19 kernel panics\n", "", ""},
		"unknown":        {"test.TestC 2026-11-10 2026-11-20 kernel panics\n", "", "no such story"},
		"no cause":       {"test.TestA 2026-11-10 2026-11-20\n", "", "want STORY FROM UNTIL CAUSE"},
		"no day":         {"test.TestA 2026-11-10 tomorrow kernel panics\n", "", "cannot parse"},
		"too long":       {"test.TestA 2026-11-10 2026-11-25 kernel panics\n", "", "at most 14 days"},
		"more than 1 %":  {"test.TestA 2026-11-10 2026-11-20 x\ntest.TestB 2026-11-10 2026-11-20 x\n", "", "at most 1 %"},
		"one has passed": {"test.TestA 2026-11-10 2026-11-20 x\ntest.TestB 2026-11-01 2026-11-02 x\n", "test.TestA", ""},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "quarantine")
			if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			listed, err := readQuarantine(file, stories, day)
			if c.problem != "" {
				if err == nil || !strings.Contains(err.Error(), c.problem) {
					t.Errorf("the error is %v, want %q", err, c.problem)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if _, ok := listed[c.want]; c.want == "" && len(listed) > 0 || c.want != "" && !ok {
				t.Errorf("in quarantine are %v, want %q", listed, c.want)
			}
		})
	}
}

func TestAdvise(t *testing.T) {
	runs := func(oks ...bool) []attempt {
		var all []attempt
		for _, ok := range oks {
			all = append(all, attempt{OK: ok})
		}
		return all
	}
	clean := slices.Repeat([]bool{true}, window)
	past := map[string][]attempt{
		"once":   runs(append([]bool{false}, clean[1:]...)...),
		"twice":  runs(append([]bool{false, false}, clean[2:]...)...),
		"long":   runs(append([]bool{false, false}, clean...)...), // longer ago
		"mended": runs(clean...),
		"young":  runs(true, true),
	}
	want := []string{"quarantine twice: it failed in 2 of its last 20 runs", "release mended from quarantine: its last 20 runs passed"}
	if got := advise(past, map[string]quarantined{"mended": {}, "young": {}}); !slices.Equal(got, want) {
		t.Errorf("the advice is %q, want %q", got, want)
	}
}

func TestHistory(t *testing.T) {
	file := filepath.Join(t.TempDir(), "history")
	if past, err := readHistory(file); err != nil || len(past) > 0 {
		t.Fatalf("without a file: %v, %v", past, err)
	}
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	began := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	want := []attempt{{Story: "a", Began: began, OK: true, Seconds: 2.5}, {Story: "a", Began: began, Problem: "line\n", Load: 1}}
	for _, a := range append(want, attempt{Story: "b"}) {
		if err := writeAttempt(f, a); err != nil {
			t.Fatal(err)
		}
	}
	past, err := readHistory(file)
	if err != nil || !slices.Equal(past["a"], want) || len(past) != 2 {
		t.Errorf("the history is %+v, %v", past, err)
	}
}

// TestInterruptedAttemptsAreForgotten: the history would name their stories for the quarantine.
func TestInterruptedAttemptsAreForgotten(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "history"))
	if err != nil {
		t.Fatal(err)
	}
	r := runner{root: t.TempDir(), history: file}
	defer r.close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if a := r.attempt(ctx, story{Folder: "test", Test: "TestA"}, 1); a.OK {
		t.Errorf("%v", a)
	}
	if text, err := os.ReadFile(file.Name()); err != nil || len(text) > 0 {
		t.Errorf("the history has %q (%v)", text, err)
	}
}
