package device

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/internal/agent/actuate"
	"github.com/joulevirt/joulevirt/internal/agent/sample"
	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/test/hosttest"
)

func TestMain(m *testing.M) { hosttest.Main(m) }

func TestPacketsAreHeldAsPlannedAndUndone(t *testing.T) {
	b := newBench(t)
	floods := &model.Buffering{FloodWindow: model.FloodWindow, OnPackets: 10_000}
	for _, want := range []*model.Buffering{window(time.Millisecond), window(500 * time.Microsecond), floods} {
		if r := b.apply(want); r.Outcome != actuate.Applied || r.Changed != 2 {
			t.Errorf("%+v: %+v", want, r)
		}
		b.wantOurs(2)
		if !b.tap0().as.Equal(*want) {
			t.Errorf("tap0 has %+v, want %+v", b.tap0().as, *want)
		}
		writes, saves := b.writes, b.store.saves
		if r := b.apply(want); r.Outcome != actuate.Applied || r.Changed != 0 || b.writes != writes || b.store.saves != saves {
			t.Errorf("again: %+v, %d writes, %d journals", r, b.writes-writes, b.store.saves-saves)
		}
	}
	if n := len(b.actuator.Pods()); n != 1 {
		t.Errorf("%d VMs are buffered", n)
	}
	b.wantOutcome(nil, actuate.Undone)
	b.wantOurs(0)
	writes := b.writes
	b.wantOutcome(nil, actuate.Undone)
	b.wantOutcome(&model.Buffering{OnPackets: 10_000}, actuate.Undone)
	if b.writes != writes {
		t.Errorf("%d writes after the undoing", b.writes-writes)
	}
}

func TestNothingIsHeldWithoutAJournal(t *testing.T) {
	b := newBench(t)
	b.store.fail = errors.New("disk full")
	results, err := b.actuator.Apply([]sample.VM{{VM: b.vm}}, planOf(window(time.Millisecond)))
	if err == nil || results[0].Outcome != actuate.Failed || b.writes != 0 {
		t.Errorf("outcome %s, error %v, %d writes", results[0].Outcome, err, b.writes)
	}
	b.store.fail = nil
	b.wantOutcome(window(time.Millisecond), actuate.Applied)
	b.store.fail = errors.New("disk full")
	if _, err := b.actuator.Apply([]sample.VM{{VM: b.vm}}, planOf(nil)); err == nil {
		t.Error("the journal's failure is not reported")
	}
	if b.tap0().queue != kernelsQueue || b.tap0().program {
		t.Error("what is buffered is not undone without a journal")
	}
}

func TestForeignQueuesAreLeftAlone(t *testing.T) {
	b := newBench(t)
	b.tap0().give(othersQueue)
	b.wantOutcome(window(time.Millisecond), actuate.Foreign)
	b.wantOurs(0)
	if b.tap0().queue != othersQueue || b.writes != 0 {
		t.Errorf("%s, %d writes", b.tap0().queue, b.writes)
	}
	b.tap0().give(kernelsQueue)
	b.wantOutcome(window(time.Millisecond), actuate.Applied)
	b.tap0().give(othersQueue)
	b.wantOutcome(window(time.Millisecond), actuate.Foreign)
	b.wantOurs(0) // nor is a program left beside it
	b = newBench(t)
	b.onBuffer = func(*tap) { b.tap0().give(othersQueue) } // after it was read
	b.wantOutcome(window(time.Millisecond), actuate.Foreign)
	b.onBuffer = nil
	b.wantOutcome(window(time.Millisecond), actuate.Foreign)
	b.wantOurs(0)
}

func TestWhoUndoesTwiceIsLeftInPeace(t *testing.T) {
	b := newBench(t)
	for _, outcome := range []actuate.Outcome{actuate.Applied, actuate.Applied, actuate.Contested, actuate.Contested} {
		b.wantOutcome(window(time.Millisecond), outcome)
		if outcome == actuate.Applied {
			b.wantOurs(2)
			b.tap0().give(kernelsQueue)
		}
	}
	b.wantOurs(0)
	b.wantOutcome(nil, actuate.Undone)
	b.wantOutcome(window(time.Millisecond), actuate.Applied)
}

// A tap is made anew whenever its VM's network is plugged again: that is no contest.
func TestATapThatWasMadeAnewIsBufferedAgain(t *testing.T) {
	b := newBench(t)
	for range 5 {
		b.wantOutcome(window(time.Millisecond), actuate.Applied)
		b.wantOurs(2)
		b.pods[b.vm.Process]["tap0"] = b.newTap()
	}
	b.wantOutcome(window(time.Millisecond), actuate.Applied)
	delete(b.pods[b.vm.Process], "tap0")
	b.wantOutcome(window(time.Millisecond), actuate.Applied)
	b.wantOurs(1)
}

// Nor is one that goes down and comes up, or what the agent undid for another tap's sake.
func TestWhatTheAgentUndidIsNoContest(t *testing.T) {
	b := newBench(t)
	for range 4 {
		b.wantOutcome(window(time.Millisecond), actuate.Applied)
		down := b.tap0()
		delete(b.pods[b.vm.Process], "tap0")
		b.wantOutcome(window(time.Millisecond), actuate.Applied)
		down.give(kernelsQueue)
		down.program = false
		b.pods[b.vm.Process]["tap0"] = down
		b.wantOutcome(window(time.Millisecond), actuate.Applied)
		plugged := b.newTap()
		plugged.give(othersQueue)
		b.pods[b.vm.Process]["tap2"] = plugged
		b.wantOutcome(window(time.Millisecond), actuate.Foreign)
		b.wantOurs(0)
		b.wantOutcome(window(time.Millisecond), actuate.Foreign)
		delete(b.pods[b.vm.Process], "tap2")
	}
	b.wantOutcome(window(time.Millisecond), actuate.Applied)
}

func TestWhatTheKernelCannotIsSaidAndSeldomTried(t *testing.T) {
	b := newBench(t)
	b.refuse = fmt.Errorf("the kernel has no fq: %w", host.ErrUnsupported)
	tries := 0
	b.onBuffer = func(*tap) { tries++ }
	for range 5 {
		if r := b.apply(window(time.Millisecond)); r.Outcome != actuate.Unsupported || !strings.Contains(r.Message, "no fq") || r.Changed != 0 {
			t.Errorf("%+v", r)
		}
	}
	b.wantOurs(0)
	if tries != 2 || b.writes != 0 {
		t.Errorf("tried %d times at two taps, %d writes", tries, b.writes)
	}
	saves := b.store.saves
	b.refuse = nil // a module was installed
	for range 20 {
		b.apply(window(time.Millisecond))
	}
	b.wantOurs(2)
	if saves == b.store.saves {
		t.Error("buffered without a journal")
	}
	clear(b.pods[b.vm.Process])
	b.wantOutcome(window(time.Millisecond), actuate.NoDevice)
	if len(b.store.taps) != 0 {
		t.Errorf("journal %v", b.store.taps)
	}
	b = newBench(t)
	b.reading = host.ErrUnsupported
	b.wantOutcome(window(time.Millisecond), actuate.Unsupported)
	b.wantOutcome(nil, actuate.Undone)
}

func TestAVMThatEnds(t *testing.T) {
	b := newBench(t)
	b.wantOutcome(window(time.Millisecond), actuate.Applied)
	delete(b.pods, b.vm.Process)
	b.wantOutcome(window(time.Millisecond), actuate.Gone)
	if len(b.store.taps) != 0 || len(b.actuator.Pods()) != 0 {
		t.Errorf("journal %v", b.store.taps)
	}
	b = newBench(t)
	b.wantOutcome(window(time.Millisecond), actuate.Applied)
	if _, err := b.actuator.Apply(nil, nil); err != nil {
		t.Error(err)
	}
	b.wantOurs(0)
}

func TestANewAgentTakesOver(t *testing.T) {
	b := newBench(t)
	b.wantOutcome(window(time.Millisecond), actuate.Applied)
	b.restart()
	b.keeper.Beat()
	if b.lease == 0 {
		t.Error("packets are not held on until the plan is known")
	}
	writes := b.writes
	b.wantOutcome(window(time.Millisecond), actuate.Applied)
	b.wantOurs(2)
	if b.writes != writes {
		t.Errorf("taking over took %d writes", b.writes-writes)
	}
	b.store.taps = nil // the journal is lost
	b.restart()
	b.wantOutcome(nil, actuate.Undone)
	b.wantOurs(0)
}

func TestRestoreTriesAgain(t *testing.T) {
	b := newBench(t)
	b.wantOutcome(window(time.Millisecond), actuate.Applied)
	b.restart()
	b.failing = 1
	if err := b.actuator.Restore(); !errors.Is(err, errKilled) || !strings.Contains(err.Error(), "taps are still buffered: run") {
		t.Errorf("restoring: %v, want the kernel's error", err)
	}
	b.failing = -1
	if err := b.actuator.Restore(); err != nil {
		t.Error(err)
	}
	b.wantOurs(0)
}

func TestWhatIsAsWantedIsSeldomRead(t *testing.T) {
	b := newBench(t)
	b.wantOutcome(window(time.Millisecond), actuate.Applied)
	b.wantOutcome(window(time.Millisecond), actuate.Applied) // read once more
	reads, later := b.reads, readInterval/10
	for range 20 {
		b.now += later - readInterval // which apply adds
		b.wantOutcome(window(time.Millisecond), actuate.Applied)
	}
	if n := b.reads - reads; n < 2 || n > 4 {
		t.Errorf("%d reads in two intervals", n)
	}
}
