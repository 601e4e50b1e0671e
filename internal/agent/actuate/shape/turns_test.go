package shape

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/host/hosttest"
	"github.com/joulevirt/joulevirt/internal/model"
)

// newTurns is one gate on a made-up kernel that boots at 0.
func newTurns(t *testing.T) *bench {
	b := newBench(t)
	delete(b.pods[b.vm.Process], "pod1234-nic")
	b.now = 0
	b.wantOutcome(turn(), Applied) // open from 2 to 6 of 10 seconds
	b.log = nil
	return b
}

func (b *bench) wantLog(want ...string) {
	b.t.Helper()
	for i := range want {
		want[i] = "eth0 of 100 at " + want[i]
	}
	if diff := cmp.Diff(want, b.log); diff != "" {
		b.t.Errorf("gates (-want +got):\n%s", diff)
	}
	b.log = nil
}

func TestGatesChangeOnTheGrid(t *testing.T) {
	b := newTurns(t)
	for b.now < 25*time.Second {
		wait := b.turns.Beat()
		if wait <= 0 || wait > beat {
			t.Fatalf("asks to be called in %v at %v", wait, b.now)
		}
		if b.kept < b.now+beat {
			t.Fatalf("gates hold until %v at %v", b.kept, b.now)
		}
		b.now += wait
	}
	b.wantLog("0s: 256000", "2s: 0", "6s: 256000", "12s: 0", "16s: 256000", "22s: 0")
	if stats := b.turns.Stats(); stats.Changes != 6 || stats.Late != 0 || stats.Gates != 1 {
		t.Errorf("%+v", stats)
	}
}

func TestALateBeatIsMadeUpFor(t *testing.T) {
	b := newTurns(t)
	for _, at := range []time.Duration{
		0, 2300 * time.Millisecond, // late by 0.3 s
		5 * time.Second, 13 * time.Second, // a hold was slept through
		14 * time.Second, 17 * time.Second, 31 * time.Second, // so was a turn
	} {
		b.now = at
		b.turns.Beat()
	}
	b.wantLog("0s: 256000", "2.3s: 0", "17s: 256000")
	if stats := b.turns.Stats(); stats.Late != time.Second {
		t.Errorf("late by %v, want the worst", stats.Late)
	}
	if stats := b.turns.Stats(); stats.Late != 0 {
		t.Errorf("late by %v since the last time", stats.Late)
	}
}

func TestAGateThatFailsIsTriedAgain(t *testing.T) {
	b := newTurns(t)
	b.turns.Beat()
	b.refuse, b.now = errors.New("out of memory"), 2*time.Second
	if wait := b.turns.Beat(); wait <= 0 || wait > beat {
		t.Errorf("tries again in %v", wait)
	}
	b.wantOutcome(turn(), Failed)
	b.refuse, b.now = nil, 3*time.Second
	b.turns.Beat()
	b.wantLog("0s: 256000", "3s: 0")
	b.wantOutcome(turn(), Applied)
}

func TestAChangedTurnHoldsAtOnce(t *testing.T) {
	b := newTurns(t)
	b.now = 3 * time.Second
	b.turns.Beat()
	later := turn()
	later.Turn.Offset = 5 * time.Second
	b.wantOutcome(later, Applied)
	b.turns.Beat()
	b.wantLog("3s: 0", "3s: 256000")
	b.wantOutcome(&model.Shaping{Ceiling: 1e6}, Applied)
	b.now = 6 * time.Second
	b.turns.Beat()
	b.wantLog()
}

func TestTurnsOfAVMThatEnded(t *testing.T) {
	b := newTurns(t)
	delete(b.pods, b.vm.Process)
	b.turns.Beat()
	if stats := b.turns.Stats(); stats.Gates != 0 {
		t.Errorf("%d gates", stats.Gates)
	}
}

// With the injected clock, and a kernel whose time is that clock's.
func TestRunWakesForBoundaries(t *testing.T) {
	b := newTurns(t)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { b.turns.Run(ctx) })
	for step := range 40 {
		hosttest.Eventually(t, "the next beat", b.clock.HasWaiters)
		b.turns.mu.Lock() // which guards the kernel too
		b.now = time.Duration(step+1) * 500 * time.Millisecond
		b.turns.mu.Unlock()
		b.clock.Step(500 * time.Millisecond)
	}
	hosttest.Eventually(t, "the last boundary", func() bool { return b.turns.Stats().Changes >= 5 })
	cancel()
	running.Wait()
	b.wantLog("0s: 256000", "2s: 0", "6s: 256000", "12s: 0", "16s: 256000")
}

func TestManyGates(t *testing.T) {
	b := newBench(t)
	const vms = 300
	for i := range vms {
		id := host.TaskID{PID: 1000 + i, TID: 1000 + i, Start: 1}
		d := &nic{Uplink: host.Uplink{Name: "eth0", Owner: host.QueueOurs}}
		b.pods[id] = map[string]*nic{"eth0": d}
		b.turns.set(key{Process: id, Name: "eth0"}, &model.Turn{
			Period: 10 * time.Second, Offset: time.Duration(i) * 33 * time.Millisecond, Length: time.Second, Trickle: 256_000,
		})
	}
	b.now = 0
	for b.now < 20*time.Second {
		b.now += b.turns.Beat()
	}
	changes := map[string]int{}
	for _, line := range b.log {
		var name string
		var pid int
		if _, err := fmt.Sscanf(line, "%s of %d", &name, &pid); err != nil {
			t.Fatal(err)
		}
		changes[fmt.Sprint(pid)]++
	}
	for pid, n := range changes {
		if n < 4 || n > 5 {
			t.Errorf("gate of %s changed %d times in two periods", pid, n)
		}
	}
	if len(changes) != vms {
		t.Errorf("%d gates of %d changed", len(changes), vms)
	}
}
