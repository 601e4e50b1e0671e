// Command e2e runs the stories of make e2e: the top-level tests in files with the build tag e2e.
//
//	e2e [-only=./FOLDER] [-story=NAME] [-n=N]
//
// A story is one process in one cgroup. Those with a line "//e2e:alone REASON" run alone, all others
// two at a time. A story that failed runs again by itself, up to twice, after all others and once
// the machine is calm. With -n each story runs so often, and
// must pass each time: the way in for a new or mended story.
//
// DIST/STORY/ATTEMPT has the log of each attempt and what the story saved. The last line is the sum.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

const (
	dist           = "dist/e2e"
	quarantineFile = "test/quarantine.txt"
	// attempts of a story that fails.
	attempts = 3
)

func main() {
	only := flag.String("only", ".", "run the stories below this folder")
	name := flag.String("story", "", "run the story of this name: TestX, or FOLDER.TestX")
	repeat := flag.Int("n", 0, "run each story so often")
	cache, err := os.UserCacheDir()
	history := flag.String("history", filepath.Join(cache, "joulevirt", "e2e.jsonl"), "file to which attempts are appended")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err == nil {
		err = run(ctx, *only, *name, *history, *repeat)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		os.Exit(1)
	}
}

// errNotOK: the last lines say why.
var errNotOK = errors.New("not all stories are ok")

func run(ctx context.Context, only, name, historyFile string, repeat int) error {
	began := time.Now()
	every, err := readStories(".")
	if err != nil {
		return err
	}
	chosen := choose(every, only, name)
	if len(chosen) == 0 {
		return fmt.Errorf("no story %q below %s", name, only)
	}
	listed, err := readQuarantine(quarantineFile, every, began)
	if err != nil {
		return err
	}
	r, err := newRunner(ctx, historyFile)
	if err != nil {
		return err
	}
	defer r.close()
	if err := r.build(ctx, chosen); err != nil {
		return err
	}
	if repeat > 0 {
		return r.repeat(ctx, chosen, repeat)
	}
	results := r.runAll(ctx, chosen)
	if ctx.Err() != nil {
		return errors.New("interrupted")
	}
	past, err := readHistory(historyFile)
	if err != nil {
		return err
	}
	for _, line := range advise(past, listed) {
		fmt.Println(line)
	}
	report, ok := summarize(results, listed, time.Since(began))
	fmt.Print(report)
	if !ok {
		return errNotOK
	}
	return nil
}
