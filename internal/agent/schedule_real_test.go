package agent

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/host/hosttest"
	"github.com/joulevirt/joulevirt/internal/host/linux"
)

// timed is a host whose CLOCK_MONOTONIC a test sets.
type timed struct {
	*linux.Host
	monotonic func() (time.Duration, error)
}

// Monotonic implements host.Host.
func (t timed) Monotonic() (time.Duration, error) { return t.monotonic() }

// minutes is a trial of blocks of a minute from noon on.
func minutes(lever v1alpha1.Lever, off ...int32) v1alpha1.TrialSchedule {
	return trialOf(lever, func(s *v1alpha1.TrialSchedule) { s.BlockLength.Duration, s.OffBlocks = time.Minute, off })
}

// Real threads are bound and unbound by two schedules, also by an agent that comes after
// one that was killed in another block.
func TestRealThreadsFollowSchedules(t *testing.T) {
	b := newBench(t)
	fake := clocktesting.NewFakeClock(noon().Add(30 * time.Second))
	b.clock, b.cluster.renewed = fake, fake.Now()
	b.monotonic = func() (time.Duration, error) { return fake.Now().Sub(noon()), nil }
	sliced := hasSlices(t)
	wantSlice := func(what string, slice time.Duration) {
		t.Helper()
		if sliced {
			b.wantSlice(what, slice)
		}
	}
	plan := &b.cluster.plan.Spec
	plan.VMs[0].Slice = &v1alpha1.SliceAction{Microseconds: 3000}
	plan.Trials = []v1alpha1.TrialSchedule{minutes(v1alpha1.LeverAffinity, 1, 3), minutes(v1alpha1.LeverSlice, 2, 3)}
	stop := b.start()
	defer func() { stop() }()
	b.want("the pin in block 0", b.one)
	wantSlice("the slice in block 0", 3*time.Millisecond)
	b.wantApplied(metav1.ConditionTrue, v1alpha1.ReasonApplied)

	b.crash(stop)
	if sliced {
		if err := b.host.SetSlice(b.vcpu, 3*time.Millisecond); err != nil {
			t.Fatal(err)
		}
	}
	fake.Step(time.Minute)
	stop = b.start()
	b.want("the pin of an agent that was killed to go, in block 1", b.both())
	wantSlice("the slice in block 1", 3*time.Millisecond)
	fake.Step(time.Minute)
	b.want("the pin in block 2", b.one)
	wantSlice("the slice to go, in block 2", 0)
	fake.Step(time.Minute)
	b.want("the pin to go, in block 3", b.both())
	hosttest.Eventually(t, "block 3 to be told", func() bool {
		fake.Step(time.Second)
		switches := b.board.Latest().Rates.Switches
		return len(switches) == 2 && switches[0].Block == 3 && !switches[0].On && !switches[1].On
	})
	b.wantApplied(metav1.ConditionTrue, v1alpha1.ReasonApplied)
	b.cluster.change(func() {
		b.cluster.plan = b.cluster.plan.DeepCopy()
		b.cluster.plan.Spec.Trials = nil
	})
	b.want("the pin without a trial", b.one)
	wantSlice("the slice without a trial", 3*time.Millisecond)
	stop()
	b.want("the pin to go with the agent", b.both())
	wantSlice("the slice to go with the agent", 0)
}

// A lever is switched when its block begins, however long it is to the next round.
func TestRealBlocksBeginOnTime(t *testing.T) {
	b := newBench(t)
	b.interval = time.Hour
	stop := b.start()
	defer stop()
	b.want("the pin before the first block", b.one)
	var begins time.Time
	b.cluster.change(func() {
		begins = time.Now().Add(2 * time.Second)
		b.cluster.plan = b.cluster.plan.DeepCopy()
		b.cluster.plan.Spec.Trials = []v1alpha1.TrialSchedule{trialOf(v1alpha1.LeverAffinity, func(s *v1alpha1.TrialSchedule) { s.Start.Time, s.OffBlocks = begins, []int32{0} })}
	})
	b.want("the pin to go with the first block", b.both())
	if time.Now().Before(begins) {
		t.Error("the pin went before its block began")
	}
}
