// Package steps runs the steps by which a machine is set up: each shows one
// line, live on a terminal, with the time it takes and took last time. What the
// commands of a step print goes to a log file, whose end is part of the error
// when the step fails. It imports the standard library only: hack/step, which runs
// before anything is downloaded, is compiled in seconds.
package steps

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"
)

const (
	// quick steps show nothing: most of them find that all is there.
	quick = 2 * time.Second
	// tailLines is how much of its log the error of a step has.
	tailLines = 20
	// spinner has the marks of a step that runs, in turn.
	spinner = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
)

// Reporter runs steps. A nil Reporter shows nothing.
type Reporter struct {
	out      io.Writer
	terminal bool
	// dir has a log and the last duration of each step.
	dir   string
	quick time.Duration

	// line is held by the step whose line is live: a terminal has one at a time.
	line sync.Mutex
	// announce prints once where the logs are.
	announce sync.Once
}

// New returns a Reporter that shows steps on out, and keeps their logs and
// durations below the cache folder.
func New(out io.Writer, cache string) *Reporter {
	return &Reporter{out: out, terminal: isTerminal(out), dir: filepath.Join(cache, "steps"), quick: quick}
}

// isTerminal reports whether out can show a live line.
func isTerminal(out io.Writer) bool {
	file, ok := out.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// Run does a step, whose name is the same each time. Output of the commands
// that it runs goes to log.
func (r *Reporter) Run(name string, do func(log io.Writer) error) error {
	if r == nil {
		r = New(io.Discard, filepath.Join(os.TempDir(), "joulevirt"))
	}
	if err := os.MkdirAll(r.dir, 0o755); err != nil {
		return err
	}
	log, err := os.Create(r.file(name, ".log"))
	if err != nil {
		return err
	}
	defer log.Close()
	start := time.Now()
	ended := make(chan error, 1)
	go func() { ended <- do(log) }()
	select {
	case err = <-ended:
	case <-time.After(r.quick):
		end := r.show(name, start)
		err = <-ended
		end(err)
		if err == nil {
			err = r.record(name, time.Since(start))
		}
	}
	if err != nil {
		return fmt.Errorf("%s: failed after %s: %w%s", name, seconds(time.Since(start)), err, tail(log.Name()))
	}
	return nil
}

// Printf prints a line beside those of the steps.
func (r *Reporter) Printf(format string, args ...any) {
	if r == nil {
		return
	}
	if r.terminal {
		format = "\r\x1b[K" + format // a live line is drawn again
	}
	fmt.Fprintf(r.out, format+"\n", args...)
}

// show shows that a step runs. The function that it returns shows how it ended.
func (r *Reporter) show(name string, start time.Time) (end func(error)) {
	r.announce.Do(func() { r.Printf("setup: output of each step is in %s", r.dir) })
	expected := r.expected(name)
	if !r.terminal {
		r.Printf("setup: %s%s", name, expected)
		return func(err error) {
			if err == nil {
				r.Printf("setup: %s: done in %s", name, seconds(time.Since(start)))
			} else {
				r.Printf("setup: %s: failed after %s", name, seconds(time.Since(start)))
			}
		}
	}
	r.line.Lock()
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(time.Second / 10)
		defer tick.Stop()
		for marks, i := []rune(spinner), 0; ; i++ {
			r.redraw(string(marks[i%len(marks)]), name, start, expected)
			select {
			case <-tick.C:
			case <-stop:
				return
			}
		}
	}()
	return func(err error) {
		close(stop)
		<-stopped
		mark := "✓"
		if err != nil {
			mark = "✗"
		}
		r.redraw(mark, name, start, "\n")
		r.line.Unlock()
	}
}

// redraw replaces the live line.
func (r *Reporter) redraw(mark, name string, start time.Time, rest string) {
	fmt.Fprintf(r.out, "\r\x1b[K%s %s  %s%s", mark, name, seconds(time.Since(start)), rest)
}

// expected says how long a step takes, if that is known: what it took last
// time, or a figure of another machine.
func (r *Reporter) expected(name string) string {
	if text, err := os.ReadFile(r.file(name, ".duration")); err == nil {
		if last, err := time.ParseDuration(string(text)); err == nil {
			return ", last time " + seconds(last)
		}
	}
	if rough, ok := rough()[name]; ok {
		return ", roughly " + seconds(rough)
	}
	return ""
}

// record stores how long a step took.
func (r *Reporter) record(name string, took time.Duration) error {
	return os.WriteFile(r.file(name, ".duration"), []byte(took.Round(time.Second).String()), 0o644)
}

// file is where something of a step is kept.
func (r *Reporter) file(name, suffix string) string {
	return filepath.Join(r.dir, regexp.MustCompile(`[^a-zA-Z0-9]+`).ReplaceAllString(name, "-")+suffix)
}

// tail returns the end of a log, below a line that says so; nothing of an empty one.
func tail(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Sprintf("\n(read its log: %v)", err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if len(bytes.TrimSpace(text)) == 0 {
		return ""
	}
	lines = lines[max(0, len(lines)-tailLines):]
	return fmt.Sprintf("\nLast lines of %s:\n  %s", path, strings.Join(lines, "\n  "))
}

// seconds is a duration for people: 42s, 3m5s.
func seconds(d time.Duration) string { return d.Round(time.Second).String() }
