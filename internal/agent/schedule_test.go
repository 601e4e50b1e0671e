package agent

import (
	"fmt"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/plan"
)

func noon() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }

// trialOf is on in blocks 0, 1, 4 and 5 of six of two minutes each, and on otherwise.
func trialOf(lever v1alpha1.Lever, change func(*v1alpha1.TrialSchedule)) v1alpha1.TrialSchedule {
	trial := v1alpha1.TrialSchedule{
		Lever: lever, Seed: 7, Start: metav1.Time{Time: noon()},
		BlockLength: metav1.Duration{Duration: 2 * time.Minute}, WashOut: metav1.Duration{Duration: 30 * time.Second},
		Blocks: 6, OffBlocks: []int32{2, 3}, Otherwise: true,
	}
	if change != nil {
		change(&trial)
	}
	return trial
}

func scheduleOfTrial(t *testing.T, trial v1alpha1.TrialSchedule) model.Schedule {
	t.Helper()
	decoded, _ := plan.Decode(&v1alpha1.NodePlanSpec{Trials: []v1alpha1.TrialSchedule{trial}})
	return decoded.Schedules[0]
}

// follower follows schedules by two clocks that a test sets.
type follower struct {
	switches
	now  time.Time
	mono time.Duration
}

func newFollower(after time.Duration) *follower {
	return &follower{switches: switches{}, now: noon().Add(after), mono: time.Hour}
}

// pass lets time go by.
func (f *follower) pass(d time.Duration) { f.now, f.mono = f.now.Add(d), f.mono+d }

func (f *follower) round(schedules ...model.Schedule) {
	f.follow(schedules, f.now, f.mono, logr.Discard())
}

// is says what was done of a lever: block, on or off, and for how long.
func (f *follower) is(lever v1alpha1.Lever) string {
	for _, s := range f.list() {
		if s.Lever == lever {
			word := map[bool]string{true: "on", false: "off"}[s.On]
			return fmt.Sprintf("%d %s %v", s.Block, word, f.now.Sub(s.Since))
		}
	}
	return ""
}

func TestAPlanThatIsReplacedInABlock(t *testing.T) {
	for name, step := range map[string]struct {
		change func(*v1alpha1.TrialSchedule)
		want   string
	}{
		"drawn alike":          {func(*v1alpha1.TrialSchedule) {}, "2 off 10s"},
		"another, off too":     {func(s *v1alpha1.TrialSchedule) { s.Seed++ }, "2 off 10s"},
		"another, which is on": {func(s *v1alpha1.TrialSchedule) { s.OffBlocks = nil }, "2 on 0s"},
		"one that is over":     {func(s *v1alpha1.TrialSchedule) { s.Start.Time = noon().Add(-time.Hour) }, "-1 on 0s"},
		"one that is to come":  {func(s *v1alpha1.TrialSchedule) { s.Start.Time = noon().Add(time.Hour) }, "-1 on 0s"},
	} {
		f := newFollower(4*time.Minute - time.Second)
		for range 2 {
			f.round(scheduleOfTrial(t, trialOf(v1alpha1.LeverAffinity, nil)))
			f.pass(10 * time.Second) // into block 2, which is off
		}
		f.round(scheduleOfTrial(t, trialOf(v1alpha1.LeverAffinity, step.change)))
		if got := f.is(v1alpha1.LeverAffinity); got != step.want {
			t.Errorf("%s: %s, want %s", name, got, step.want)
		}
	}
}

// A clock that is set shows another block. The lever goes there, but no more often than
// once a minute, and since when it is so stays true.
func TestClocksThatJump(t *testing.T) {
	affinity := scheduleOfTrial(t, trialOf(v1alpha1.LeverAffinity, nil))
	f := newFollower(3 * time.Minute)
	f.round(affinity)
	for _, step := range []struct {
		set, pass time.Duration
		want      string
	}{
		{0, 10 * time.Second, "1 on 10s"},
		{2 * time.Minute, time.Second, "2 off 0s"},      // forth: at once
		{0, 10 * time.Second, "2 off 10s"},              //
		{-3 * time.Minute, time.Second, "1 off 11s"},    // back: not so soon, and it is reported
		{0, 46 * time.Second, "1 off 57s"},              //
		{0, time.Second, "1 on 0s"},                     // it goes there, a minute later
		{-24 * time.Hour, time.Second, "-1 on 1s"},      // the same, and as long
		{24 * time.Hour, time.Second, "1 on 2s"},        //
		{-time.Hour, time.Second, "-1 on 3s"},           //
		{time.Hour, 56 * time.Second, "2 off 0s"},       //
		{time.Second, time.Second, "2 off 2s"},          // slewed, not set
		{100 * time.Hour, 59 * time.Second, "-1 on 0s"}, // after the last block
	} {
		f.now = f.now.Add(step.set)
		f.pass(step.pass)
		f.round(affinity)
		if got := f.is(v1alpha1.LeverAffinity); got != step.want {
			t.Errorf("set by %v, %v later: %s, want %s", step.set, step.pass, got, step.want)
		}
	}
	flips, was := 0, f.list()[0].On
	for i := range 3600 {
		f.now = noon().Add(time.Duration(i%7) * 2 * time.Minute)
		f.mono += time.Second
		f.round(affinity)
		if on := f.list()[0].On; on != was {
			flips, was = flips+1, on
		}
	}
	if flips < 30 || flips > 3600/58 {
		t.Errorf("switched %d times in an hour by a clock that jumps each second", flips)
	}
}

func TestTheNextBoundary(t *testing.T) {
	f := newFollower(-time.Minute)
	if _, is := f.next(f.now); is {
		t.Error("a boundary without a schedule")
	}
	affinity := scheduleOfTrial(t, trialOf(v1alpha1.LeverAffinity, nil))
	slice := scheduleOfTrial(t, trialOf(v1alpha1.LeverSlice, func(s *v1alpha1.TrialSchedule) { s.Start.Time = noon().Add(90 * time.Second) }))
	f.round(affinity, slice)
	for after, want := range map[time.Duration]time.Duration{
		-time.Minute: time.Minute, 0: 90 * time.Second, 100 * time.Second: 20 * time.Second, 12 * time.Minute: 90 * time.Second, 14 * time.Minute: -1,
	} {
		wait, is := f.next(noon().Add(after))
		if is != (want >= 0) || is && wait != want {
			t.Errorf("at %v: %v, %v, want %v", after, wait, is, want)
		}
	}
}

// everything is a plan of one VM that all levers act on, and of one that buffering acts on
// but for floods.
func everything(trials ...v1alpha1.TrialSchedule) *v1alpha1.NodePlan {
	return planOf("2-3", func(p *v1alpha1.NodePlan) {
		window, flood := int32(1000), int32(500)
		p.UID, p.Spec.Trials = "plan", trials
		p.Spec.VMs[1].SliceMicroseconds = ptr.To(int32(3000))
		p.Spec.VMs[1].Shaping = turnAction()
		p.Spec.VMs[1].Buffering = &v1alpha1.BufferingAction{WindowMicroseconds: &window, FloodWindowMicroseconds: &flood, OnPacketsPerSecond: 9}
		p.Spec.VMs[0].Buffering = &v1alpha1.BufferingAction{WindowMicroseconds: &window, OnPacketsPerSecond: 9}
	})
}

// A lever that is off does nothing, and stays in the plan. What the owner asked for stays: the
// ceiling, of which turns are no part, and the defence against floods.
func TestALeverThatIsOffDoesNothing(t *testing.T) {
	plan, ceiling := everything(), int64(40e6)
	plan.Spec.VMs[1].Shaping.CeilingBitsPerSecond = &ceiling
	for _, off := range []v1alpha1.Lever{"", v1alpha1.LeverAffinity, v1alpha1.LeverSlice, v1alpha1.LeverShaping, v1alpha1.LeverBuffering} {
		o := ordersOf(plan, false)
		o.switched[off] = switching{}
		pins, pinned := o.pins("pod")
		slice, sliced := o.slice("pod")
		shaping, shaped := o.shaping("pod")
		buffering, buffered := o.buffering("pod")
		other, _ := o.buffering("other")
		if !pinned || !sliced || !shaped || !buffered {
			t.Errorf("%s off: a lever left the plan", off)
		}
		got := []bool{!pins.IsZero(), slice > 0, shaping.Turn != nil, buffering.Window > 0, other.Window > 0}
		is := func(lever v1alpha1.Lever) bool { return lever != off }
		want := []bool{
			is(v1alpha1.LeverAffinity), is(v1alpha1.LeverSlice), is(v1alpha1.LeverShaping), is(v1alpha1.LeverBuffering), is(v1alpha1.LeverBuffering),
		}
		if diff := cmp.Diff(want, got); diff != "" || shaping.Ceiling != 40e6 || buffering.FloodWindow != 500*time.Microsecond {
			t.Errorf("%s off: ceiling %v, flood window %v (-want +got):\n%s", off, shaping.Ceiling, buffering.FloodWindow, diff)
		}
	}
}

// Times that Go's clock gives are compared by its monotonic reading, as which no clock was
// ever set: none may be kept with it.
func TestSinceIsByTheWallClockAlone(t *testing.T) {
	affinity := scheduleOfTrial(t, trialOf(v1alpha1.LeverAffinity, func(s *v1alpha1.TrialSchedule) {
		s.Start.Time, s.Otherwise = time.Now().Add(time.Hour), true
	}))
	s := switches{}
	s.follow([]model.Schedule{affinity}, time.Now(), 0, logr.Discard())
	begun := s.list()[0]
	affinity.Otherwise = false
	s.follow([]model.Schedule{affinity}, time.Now(), time.Hour, logr.Discard())
	for _, one := range []model.Switch{begun, s.list()[0]} {
		if one.Since != one.Since.Round(0) {
			t.Errorf("on: %t, since %v", one.On, one.Since)
		}
	}
	if was := s.list()[0]; begun.On == was.On {
		t.Errorf("%+v was not switched", was)
	}
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
