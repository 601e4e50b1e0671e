package buffer

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/internal/host/hosttest"
)

func TestPacketsAreHeldWhileTheLoopIsAlive(t *testing.T) {
	b := newBench(t)
	leases := func() int {
		before := b.lease
		b.keeper.Beat()
		return b.lease - before
	}
	if leases() != 0 {
		t.Error("packets are held of no tap")
	}
	b.wantOutcome(window(time.Millisecond), Applied)
	if leases() != 1 || leases() != 0 {
		t.Error("not told at once, and then each second")
	}
	for range 30 {
		b.clock.Step(beat)
		if leases() != 1 {
			t.Fatal("not told each second")
		}
	}
	b.clock.Step(beat)
	if leases() != 0 {
		t.Error("a loop that hangs keeps packets held")
	}
	b.keeper.Alive()
	if leases() != 1 {
		t.Error("a loop that works again does not")
	}
	b.clock.Step(beat)
	b.wantOutcome(nil, Undone)
	if leases() != 0 {
		t.Error("packets are held on after the undoing")
	}
}

func TestASlowLoopIsNoHangingOne(t *testing.T) {
	b := newBench(t)
	b.keeper = NewKeeper(b.kernel, b.clock, 30*time.Second)
	b.actuator = New(b.kernel, b.store, nil, b.keeper)
	b.wantOutcome(window(time.Millisecond), Applied)
	b.clock.Step(80 * time.Second)
	b.keeper.Beat()
	if b.lease != 1 {
		t.Error("a loop of 30 s counts as hanging after 80")
	}
}

func TestALeaseThatFailsIsTold(t *testing.T) {
	b := newBench(t)
	b.wantOutcome(window(time.Millisecond), Applied)
	b.leaseErr = errors.New("operation not permitted")
	b.keeper.Beat()
	if r := b.apply(window(time.Millisecond)); r.Outcome != Failed || !strings.Contains(r.Message, "have packets held: operation not permitted") {
		t.Errorf("%+v", r)
	}
	b.leaseErr = nil
	b.keeper.Beat()
	b.wantOutcome(window(time.Millisecond), Applied)
}

func TestTheKeeperEndsWithItsContext(t *testing.T) {
	b := newBench(t)
	b.wantOutcome(window(time.Millisecond), Applied)
	told := func() int {
		b.keeper.mu.Lock()
		defer b.keeper.mu.Unlock()
		return b.lease
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { b.keeper.Run(ctx) })
	for n := 1; n <= 3; n++ {
		hosttest.Eventually(t, "a beat", func() bool { return told() == n })
		hosttest.Eventually(t, "the ticker", b.clock.HasWaiters)
		b.clock.Step(beat)
	}
	hosttest.Eventually(t, "a beat", func() bool { return told() == 4 })
	cancel()
	running.Wait()
	b.clock.Step(beat)
	if told() != 4 {
		t.Errorf("told %d times", told())
	}
}
