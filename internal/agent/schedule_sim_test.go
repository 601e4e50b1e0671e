package agent

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/agent/guard"
	"github.com/joulevirt/joulevirt/internal/model"
)

// Each lever is on and off on the node by its own schedule, exactly, the rates say so, and
// the status stays the same.
func TestSimulatedLeversComeAndGoBySchedule(t *testing.T) {
	short := func(off ...int64) func(*v1alpha1.TrialSchedule) {
		return func(s *v1alpha1.TrialSchedule) {
			s.SlotLength.Duration = time.Minute
			s.Seed = seedOf(s, off...)
		}
	}
	trials := []v1alpha1.TrialSchedule{
		trialOf(v1alpha1.LeverAffinity, short(0, 2, 6)), trialOf(v1alpha1.LeverSlice, short(1, 3, 7)),
		trialOf(v1alpha1.LeverShaping, short(0, 5, 8)), trialOf(v1alpha1.LeverBuffering, short(1, 4, 7)),
	}
	s := newScheduled(t, trials...)
	s.rounds(2)
	was := s.cluster.status
	if was.VMsInForce != 2 || !isApplied(was) || len(was.VMs) != 5 {
		t.Fatalf("status %+v", was)
	}
	s.statuses = 0
	for range 10 * 60 {
		s.round()
		got, second := s.on()
		switches := s.board.Latest().Rates.Switches
		if len(switches) != len(trials) {
			t.Fatalf("switches %+v", switches)
		}
		for _, trial := range trials {
			schedule := scheduleOfTrial(t, trial)
			moment := schedule.At(s.clock.Now())
			done := switches[slicesIndex(switches, schedule.Lever)]
			if got[trial.Lever] != moment.On || done.On != moment.On || done.Seed != trial.Seed || done.OneIn != 4 {
				t.Fatalf("%v: %s is on: %v, done %+v, want %+v", s.clock.Now(), trial.Lever, got[trial.Lever], done, moment)
			}
			if trial.Lever == v1alpha1.LeverBuffering && (second > 0) != moment.On {
				t.Fatalf("%v: the tap without flood defence has window %v", s.clock.Now(), second)
			}
		}
		if buffered, err := s.host.Buffered(s.processes[0]); err != nil || len(buffered) != 1 {
			t.Fatalf("the program that defends against floods was taken off: %+v, %v", buffered, err)
		}
	}
	if s.statuses != 0 {
		t.Errorf("the status changed %d times:\n%s", s.statuses, cmp.Diff(was, s.cluster.status))
	}
	for _, one := range s.cluster.status.VMs {
		if one.State != v1alpha1.LeverInForce || one.Message != trialMessage {
			t.Errorf("status %+v", one)
		}
	}
	if one := s.applied(v1alpha1.LeverAffinity); len(one.VCPUs) != 1 || one.VCPUs[0].CPUs != s.pin.String() {
		t.Errorf("status %+v lacks what was read back", one)
	}
}

func slicesIndex(switches []model.Switch, lever v1alpha1.Lever) int {
	for i := range switches {
		if switches[i].Lever == lever {
			return i
		}
	}
	return 0
}

// An agent that was killed is succeeded by one that is in the right slot at once, and
// says the same.
func TestSimulatedAgentsKilledInATrial(t *testing.T) {
	affinity := trialOf(v1alpha1.LeverAffinity, nil)
	buffering := trialOf(v1alpha1.LeverBuffering, nil)
	others := []v1alpha1.Lever{v1alpha1.LeverSlice, v1alpha1.LeverShaping}
	all := append(others, v1alpha1.LeverAffinity, v1alpha1.LeverBuffering)
	for name, test := range map[string]struct {
		killed, again time.Duration
		want          []v1alpha1.Lever
	}{
		"in an off slot":           {5 * time.Minute, 5*time.Minute + time.Second, others},
		"on, and back off":         {3 * time.Minute, 5 * time.Minute, others},
		"off, and back on":         {7 * time.Minute, 9 * time.Minute, all},
		"off, and back at the end": {7 * time.Minute, time.Hour, all},
	} {
		s := newScheduled(t, affinity, buffering)
		s.at(test.killed)
		was := s.cluster.status
		down := test.again - test.killed - time.Second
		s.host.Advance(down)
		s.clock.Step(down)
		s.kill()
		s.round()
		s.want(name, test.want...)
		done := s.board.Latest().Rates.Switches
		if len(done) != 2 || done[0].On != (len(test.want) == 4) || !done[0].Since.Equal(s.clock.Now()) {
			t.Errorf("%s: switches %+v", name, done)
		}
		s.rounds(3)
		if diff := cmp.Diff(was, s.cluster.status); diff != "" {
			t.Errorf("%s: the status changed:\n%s", name, diff)
		}
		pinned := len(test.want) == 4
		if saved, err := s.journal.Load(); err != nil || (len(saved.Threads) > 0) != pinned {
			t.Errorf("%s: journal %v, %v", name, saved, err)
		}
	}
}

// A plan that is not in force has nothing on, whatever its trials say, and nothing is reported
// of them.
func TestSimulatedTrialsOfPlansThatAreNotInForce(t *testing.T) {
	for name, stop := range map[string]func(*scheduled){
		"no plan":           func(s *scheduled) { s.cluster.plan = nil },
		"not to be applied": func(s *scheduled) { s.change(func(p *v1alpha1.NodePlan) { p.Spec.Apply = false }) },
		"a stale manager":   func(s *scheduled) { s.agent.opts.StaleAfter = -time.Second },
		"objects not known, and a stale manager": func(s *scheduled) {
			s.cluster.synced, s.agent.opts.StaleAfter = false, -time.Second
		},
	} {
		s := newScheduled(t, trialOf(v1alpha1.LeverAffinity, nil))
		s.at(time.Minute)
		if len(s.board.Latest().Rates.Switches) != 1 {
			t.Errorf("%s: switches %+v", name, s.board.Latest().Rates.Switches)
		}
		stop(s)
		s.round()
		s.want(name)
		if done := s.board.Latest().Rates.Switches; done != nil {
			t.Errorf("%s: switches %+v", name, done)
		}
		if _, second := s.on(); second != -1 {
			t.Errorf("%s: the second VM's tap has window %v", name, second)
		}
		if s.cluster.plan == nil || !s.cluster.plan.Spec.Apply {
			continue
		}
		s.cluster.synced, s.agent.opts.StaleAfter = true, time.Hour
		s.round()
		if done := s.board.Latest().Rates.Switches; len(done) != 1 || !done[0].Since.Equal(s.clock.Now()) {
			t.Errorf("%s, and back: switches %+v", name, done)
		}
	}
}

func isApplied(status v1alpha1.NodePlanStatus) bool {
	return meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionApplied)
}

// What the status says of VMs that are not as they are to be does not come and go either.
func TestStatusOfTrialsWhileOff(t *testing.T) {
	s := newScheduled(t, trialOf(v1alpha1.LeverAffinity, nil))
	s.change(func(p *v1alpha1.NodePlan) {
		p.Spec.VMs[1].Affinity.VCPUs = append(p.Spec.VMs[1].Affinity.VCPUs, v1alpha1.VCPUPin{VCPU: 9, CPUs: s.pin.String()})
	})
	s.at(time.Minute)
	was := s.cluster.status
	if one := s.applied(v1alpha1.LeverAffinity); one.State != v1alpha1.LeverPending || isApplied(was) {
		t.Fatalf("status %+v, conditions %+v", one, was.Conditions)
	}
	s.statuses = 0
	s.at(11 * time.Minute)
	if s.statuses != 0 {
		t.Errorf("the status changed %d times:\n%s", s.statuses, cmp.Diff(was, s.cluster.status))
	}
	// A VM that came in an off slot is idle, and then bound.
	late := newScheduled(t, trialOf(v1alpha1.LeverAffinity, func(s *v1alpha1.TrialSchedule) {
		s.SlotLength.Duration, s.Seed = 4*time.Minute, 0
		for first := (model.Schedule{Slot: s.SlotLength.Duration, OneIn: int(s.OneIn)}); first.At(noon()).On; first.Seed++ {
			s.Seed = first.Seed + 1
		}
	}))
	late.at(time.Minute)
	if one := late.applied(v1alpha1.LeverAffinity); one.State != v1alpha1.LeverIdle || one.Reason != reasonSwitchedOff || !isApplied(late.cluster.status) {
		t.Errorf("status %+v", one)
	}
	if c := late.cluster.status.Conditions[0]; c.Status != metav1.ConditionTrue {
		t.Errorf("condition %+v", c)
	}
	late.statuses = 0
	late.at(11 * time.Minute)
	if one := late.applied(v1alpha1.LeverAffinity); one.State != v1alpha1.LeverInForce || late.statuses != 1 {
		t.Errorf("status %+v after %d changes", one, late.statuses)
	}
}

// A guest with tools holds nothing while it is asked to, and some seconds longer. The
// status says nothing of that.
func TestGuestsTakeTimeToGoAlong(t *testing.T) {
	b := newBuffered(t)
	b.cluster.plan.Spec.Trials = []v1alpha1.TrialSchedule{trialOf(v1alpha1.LeverBuffering, nil)}
	var one *v1alpha1.VMApplied
	round := func(transmit int) {
		b.host.guest = &model.GuestTools{ToleratedMicroseconds: 1000, TransmitMicroseconds: transmit}
		b.cluster.renewed = b.clock.Now()
		one = b.round()
	}
	for range 20 {
		round(1000)
	}
	both := readBackOf(1000, v1alpha1.BufferingHalfInForce)
	offs, onFor := 0, 100
	for range 15 * 60 {
		if _, is := b.host.state(); is.Window == 0 {
			offs, onFor = offs+1, 0
		}
		onFor++
		round(map[bool]int{true: 1000}[onFor > 8])
		b.wantReadBack(b.clock.Now().String(), one, both)
	}
	if offs != 240 {
		t.Errorf("off for %d s", offs)
	}
	// What it does for good is reported.
	for range int(settleTime/time.Second) + 1 {
		round(0)
	}
	b.wantReadBack("a guest that declines", one, readBackOf(1000, v1alpha1.BufferingHalfGuestDeclines))
}

// A cool-down that ends while the lever is off is reported no more, and the lever comes back
// with the next slot.
func TestACoolDownThatEndsInAnOffSlot(t *testing.T) {
	s := newScheduled(t, trialOf(v1alpha1.LeverAffinity, func(trial *v1alpha1.TrialSchedule) {
		trial.Seed = seedOf(trial, 1, 6, 10)
	}))
	s.rounds(100) // the first slot began a minute after the start
	now := s.clock.Now()
	s.agent.guarded.Guard = guard.New([]model.Trip{{
		PodUID: podUID(0), Lever: v1alpha1.LeverAffinity, Symptom: model.SymptomRunDelay, Time: now, Until: now.Add(2 * time.Minute), Count: 1,
	}}, now)
	want := func(state v1alpha1.LeverState, reason, words string) {
		t.Helper()
		if one := s.applied(v1alpha1.LeverAffinity); one.State != state || one.Reason != reason || !strings.Contains(one.Message, words) {
			t.Errorf("%v: status %+v", s.clock.Now(), one)
		}
	}
	s.rounds(1)
	want(v1alpha1.LeverBlocked, v1alpha1.ReasonGuardTripped, "a bound thread waited")
	s.rounds(115)
	want(v1alpha1.LeverBlocked, v1alpha1.ReasonGuardTripped, "a bound thread waited")
	s.rounds(10)
	want(v1alpha1.LeverIdle, reasonSwitchedOff, "has not been in force since")
	s.statuses = 0
	s.rounds(30)
	if s.statuses != 0 {
		t.Errorf("the status changed %d times", s.statuses)
	}
	s.rounds(60)
	want(v1alpha1.LeverInForce, v1alpha1.ReasonApplied, trialMessage)
}
