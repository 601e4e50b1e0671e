package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	// storyTimeout ends a story with the stacks of its goroutines, and killAfter without.
	storyTimeout, killAfter = 30 * time.Minute, 35 * time.Minute
	// calmTimeout bounds the wait for a calm machine before a story runs again.
	calmTimeout = 3 * time.Minute
	// pairs is how many stories run at once that need not run alone.
	pairs = 2
)

// attempt is one run of a story, as it is appended to the history.
type attempt struct {
	Story, Commit string
	Began         time.Time
	Seconds       float64
	// Load of the machine over a minute, before the attempt.
	Load float64
	OK   bool
	// Problem is the first thing that failed, and Log the file with all of it.
	Problem, Log string
}

// runner runs stories. Fields are not changed once it runs.
type runner struct {
	root, commit, cgroups string

	mu      sync.Mutex
	history *os.File
}

func newRunner(ctx context.Context, historyFile string) (*runner, error) {
	root, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	commit, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty").Output()
	if err != nil {
		return nil, fmt.Errorf("read the commit: %w", err)
	}
	cgroups, err := cgroupRoot()
	if err == nil {
		err = os.MkdirAll(filepath.Dir(historyFile), 0o755)
	}
	if err != nil {
		return nil, err
	}
	history, err := os.OpenFile(historyFile, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open the history: %w", err)
	}
	return &runner{root: root, commit: strings.TrimSpace(string(commit)), cgroups: cgroups, history: history}, nil
}

func (r *runner) close() { _ = r.history.Close() }

// program is the test binary of a folder.
func (r *runner) program(folder string) string {
	return filepath.Join(r.root, dist, "bin", strings.ReplaceAll(folder, "/", "-")+".test")
}

// build compiles the test binaries of stories.
func (r *runner) build(ctx context.Context, stories []story) error {
	built := map[string]bool{}
	for _, s := range stories {
		if built[s.Folder] {
			continue
		}
		built[s.Folder] = true
		build := exec.CommandContext(ctx, "go", "test", "-c", "-tags=e2e", "-ldflags=-s", "-o", r.program(s.Folder), "./"+s.Folder)
		build.Stdout, build.Stderr = os.Stderr, os.Stderr
		if err := build.Run(); err != nil {
			return fmt.Errorf("compile the tests of %s: %w", s.Folder, err)
		}
	}
	return nil
}

// runAll runs each story, and those that failed again.
func (r *runner) runAll(ctx context.Context, stories []story) []result {
	results := make([]result, len(stories))
	once := func(i int) {
		results[i].attempts = append(results[i].attempts, r.attempt(ctx, stories[i], len(results[i].attempts)+1))
	}
	var shared errgroup.Group
	shared.SetLimit(pairs)
	for i, s := range stories {
		results[i].story = s
		if !s.Alone {
			shared.Go(func() error { once(i); return nil })
		}
	}
	_ = shared.Wait() // no error: attempts have theirs
	for i, s := range stories {
		if s.Alone {
			once(i)
		}
	}
	for i := range results {
		for len(results[i].attempts) < attempts && !results[i].passed() && ctx.Err() == nil {
			waitCalm(ctx)
			once(i)
		}
	}
	return results
}

// repeat runs each story so often. All must pass.
func (r *runner) repeat(ctx context.Context, stories []story, times int) error {
	var err error
	for _, s := range stories {
		passed := 0
		for n := 1; n <= times && ctx.Err() == nil; n++ {
			if r.attempt(ctx, s, n).OK {
				passed++
			}
		}
		fmt.Printf("E2E %s: %d of %d ok\n", s, passed, times)
		if passed < times {
			err = errNotOK
		}
	}
	return err
}

// attempt runs a story once.
func (r *runner) attempt(ctx context.Context, s story, number int) attempt {
	a := attempt{Story: s.String(), Commit: r.commit, Began: time.Now(), Load: loadOfMachine()}
	folder := filepath.Join(dist, a.Story, strconv.Itoa(number))
	a.Log = filepath.Join(folder, "log")
	err := r.start(ctx, s, folder, a.Log)
	a.Seconds = time.Since(a.Began).Seconds()
	text, readErr := os.ReadFile(a.Log)
	a.OK, a.Problem = judge(s.Test, string(text), errors.Join(err, readErr))
	fmt.Println(a)
	if ctx.Err() == nil { // an attempt that was interrupted says nothing of its story
		r.append(a)
	}
	return a
}

// start runs the test binary in a cgroup of its own until all of it has ended.
func (r *runner) start(ctx context.Context, s story, folder, log string) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err := errors.Join(os.RemoveAll(folder), os.MkdirAll(folder, 0o755)); err != nil {
		return err
	}
	group := filepath.Join(r.cgroups, "joulevirt-e2e-"+s.Test)
	if err := sweep(group); err != nil {
		return err
	}
	if err := os.Mkdir(group, 0o755); err != nil {
		return err
	}
	file, err := os.Create(log)
	if err != nil {
		return err
	}
	defer file.Close()
	ctx, cancel := context.WithTimeout(ctx, killAfter)
	defer cancel()
	// The shell enters the cgroup before the test's first thread starts.
	cmd := exec.CommandContext(ctx, "sh", "-c", `echo $$ >"$0" && exec "$@"`, filepath.Join(group, "cgroup.procs"), r.program(s.Folder),
		"-test.v", "-test.paniconexit0", "-test.timeout="+storyTimeout.String(), "-test.run=^"+s.Test+"$")
	cmd.Dir, cmd.Stdout, cmd.Stderr = filepath.Join(r.root, s.Folder), file, file
	cmd.Env = append(os.Environ(), "JOULEVIRT_ARTIFACTS="+filepath.Join(r.root, folder))
	err = cmd.Run()
	if left := sweep(group); left != nil { // the next story has another
		fmt.Fprintf(os.Stderr, "e2e: after %s: %v\n", s, left)
	}
	return err
}

func (r *runner) append(a attempt) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := writeAttempt(r.history, a); err != nil {
		fmt.Fprintln(os.Stderr, "e2e: append to the history:", err)
	}
}

// waitCalm waits until the machine has less to do than CPUs, or for calmTimeout.
func waitCalm(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, calmTimeout)
	defer cancel()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for loadOfMachine() >= float64(runtime.NumCPU())/2 {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// loadOfMachine is the load average over the last minute. 0: not known.
func loadOfMachine() float64 {
	text, _ := os.ReadFile("/proc/loadavg")
	first, _, _ := bytes.Cut(text, []byte(" "))
	load, _ := strconv.ParseFloat(string(first), 64)
	return load
}
