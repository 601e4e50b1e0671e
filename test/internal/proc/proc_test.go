package proc

import (
	"context"
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestStopEndsAll(t *testing.T) {
	g := NewGroup(t.TempDir())
	var all []*Process
	for _, name := range []string{"a", "b"} {
		p, err := g.Start(name, "sleep", "3600")
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	g.Stop()
	g.Stop()
	for _, p := range all {
		if err := syscall.Kill(p.PID, 0); !errors.Is(err, syscall.ESRCH) {
			t.Errorf("%s after Stop: %v, want %v", p.Name, err, syscall.ESRCH)
		}
	}
	if _, err := g.Start("late", "sleep", "1"); err == nil {
		t.Error("Start after Stop: want an error")
	}
}

func TestStartUnknownProgram(t *testing.T) {
	g := NewGroup(t.TempDir())
	defer g.Stop()
	if _, err := g.Start("x", "/no/such/program"); err == nil {
		t.Error("Start: want an error")
	}
}

func TestWaitReadyQuotesTheLogOfAProgramThatEnds(t *testing.T) {
	g := NewGroup(t.TempDir())
	defer g.Stop()
	p, err := g.Start("brief", "sh", "-c", "echo no such luck >&2; exit 3")
	if err != nil {
		t.Fatal(err)
	}
	never := errors.New("never")
	err = p.WaitReady(t.Context(), func(context.Context) error { return never })
	if err == nil || !strings.Contains(err.Error(), "exit status 3") || !strings.Contains(err.Error(), "no such luck") {
		t.Errorf("WaitReady = %v, want exit status and log", err)
	}
}

func TestWaitReadyInTime(t *testing.T) {
	g := NewGroup(t.TempDir())
	defer g.Stop()
	p, err := g.Start("slow", "sleep", "3600")
	if err != nil {
		t.Fatal(err)
	}
	calls := 0
	err = p.WaitReady(t.Context(), func(context.Context) error {
		if calls++; calls < 3 {
			return errors.New("not yet")
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*pollInterval)
	defer cancel()
	never := errors.New("never")
	begin := time.Now()
	if err := p.WaitReady(ctx, func(context.Context) error { return never }); !errors.Is(err, never) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("WaitReady = %v after %s, want the probe's answer and the deadline", err, time.Since(begin))
	}
}
