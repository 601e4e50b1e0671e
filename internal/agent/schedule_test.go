package agent

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
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
	s, err := scheduleOf(&trial)
	if err != nil {
		t.Fatal(err)
	}
	return s
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
	for _, s := range f.tell() {
		if s.Lever == model.Lever(lever) {
			word := map[bool]string{true: "on", false: "off"}[s.On]
			return fmt.Sprintf("%d %s %v", s.Block, word, f.now.Sub(s.Since))
		}
	}
	return ""
}

func TestLeversFollowTheirSchedule(t *testing.T) {
	affinity := scheduleOfTrial(t, trialOf(v1alpha1.LeverAffinity, nil))
	slice := scheduleOfTrial(t, trialOf(v1alpha1.LeverSlice, func(s *v1alpha1.TrialSchedule) {
		s.OffBlocks, s.Otherwise, s.Start.Time, s.Seed = []int32{0}, false, noon().Add(time.Minute), 8
	}))
	f := newFollower(-time.Minute)
	for _, step := range []struct {
		pass            time.Duration
		affinity, slice string
	}{
		{0, "-1 on 0s", "-1 off 0s"},
		{time.Minute, "0 on 1m0s", "-1 off 1m0s"},
		{time.Minute, "0 on 2m0s", "0 off 2m0s"},
		{2 * time.Minute, "1 on 4m0s", "1 on 0s"},
		{time.Minute - time.Second, "1 on 4m59s", "1 on 59s"},
		{time.Second, "2 off 0s", "1 on 1m0s"},
		{2 * time.Minute, "3 off 2m0s", "2 on 3m0s"},
		{2 * time.Minute, "4 on 0s", "3 on 5m0s"},
		{4 * time.Minute, "-1 on 4m0s", "5 on 9m0s"},
		{time.Minute, "-1 on 5m0s", "-1 off 0s"},
		{100 * time.Hour, "-1 on 100h5m0s", "-1 off 100h0m0s"},
	} {
		f.pass(step.pass)
		f.round(affinity, slice)
		if got := [2]string{f.is(v1alpha1.LeverAffinity), f.is(v1alpha1.LeverSlice)}; got != [2]string{step.affinity, step.slice} {
			t.Errorf("at %v: %q, want %q and %q", f.now.Sub(noon()), got, step.affinity, step.slice)
		}
	}
	want := model.Switch{Lever: model.LeverAffinity, Seed: 7, Start: noon(), Block: -1, On: true, Since: noon().Add(8 * time.Minute)}
	if diff := cmp.Diff(want, f.tell()[0]); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	f.round(slice)
	if f.is(v1alpha1.LeverAffinity) != "" || len(f.tell()) != 1 {
		t.Errorf("a trial that is over is followed: %+v", f.tell())
	}
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

// A clock that is set tells another block. The lever goes there, but no more often than
// once a minute, and what is told of since when it is so stays true.
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
		{-3 * time.Minute, time.Second, "1 off 11s"},    // back: not so soon, and it is told
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
	flips, was := 0, f.tell()[0].On
	for i := range 3600 {
		f.now = noon().Add(time.Duration(i%7) * 2 * time.Minute)
		f.mono += time.Second
		f.round(affinity)
		if on := f.tell()[0].On; on != was {
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
		p.Spec.VMs[1].Slice = &v1alpha1.SliceAction{Microseconds: 3000}
		p.Spec.VMs[1].Shaping = turnAction()
		p.Spec.VMs[1].Buffering = &v1alpha1.BufferingAction{WindowMicroseconds: &window, FloodWindowMicroseconds: &flood, OnPacketsPerSecond: 9}
		p.Spec.VMs[0].Buffering = &v1alpha1.BufferingAction{WindowMicroseconds: &window, OnPacketsPerSecond: 9}
	})
}

// acting are the levers that do something by the orders.
func (o *orders) acting() string {
	var levers []string
	for uid, pins := range o.pins {
		if len(pins.VCPUs) > 0 || !pins.Emulator.IsEmpty() {
			levers = append(levers, "pins of "+uid)
		}
	}
	for uid, slice := range o.slices {
		if slice > 0 {
			levers = append(levers, "slice of "+uid)
		}
	}
	for uid, s := range o.shaping {
		if !s.IsZero() {
			levers = append(levers, "shaping of "+uid)
		}
	}
	for _, uid := range []string{"other", "pod"} {
		if b := o.buffering[uid]; !b.IsZero() {
			levers = append(levers, fmt.Sprintf("buffering of %s %v/%v", uid, b.Window, b.FloodWindow))
		}
	}
	return strings.Join(levers, ", ")
}

func TestALeverThatIsOffDoesNothing(t *testing.T) {
	const pins, slice, shaping = "pins of pod", "slice of pod", "shaping of pod"
	const buffering = "buffering of other 1ms/0s, buffering of pod 1ms/500µs"
	join := func(parts ...string) string { return strings.Join(parts, ", ") }
	for lever, want := range map[v1alpha1.Lever]string{
		v1alpha1.LeverAffinity:  join(slice, shaping, buffering),
		v1alpha1.LeverSlice:     join(pins, shaping, buffering),
		v1alpha1.LeverShaping:   join(pins, slice, buffering),
		v1alpha1.LeverBuffering: join(pins, slice, shaping, "buffering of pod 0s/500µs"),
	} {
		plan := everything()
		o := ordersOf(plan, false)
		if got := o.acting(); got != join(pins, slice, shaping, buffering) {
			t.Fatalf("without a trial: %s", got)
		}
		o.switchOff(lever)
		if got := o.acting(); got != want {
			t.Errorf("%s off: %s, want %s", lever, got, want)
		}
		if len(o.refused) != 0 || len(o.pins)*len(o.slices)*len(o.shaping) != 1 || len(o.buffering) != 2 {
			t.Errorf("%s off: orders %+v", lever, o)
		}
	}
}

// What its owner asked for stays while a lever is off, also by a trial that makes no sense:
// the ceiling, of which turns are no part. Of floods the test above tells.
func TestCeilingsStayWhileTurnsAreOff(t *testing.T) {
	const ceiling = 40e6
	plan := func(change func(*v1alpha1.TrialSchedule)) *v1alpha1.NodePlan {
		plan, bits := everything(trialOf(v1alpha1.LeverShaping, change)), int64(ceiling)
		plan.Spec.VMs[1].Shaping.CeilingBitsPerSecond = &bits
		return plan
	}
	want := map[string]model.Shaping{"pod": {Ceiling: ceiling}}
	off := ordersOf(plan(nil), false)
	if off.shaping["pod"].Turn == nil {
		t.Fatalf("orders %+v", off.shaping)
	}
	off.switchOff(v1alpha1.LeverShaping)
	if diff := cmp.Diff(want, off.shaping); diff != "" {
		t.Errorf("off (-want +got):\n%s", diff)
	}
	bad := ordersOf(plan(func(s *v1alpha1.TrialSchedule) { s.Blocks = 0 }), false)
	if diff := cmp.Diff(want, bad.shaping); diff != "" || bad.badTrial == "" {
		t.Errorf("a trial that makes no sense, %q (-want +got):\n%s", bad.badTrial, diff)
	}
}

// With a trial that makes no sense the lever stays off, and the status says which field
// is wrong. Nothing else is the matter with the plan.
func TestTrialsThatMakeNoSense(t *testing.T) {
	good := trialOf(v1alpha1.LeverSlice, nil)
	for name, test := range map[string]struct {
		change func(*v1alpha1.TrialSchedule)
		want   string
	}{
		"too short":          {func(s *v1alpha1.TrialSchedule) { s.BlockLength.Duration = 59 * time.Second }, "spec.trials[1].blockLength 59s: must be from 1m0s to 24h0m0s"},
		"too long":           {func(s *v1alpha1.TrialSchedule) { s.BlockLength.Duration = 25 * time.Hour }, "spec.trials[1].blockLength 25h0m0s"},
		"before zero":        {func(s *v1alpha1.TrialSchedule) { s.BlockLength.Duration = -time.Hour }, "spec.trials[1].blockLength -1h0m0s"},
		"all wash-out":       {func(s *v1alpha1.TrialSchedule) { s.WashOut = s.BlockLength }, "spec.trials[1].washOut 2m0s: must be from 0s to below blockLength, 2m0s"},
		"wash-out of before": {func(s *v1alpha1.TrialSchedule) { s.WashOut.Duration = -1 }, "spec.trials[1].washOut -1ns"},
		"no blocks":          {func(s *v1alpha1.TrialSchedule) { s.Blocks = 0 }, "spec.trials[1].blocks 0: must be from 1 to 1024"},
		"too many blocks":    {func(s *v1alpha1.TrialSchedule) { s.Blocks = 1 << 30 }, "spec.trials[1].blocks 1073741824"},
		"no such block":      {func(s *v1alpha1.TrialSchedule) { s.OffBlocks = []int32{0, 6} }, "spec.trials[1].offBlocks[1] 6: must be from 0 to below blocks, 6"},
		"a block of before":  {func(s *v1alpha1.TrialSchedule) { s.OffBlocks = []int32{-1} }, "spec.trials[1].offBlocks[0] -1"},
		"a block twice":      {func(s *v1alpha1.TrialSchedule) { s.OffBlocks = []int32{1, 1} }, "spec.trials[1].offBlocks[1] names block 1 twice"},
		"no start":           {func(s *v1alpha1.TrialSchedule) { s.Start = metav1.Time{} }, "spec.trials[1].start is missing"},
	} {
		for lever, left := range map[v1alpha1.Lever]string{
			v1alpha1.LeverAffinity:  "slice of pod, shaping of pod, buffering of other 1ms/0s, buffering of pod 1ms/500µs",
			v1alpha1.LeverBuffering: "pins of pod, slice of pod, shaping of pod",
		} {
			plan := everything(good, trialOf(lever, test.change))
			o := ordersOf(plan, false)
			if got := o.acting(); got != left || len(o.schedules) != 1 || o.schedules[0].Lever != model.LeverSlice {
				t.Errorf("%s of %s: acting %s, %d schedules", name, lever, got, len(o.schedules))
			}
			status := planStatus(plan, &v1alpha1.NodePlanStatus{AppliedRevision: "r1"}, outcome{orders: o}, noon())
			if c := status.Conditions[0]; c.Status != metav1.ConditionFalse || c.Reason != reasonBadPlan || !strings.Contains(c.Message, test.want) ||
				!strings.HasSuffix(c.Message, "the lever stays off") || status.AppliedRevision != "r1" {
				t.Errorf("%s of %s: condition %+v, want %q; revision %s", name, lever, c, test.want, status.AppliedRevision)
			}
			for _, one := range status.VMs {
				bad := one.Lever == lever
				if bad != (one.State == v1alpha1.LeverFailed && one.Reason == reasonBadPlan && strings.Contains(one.Message, test.want)) {
					t.Errorf("%s of %s: %+v", name, lever, one)
				}
			}
		}
	}
}

func TestTrialsOfLeversThatThereAreNot(t *testing.T) {
	for _, lever := range []v1alpha1.Lever{"Sleep", "", v1alpha1.LeverTrafficShare, v1alpha1.Lever(strings.Repeat("x", 5000))} {
		plan := everything(trialOf(lever, nil))
		o := ordersOf(plan, false)
		status := planStatus(plan, &v1alpha1.NodePlanStatus{}, outcome{orders: o}, noon())
		if c := status.Conditions[0]; c.Reason != reasonBadPlan || !strings.Contains(c.Message, "spec.trials[0].lever") || len(c.Message) > 300 {
			t.Errorf("%.20q: condition %+v", lever, c)
		}
		if len(o.schedules) != 0 || !strings.Contains(o.acting(), "pins of pod, slice of pod") {
			t.Errorf("%.20q: schedules %+v, acting %s", lever, o.schedules, o.acting())
		}
	}
	twice := everything(trialOf(v1alpha1.LeverAffinity, nil), trialOf(v1alpha1.LeverSlice, nil), trialOf(v1alpha1.LeverAffinity, nil))
	o := ordersOf(twice, false)
	if len(o.schedules) != 1 || strings.Contains(o.acting(), "pins") || o.badTrial != "spec.trials[0].lever names Affinity twice: name each once: the lever stays off" {
		t.Errorf("%q, acting %s", o.badTrial, o.acting())
	}
}

func TestNoScheduleIsFollowedWithoutAPlanInForce(t *testing.T) {
	trial := trialOf(v1alpha1.LeverAffinity, nil)
	for name, o := range map[string]orders{
		"no plan":           ordersOf(nil, false),
		"not to be applied": ordersOf(planOf("2", func(p *v1alpha1.NodePlan) { p.Spec.Apply, p.Spec.Trials = false, []v1alpha1.TrialSchedule{trial} }), false),
		"a stale manager":   ordersOf(everything(trial), true),
	} {
		if len(o.schedules) != 0 || o.badTrial != "" || o.acting() != "" {
			t.Errorf("%s: %+v", name, o)
		}
	}
}
