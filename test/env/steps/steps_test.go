package steps

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// screen is what was printed.
type screen struct {
	mu      sync.Mutex
	text    strings.Builder
	changed chan struct{}
}

func newScreen() *screen { return &screen{changed: make(chan struct{}, 1)} }

func (s *screen) Write(text []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case s.changed <- struct{}{}:
	default:
	}
	return s.text.Write(text)
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// await waits until the screen has a text.
func (s *screen) await(text string) error {
	for giveUp := time.After(time.Minute); !strings.Contains(s.String(), text); {
		select {
		case <-s.changed:
		case <-giveUp:
			return fmt.Errorf("the screen has no %q after a minute:\n%s", text, s)
		}
	}
	return nil
}

// slow returns a Reporter for which each step is worth a line.
func slow(out io.Writer, cache string) *Reporter {
	r := New(out, cache)
	r.quick = 0
	return r
}

// untilShown is a step that ends once its line is shown.
func (s *screen) untilShown(name string) func(io.Writer) error {
	return func(log io.Writer) error {
		fmt.Fprintln(log, "output of a command")
		return s.await("setup: " + name)
	}
}

// withoutTimes replaces how long steps took.
func withoutTimes(text string) string {
	return regexp.MustCompile(`(done in|failed after) \d+s`).ReplaceAllString(text, "$1 Ns")
}

// TestPlain checks what is printed where there is no terminal.
func TestPlain(t *testing.T) {
	cache := t.TempDir()
	out := newScreen()
	r := slow(out, cache)
	for _, name := range []string{"build kubevirt", "get Envoy"} {
		if err := r.Run(name, out.untilShown(name)); err != nil {
			t.Fatal(err)
		}
	}
	r.Printf("all is %s", "there")
	want := "setup: output of each step is in " + cache + "/steps\n" +
		"setup: build kubevirt, roughly 5m0s\nsetup: build kubevirt: done in Ns\n" +
		"setup: get Envoy, roughly 10s\nsetup: get Envoy: done in Ns\nall is there\n"
	if got := withoutTimes(out.String()); got != want {
		t.Errorf("printed:\n%s\nwant:\n%s", got, want)
	}
	log, err := os.ReadFile(filepath.Join(cache, "steps", "build-kubevirt.log"))
	if err != nil || string(log) != "output of a command\n" {
		t.Errorf("the log is %q, %v", log, err)
	}
}

// TestLastDuration checks that a step says how long it took last time.
func TestLastDuration(t *testing.T) {
	cache := t.TempDir()
	first := newScreen()
	if err := slow(first, cache).Run("build a program", first.untilShown("build a program")); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(cache, "steps", "build-a-program.duration")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if took, err := time.ParseDuration(string(text)); err != nil || took > time.Minute {
		t.Errorf("stored is %q (%v), want a duration of a moment", text, err)
	}
	if err := os.WriteFile(file, []byte("1m42s"), 0o644); err != nil {
		t.Fatal(err)
	}
	out := newScreen()
	if err := slow(out, cache).Run("build a program", out.untilShown("build a program")); err != nil {
		t.Fatal(err)
	}
	if want := "setup: build a program, last time 1m42s\n"; !strings.Contains(out.String(), want) {
		t.Errorf("printed:\n%s\nwant the line %q", out.String(), want)
	}
}

// TestFailure checks that the end of a failed step's log is in the error, with the log's path.
func TestFailure(t *testing.T) {
	cache := t.TempDir()
	out := newScreen()
	cause := errors.New("exit status 1")
	err := slow(out, cache).Run("build virt-launcher", func(log io.Writer) error {
		for i := range 100 {
			fmt.Fprintln(log, "line", i)
		}
		return errors.Join(out.await("setup: build virt-launcher"), cause)
	})
	if !errors.Is(err, cause) {
		t.Fatalf("the error is %v, want %v in it", err, cause)
	}
	want := "build virt-launcher: failed after Ns: exit status 1\nLast lines of " + cache + "/steps/build-virt-launcher.log:\n  line 80\n"
	if got := withoutTimes(err.Error()); !strings.HasPrefix(got, want) || !strings.HasSuffix(got, "\n  line 98\n  line 99") {
		t.Errorf("the error is:\n%s\nwant it to start:\n%s", got, want)
	}
	if want := "setup: build virt-launcher: failed after Ns\n"; !strings.HasSuffix(withoutTimes(out.String()), want) {
		t.Errorf("printed:\n%s\nwant it to end %q", out.String(), want)
	}
}

// TestQuick checks that steps with nothing to do print nothing, and forget no duration.
func TestQuick(t *testing.T) {
	cache := t.TempDir()
	out := newScreen()
	r := New(out, cache)
	r.quick = time.Hour
	if err := r.Run("build a program", func(io.Writer) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if out.String() != "" {
		t.Errorf("printed:\n%s", out.String())
	}
	if _, err := os.Stat(filepath.Join(cache, "steps", "build-a-program.duration")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a duration was stored: %v", err)
	}
}

// TestNil checks that a nil Reporter does the step.
func TestNil(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	var r *Reporter
	r.Printf("nobody reads this")
	cause := errors.New("exit status 1")
	if err := r.Run("build a program", func(io.Writer) error { return cause }); !errors.Is(err, cause) {
		t.Errorf("the error is %v, want %v in it", err, cause)
	}
}

// TestTerminal checks the live line of a step, and what it leaves.
func TestTerminal(t *testing.T) {
	master, terminal := openTerminal(t)
	screen, ended := newScreen(), make(chan struct{})
	go func() {
		defer close(ended)
		// Reading fails when nobody has the terminal open any more.
		_, _ = io.Copy(screen, master)
	}()
	r := slow(terminal, t.TempDir())
	succeeds := r.Run("get Envoy", func(io.Writer) error {
		err := screen.await("get Envoy  0s, roughly 10s")
		r.Printf("another process waits")
		return err
	})
	fails := r.Run("build virt-api", func(io.Writer) error {
		return errors.Join(screen.await("build virt-api"), errors.New("exit status 1"))
	})
	if fails == nil {
		t.Error("the second step did not fail")
	}
	if err := errors.Join(succeeds, terminal.Close()); err != nil {
		t.Fatal(err)
	}
	<-ended
	for _, want := range []string{"\r\x1b[Kanother process waits\r\n", "\r\x1b[K✓ get Envoy  ", "✗ build virt-api  "} {
		if !strings.Contains(screen.String(), want) {
			t.Errorf("the terminal got\n%q\nwant %q in it", screen, want)
		}
	}
}

// openTerminal returns a terminal of 100 columns, and what it is connected to.
func openTerminal(t *testing.T) (master, terminal *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = master.Close() })
	fd := int(master.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	terminal, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 30, Col: 100}); err != nil {
		t.Fatal(err)
	}
	return master, terminal
}
