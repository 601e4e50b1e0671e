package device

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/internal/agent/actuate"
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
	b.wantOutcome(window(time.Millisecond), actuate.Applied)
	if leases() != 1 || leases() != 0 {
		t.Error("not extended at once, and then each second")
	}
	for range 30 {
		b.clock.Step(beat)
		if leases() != 1 {
			t.Fatal("not extended each second")
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
	b.wantOutcome(nil, actuate.Undone)
	if leases() != 0 {
		t.Error("packets are held on after the undoing")
	}
}

func TestASlowLoopIsNoHangingOne(t *testing.T) {
	b := newBench(t)
	b.keeper = NewKeeper(b.kernel, b.clock, 30*time.Second)
	b.actuator = NewBuffering(b.kernel, b.keeper, b.store.SaveTaps, nil)
	b.wantOutcome(window(time.Millisecond), actuate.Applied)
	b.clock.Step(80 * time.Second)
	b.keeper.Beat()
	if b.lease != 1 {
		t.Error("a loop of 30 s counts as hanging after 80")
	}
}

func TestALeaseThatFailsIsReported(t *testing.T) {
	b := newBench(t)
	b.wantOutcome(window(time.Millisecond), actuate.Applied)
	b.leaseErr = errors.New("operation not permitted")
	b.keeper.Beat()
	if r := b.apply(window(time.Millisecond)); r.Outcome != actuate.Failed || !strings.Contains(r.Message, "have packets held: operation not permitted") {
		t.Errorf("%+v", r)
	}
	b.leaseErr = nil
	b.keeper.Beat()
	b.wantOutcome(window(time.Millisecond), actuate.Applied)
}
