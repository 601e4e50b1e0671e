package agent

import (
	"fmt"
	"slices"
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

// noon is 12:02, where a slot begins that is the second of a stratum of four.
func noon() time.Time { return time.Date(2026, 3, 1, 12, 2, 0, 0, time.UTC) }

// trialOf has slots of two minutes, of which the third and the fourth from noon are off, and one in
// the half hour after.
func trialOf(lever v1alpha1.Lever, change func(*v1alpha1.TrialSchedule)) v1alpha1.TrialSchedule {
	trial := v1alpha1.TrialSchedule{Lever: lever, SlotLength: metav1.Duration{Duration: 2 * time.Minute}, OneIn: 4}
	trial.Seed = seedOf(&trial, 2, 3, 10)
	if change != nil {
		change(&trial)
	}
	return trial
}

// seedOf finds a seed by which these of the eleven slots from noon on are off, and no others, and
// neither the two before nor the one in an hour.
func seedOf(trial *v1alpha1.TrialSchedule, off ...int64) int64 {
	s := model.Schedule{Slot: trial.SlotLength.Duration, OneIn: int(trial.OneIn)}
	first := s.SlotAt(noon())
	for s.Seed = 1; ; s.Seed++ {
		fits := s.IsOn(first-1) && s.At(noon().Add(-time.Minute-time.Second)).On && s.At(noon().Add(time.Hour)).On
		for slot := range int64(11) {
			fits = fits && s.IsOn(first+slot) != slices.Contains(off, slot)
		}
		if fits {
			return s.Seed
		}
	}
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

// is says what was done of a lever: on or off, and for how long.
func (f *follower) is(lever v1alpha1.Lever) string {
	for _, s := range f.list() {
		if s.Lever == lever {
			word := map[bool]string{true: "on", false: "off"}[s.On]
			return fmt.Sprintf("%s %v", word, f.now.Sub(s.Since))
		}
	}
	return ""
}

func TestAPlanThatIsReplacedInASlot(t *testing.T) {
	for name, step := range map[string]struct {
		off  []int64
		want string
	}{
		"drawn alike":          {[]int64{2, 3, 10}, "off 10s"},
		"another, off too":     {[]int64{2, 4, 10}, "off 10s"},
		"another, which is on": {[]int64{1, 3, 10}, "on 0s"},
	} {
		f := newFollower(4*time.Minute - time.Second)
		for range 2 {
			f.round(scheduleOfTrial(t, trialOf(v1alpha1.LeverAffinity, nil)))
			f.pass(10 * time.Second) // into the third slot, which is off
		}
		f.round(scheduleOfTrial(t, trialOf(v1alpha1.LeverAffinity, func(s *v1alpha1.TrialSchedule) { s.Seed = seedOf(s, step.off...) })))
		if got := f.is(v1alpha1.LeverAffinity); got != step.want {
			t.Errorf("%s: %s, want %s", name, got, step.want)
		}
	}
}

// A clock that is set shows another slot. The lever goes there, but no more often than
// once a minute, and since when it is so stays true.
func TestClocksThatJump(t *testing.T) {
	affinity := scheduleOfTrial(t, trialOf(v1alpha1.LeverAffinity, nil))
	f := newFollower(3 * time.Minute)
	f.round(affinity)
	for _, step := range []struct {
		set, pass time.Duration
		want      string
	}{
		{0, 10 * time.Second, "on 10s"},
		{2 * time.Minute, time.Second, "off 0s"},   // forth: at once
		{0, 10 * time.Second, "off 10s"},           //
		{-3 * time.Minute, time.Second, "off 11s"}, // back: not so soon, and it is reported
		{0, 46 * time.Second, "off 57s"},           //
		{0, time.Second, "on 0s"},                  // it goes there, a minute later
		{time.Second, time.Second, "on 2s"},        // slewed, not set
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
	slice := scheduleOfTrial(t, trialOf(v1alpha1.LeverSlice, func(s *v1alpha1.TrialSchedule) { s.SlotLength.Duration = 61 * time.Minute }))
	f.round(affinity, slice)
	for after, want := range map[time.Duration]time.Duration{-time.Minute: time.Minute, 0: 2 * time.Minute, 100 * time.Second: 20 * time.Second} {
		if wait, is := f.next(noon().Add(after)); !is || wait != want {
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
	affinity := scheduleOfTrial(t, trialOf(v1alpha1.LeverAffinity, nil))
	now := time.Now()
	seedFor := func(on bool) {
		for affinity.At(now).On != on {
			affinity.Seed++
		}
	}
	s := switches{}
	seedFor(true)
	s.follow([]model.Schedule{affinity}, now, 0, logr.Discard())
	begun := s.list()[0]
	seedFor(false)
	s.follow([]model.Schedule{affinity}, now, time.Hour, logr.Discard())
	for _, one := range []model.Switch{begun, s.list()[0]} {
		if one.Since != one.Since.Round(0) {
			t.Errorf("on: %t, since %v", one.On, one.Since)
		}
	}
	if was := s.list()[0]; begun.On == was.On {
		t.Errorf("%+v was not switched", was)
	}
}

// A lever is switched when its slot begins, however long it is to the next round.
func TestRealSlotsBeginOnTime(t *testing.T) {
	b := newBench(t)
	b.interval = time.Hour
	stop := b.start()
	defer stop()
	b.want("the pin before the schedule", b.one)
	var begins time.Time
	b.cluster.change(func() {
		b.cluster.plan = b.cluster.plan.DeepCopy()
		// Slots are long, so that the test sees the one that begins soon, and is off.
		s := model.Schedule{Slot: 10 * time.Minute, OneIn: 100}
		soon := time.Now().Add(time.Second)
		for s.Next(soon).Sub(soon) > time.Second {
			s.Slot += time.Millisecond
		}
		begins = s.Next(soon)
		for slot := s.SlotAt(begins); s.IsOn(slot) || !s.IsOn(slot-1); {
			s.Seed++
		}
		b.cluster.plan.Spec.Trials = []v1alpha1.TrialSchedule{{
			Lever: v1alpha1.LeverAffinity, SlotLength: metav1.Duration{Duration: s.Slot}, OneIn: int32(s.OneIn), Seed: s.Seed,
		}}
	})
	b.want("the pin to go with the slot", b.both())
	if time.Now().Before(begins) {
		t.Error("the pin went before its slot began")
	}
}
