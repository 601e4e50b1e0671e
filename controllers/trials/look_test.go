package trials

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/controllers/objects"
	"github.com/joulevirt/joulevirt/internal/energy"
	"github.com/joulevirt/joulevirt/internal/ledger"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/observe"
	"github.com/joulevirt/joulevirt/internal/plan"
	"github.com/joulevirt/joulevirt/internal/trials"
	"github.com/joulevirt/joulevirt/internal/units"
	"github.com/joulevirt/joulevirt/test/controllertest"
)

// agent answers for all nodes.
type agent struct{ *model.NodeRates }

func (a agent) Fresh(string) *model.NodeRates               { return a.NodeRates }
func (a agent) Latest(string) (*model.NodeRates, time.Time) { return a.NodeRates, time.Time{} }
func (a agent) Awaited(string) bool                         { return false }

// potentials are those of each node.
type potentials []model.Potential

func (p potentials) Of(string) []model.Potential { return p }

// looking is a watch of one node, n, by policy p, and what it asked for.
type looking struct {
	*keeping
	*Watch
	policy            v1alpha1.EnergyPolicy
	node              objects.GovernedNode
	choice            energy.Choice
	plan              *v1alpha1.NodePlan
	planned           model.Node
	replanned, stored []string
}

// newLooking has a node whose levers may be tried: it has a meter, VMs that Affinity would pin, and a
// plan that its agent has applied.
func newLooking(t *testing.T) *looking {
	s := &looking{keeping: newKeeping(t), policy: controllertest.PolicyOf("p", 0, "")}
	s.node = objects.GovernedNode{Node: controllertest.NodeOf("n", ""), Policy: "p", Report: &v1alpha1.NodeReport{}}
	s.node.Settings = []energy.Setting{{Type: v1alpha1.PowerRAPL}}
	s.node.Report.Status.Topology = v1alpha1.Topology{CPUModel: "cpu", CoreGroups: []v1alpha1.CoreGroup{{}}}
	s.choice = energy.Choice{Source: v1alpha1.PowerRAPL, Metered: true, Power: &model.Power{Watts: 100}}
	pins := []model.Pin{{CPUs: units.NewCPUSet(0)}}
	s.plan = &v1alpha1.NodePlan{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Spec: plan.Encode(&model.Plan{
		Apply: true, Policy: "p", VMs: []model.VMPlan{{PodUID: "a", Namespace: "ns", Name: "a", Pins: pins}},
	})}
	s.planned = model.Node{Name: "n", Reported: true, Rates: &model.NodeRates{}}
	s.planned.Policy = model.Policy{Name: "p", Levers: []v1alpha1.Lever{v1alpha1.LeverAffinity}}
	memory := NewMemory(s.clock)
	s.must(memory.Load("p", nil))
	s.Watch = NewWatch(WatchOptions{
		Reader: s.client, Memory: memory, Rates: agent{&model.NodeRates{VMs: make([]model.VMRates, 8)}}, Past: observe.NewMeterPast(),
		Potentials: potentials{{Lever: v1alpha1.LeverAffinity, Watts: 3, StdErr: 1, VMs: 1, Considered: 1}, {Lever: v1alpha1.LeverSlice, VMs: 0}},
		Groups:     func(string) []trials.Unit { return nil }, Recorder: events.NewFakeRecorder(100), Clock: s.clock, Interval: 10 * time.Second,
		Replan:  func(_ context.Context, unit string) { s.replanned = append(s.replanned, unit) },
		Decided: func(_ context.Context, policy string) { s.stored = append(s.stored, policy) },
	})
	return s
}

// look creates what was prepared, if that was not done yet, and has the watch look once.
func (s *looking) look() {
	s.Helper()
	for _, object := range []client.Object{&s.policy, s.plan} {
		if object.GetResourceVersion() == "" {
			s.must(s.client.Create(s.Context(), object))
		}
	}
	s.must(s.Look(s.Context(), []objects.GovernedNode{s.node}, []energy.Choice{s.choice}))
}

// TestLookBeginsTrials on nodes where a lever may be tried and has something to do, and on no others.
func TestLookBeginsTrials(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*looking)
		begins bool
	}{
		"as it should be":            {func(*looking) {}, true},
		"mode Observe":               {func(s *looking) { s.policy.Spec.Mode = v1alpha1.ModeObserve }, false},
		"paused":                     {func(s *looking) { s.policy.Spec.Paused = true }, false},
		"no meter":                   {func(s *looking) { s.choice.Metered = false }, false},
		"the meter is not known yet": {func(s *looking) { s.choice.Unknown = true }, false},
		"the meter is lost":          {func(s *looking) { s.choice.LostSince = s.clock.Now() }, false},
		"the meter is slow": {func(s *looking) {
			s.choice.Source, s.choice.Power.IntervalSeconds = v1alpha1.PowerPrometheus, 300
		}, false},
		"no report":                 {func(s *looking) { s.node.Report = nil }, false},
		"the policy lacks Affinity": {func(s *looking) { s.planned.Policy.Levers = nil }, false},
		"planned by another policy": {func(s *looking) { s.planned.Policy.Name = "q" }, false},
		"the node is cordoned":      {func(s *looking) { s.planned.Frozen = true }, false},
		"outside of windows":        {func(s *looking) { s.planned.Hold.Reason = v1alpha1.ReasonOutsideChangeWindow }, false},
		"the plan is of another":    {func(s *looking) { s.plan.Spec.Policy = "q" }, false},
		"the plan recommends":       {func(s *looking) { s.plan.Spec.Apply = false }, false},
		"the node is changing": {func(s *looking) {
			at := metav1.NewTime(s.clock.Now())
			s.plan.Spec.ChangedAt = &at
		}, false},
		"no VM would be pinned": {func(s *looking) { s.Potentials = potentials{{Lever: v1alpha1.LeverAffinity}} }, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newLooking(t)
			tc.change(s)
			s.Planned(s.planned)
			s.look()
			var want []string
			if tc.begins {
				want = []string{"p"}
			}
			if diff := cmp.Diff(want, s.stored); diff != "" {
				t.Errorf("policies with a new trial (-want +got):\n%s", diff)
			}
		})
	}
}

// TestLookDecidesOnceAnInterval, and a node is planned anew only when something was decided of it.
func TestLookDecidesOnceAnInterval(t *testing.T) {
	s := newLooking(t)
	s.look()
	if len(s.stored) > 0 {
		t.Error("a trial begins on a node that was never planned")
	}
	s.replanned = nil
	s.Planned(s.planned)
	s.look()
	if len(s.stored)+len(s.replanned) > 0 {
		t.Error("decided twice within an interval")
	}
	for range 3 {
		s.clock.Step(s.Interval)
		s.look()
	}
	if diff := cmp.Diff([][]string{{"p"}, {"n"}}, [][]string{s.stored, s.replanned}); diff != "" {
		t.Errorf("policies with a trial, and nodes to plan anew (-want +got):\n%s", diff)
	}
}

// TestLookBooksModels: on a node without a meter levers that act save what the models say, if the policy
// lets them act on those.
func TestLookBooksModels(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*looking)
		joules float64
	}{
		"allowed":      {func(*looking) {}, 3 * 40},
		"not allowed":  {func(s *looking) { s.planned.Policy.AllowModelled = false }, 0},
		"with a meter": {func(s *looking) { s.choice.Metered = true }, 0},
		"not in force": {func(s *looking) { s.plan = controllertest.PlanOf("n", true, "a:"+v1alpha1.ReasonNothingToDo) }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := newLooking(t)
			s.choice.Metered, s.planned.Policy.AllowModelled = false, true
			tc.change(s)
			s.Planned(s.planned)
			for range 3 {
				s.look()
				s.clock.Step(20 * time.Second)
			}
			s.clock.Step(time.Hour) // nobody looked meanwhile
			s.look()
			var booked float64
			s.Memory.View("p", func(_ *trials.Trials, l *ledger.Ledger) { booked = l.Statement(ledger.AllTime, true).Saved.Value })
			if math.Abs(booked-tc.joules) > 1e-9 {
				t.Errorf("booked %v J, want %v", booked, tc.joules)
			}
		})
	}
}
