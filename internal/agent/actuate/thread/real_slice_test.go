package thread_test

import (
	"errors"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/joulevirt/joulevirt/internal/agent/actuate"
	"github.com/joulevirt/joulevirt/internal/agent/actuate/slice"
	"github.com/joulevirt/joulevirt/internal/agent/discover"
	"github.com/joulevirt/joulevirt/internal/agent/sample"
	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/test/hosttest"
)

// sliceBench is an actuator on real threads.
type sliceBench struct {
	*realAgent
	t        *testing.T
	actuator *slice.Actuator
}

// newSliceBench returns nil on a kernel without slices, after it has checked that the
// lever says so and does nothing.
func newSliceBench(t *testing.T) *sliceBench {
	b := &sliceBench{realAgent: newRealAgent(t), t: t}
	b.start()
	if _, err := b.Host.Slice(b.VCPU); errors.Is(err, host.ErrUnsupported) {
		r := b.apply(time.Millisecond)
		if r.Outcome != actuate.Unsupported || r.Changed != 0 || len(b.Journal.Content().Slices) != 0 {
			t.Errorf("outcome %s with %d writes, journal %v", r.Outcome, r.Changed, b.Journal.Content().Slices)
		}
		b.wantOutcome(0, actuate.Undone)
		return nil
	}
	return b
}

// start is the start of an agent, from what is on disk.
func (b *sliceBench) start() {
	b.t.Helper()
	b.load()
	b.actuator = slice.New(b.Host, b.Journal.SaveSlices, b.Journal.Content().Slices)
}

const (
	// off is a slice that is planned, and off for a time.
	off = -1
	// readsSlices is after how many rounds slices are read again that were in order.
	readsSlices = 10
)

// apply follows a plan that gives the VM a slice, or none.
func (b *sliceBench) apply(want time.Duration) slice.Result {
	b.t.Helper()
	vm := sample.VM{VM: discover.VM{Process: b.Process.ID(), PodUID: "pod", Namespace: "shop", Name: "web"}, Sample: b.sample()}
	results, err := b.actuator.Apply([]sample.VM{vm}, func(string) (time.Duration, bool) { return max(want, 0), want != 0 })
	if err != nil {
		b.t.Fatal(err)
	}
	return results[0]
}

func (b *sliceBench) wantOutcome(slice time.Duration, want actuate.Outcome) {
	b.t.Helper()
	if got := b.apply(slice); got.Outcome != want {
		b.t.Errorf("outcome %s (%s), want %s", got.Outcome, got.Message, want)
	}
}

// set gives the VM a slice.
func (b *sliceBench) set(slice time.Duration) {
	b.t.Helper()
	b.settle(slice, actuate.Applied)
}

// settle follows a plan until a round changes nothing: a thread that is created in one round
// is found in the next.
func (b *sliceBench) settle(slice time.Duration, want actuate.Outcome) {
	b.t.Helper()
	hosttest.Eventually(b.t, "a round without changes", func() bool {
		r := b.apply(slice)
		if r.Outcome != want {
			b.t.Fatalf("outcome %s (%s), want %s", r.Outcome, r.Message, want)
		}
		return r.Changed == 0
	})
}

// wantAll checks that all threads have a slice.
func (b *sliceBench) wantAll(slice time.Duration) {
	b.t.Helper()
	for _, s := range b.sample().Threads {
		b.want(s.ID, slice)
	}
}

func (b *sliceBench) want(id host.TaskID, slice time.Duration) {
	b.t.Helper()
	got, err := b.Host.Slice(id)
	if errors.Is(err, host.ErrGone) {
		return
	}
	if err != nil || got != slice {
		b.t.Errorf("thread %d has slice %v (%v), want %v", id.TID, got, err, slice)
	}
}

func TestRealSlicesAreSetAndUndone(t *testing.T) {
	b := newSliceBench(t)
	if b == nil {
		return
	}
	b.set(500 * time.Microsecond)
	b.wantAll(500 * time.Microsecond)
	if r := b.apply(500 * time.Microsecond); r.Outcome != actuate.Applied || r.Changed != 0 || len(r.Held) == 0 {
		t.Errorf("applying again: %+v", r)
	}
	b.settle(off, actuate.Undone)
	b.wantAll(0)
	b.set(20 * time.Millisecond)
	b.wantAll(20 * time.Millisecond)
	b.settle(0, actuate.Undone)
	b.wantAll(0)
	if held := b.Journal.Content().Slices; len(held) != 0 {
		t.Errorf("the journal still holds %v", held)
	}
}

// TestRealSlicesOfAnAgentKilledBeforeItsWrites: what it was about to give is given by the next one at
// once, and not taken for given.
func TestRealSlicesOfAnAgentKilledBeforeItsWrites(t *testing.T) {
	b := newSliceBench(t)
	if b == nil {
		return
	}
	b.set(time.Millisecond)
	for _, s := range b.sample().Threads {
		if err := b.Host.SetSlice(s.ID, 0); err != nil && !errors.Is(err, host.ErrGone) {
			t.Fatal(err)
		}
	}
	b.kill()
	b.start()
	b.set(time.Millisecond)
	b.wantAll(time.Millisecond)
}

func TestRealSlicesOfAKilledAgent(t *testing.T) {
	b := newSliceBench(t)
	if b == nil {
		return
	}
	b.set(time.Millisecond)
	b.kill()
	orphan := b.Process.Thread("worker") // created while no agent runs
	b.start()
	if r := b.apply(time.Millisecond); r.Outcome != actuate.Applied || r.Changed != 0 {
		t.Errorf("outcome %s with %d writes, want Applied without any", r.Outcome, r.Changed)
	}
	b.kill()
	b.start()
	if err := b.actuator.Restore(); err != nil {
		t.Fatal(err)
	}
	b.want(orphan, 0)
	b.wantAll(0)
	if err := b.actuator.Restore(); err != nil || len(b.Journal.Content().Slices) != 0 {
		t.Errorf("restoring again: %v, journal %v", err, b.Journal.Content().Slices)
	}
}

func TestRealContestedSlices(t *testing.T) {
	b := newSliceBench(t)
	if b == nil {
		return
	}
	b.set(time.Millisecond)
	for range 2 {
		if err := b.Host.SetSlice(b.VCPU, 9*time.Millisecond); err != nil {
			t.Fatal(err)
		}
		for range readsSlices {
			b.apply(time.Millisecond)
		}
	}
	b.wantOutcome(time.Millisecond, actuate.Contested)
	b.want(b.VCPU, 9*time.Millisecond)
	b.want(b.Process.ID(), 0)
	b.wantOutcome(off, actuate.Contested) // and is so when the lever is on again
	b.wantOutcome(time.Millisecond, actuate.Contested)
	b.wantOutcome(0, actuate.Undone)
	b.set(time.Millisecond) // a new plan is a new chance
}

func TestRealRealTimeThreadKeepsTheVMAsItIs(t *testing.T) {
	b := newSliceBench(t)
	if b == nil {
		return
	}
	attr := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 1}
	if err := unix.SchedSetAttr(b.VCPU.TID, &attr, 0); err != nil {
		t.Fatal(err)
	}
	b.wantOutcome(time.Millisecond, actuate.Unsupported)
	b.want(b.Process.ID(), 0)
	b.wantOutcome(0, actuate.Undone)

	t.Run("also when it becomes one later", func(t *testing.T) {
		b.VCPU = b.Process.Thread("CPU 1/TCG")
		b.Process.EndThread("CPU 0/TCG")
		hosttest.Eventually(t, "the slices to be set", func() bool { return b.apply(time.Millisecond).Outcome == actuate.Applied })
		if err := unix.SchedSetAttr(b.VCPU.TID, &attr, 0); err != nil {
			t.Fatal(err)
		}
		for rounds := 1; b.apply(time.Millisecond).Outcome != actuate.Unsupported; rounds++ {
			if rounds > readsSlices {
				t.Fatal("not noticed")
			}
		}
		for range 2 * readsSlices { // it does not come and go with the rounds
			b.wantOutcome(time.Millisecond, actuate.Unsupported)
		}
		b.wantOutcome(0, actuate.Undone)
		b.want(b.Process.ID(), 0)
		b.kill()
		b.start()
		if err := b.actuator.Restore(); err == nil || len(b.Journal.Content().Slices) != 1 {
			t.Errorf("restored with %v, the journal holds %v: the kernel remembers the slice", err, b.Journal.Content().Slices)
		}
		beOrdinary(t, b.VCPU)
		b.want(b.VCPU, time.Millisecond)
		if err := b.actuator.Restore(); err != nil || len(b.Journal.Content().Slices) != 0 {
			t.Errorf("restored with %v, the journal holds %v", err, b.Journal.Content().Slices)
		}
		b.want(b.VCPU, 0)
		b.set(time.Millisecond)
		b.settle(0, actuate.Undone)
	})
}

// beOrdinary ends a thread's being real-time by the call that knows nothing of slices,
// with which the kernel gives it the one back that it had.
func beOrdinary(t *testing.T, thread host.TaskID) {
	t.Helper()
	var priority int32
	//nolint:gosec // the package has no call of it
	_, _, err := unix.Syscall(unix.SYS_SCHED_SETSCHEDULER, uintptr(thread.TID), unix.SCHED_NORMAL, uintptr(unsafe.Pointer(&priority)))
	if err != 0 {
		t.Fatal(err)
	}
}
