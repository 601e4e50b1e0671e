package controllers

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/energy"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
	"github.com/joulevirt/joulevirt/internal/verify"
	"github.com/joulevirt/joulevirt/internal/verify/proof"
)

func TestMeterOf(t *testing.T) {
	server := func(interval float64) energy.Choice {
		return energy.Choice{Source: model.SourcePrometheus, Metered: true, Power: &model.Power{IntervalSeconds: interval}}
	}
	for name, tc := range map[string]struct {
		choice energy.Choice
		pull   time.Duration
		want   time.Duration
	}{
		"none":                    {energy.Choice{}, 15 * time.Second, 0},
		"a model":                 {energy.Choice{Source: model.SourceModel}, 15 * time.Second, 0},
		"counters":                {energy.Choice{Source: model.SourceRAPL, Metered: true}, 15 * time.Second, 15 * time.Second},
		"counters, pulled often":  {energy.Choice{Source: model.SourceRAPL, Metered: true}, 200 * time.Millisecond, time.Second},
		"a server's moments":      {server(0), time.Second, 15 * time.Second},
		"a server's intervals":    {server(29.6), time.Second, 30 * time.Second},
		"a little longer":         {server(30.4), time.Second, 30 * time.Second},
		"of a minute":             {server(60), time.Second, time.Minute},
		"without a figure at all": {energy.Choice{Source: model.SourcePrometheus, Metered: true}, time.Second, 15 * time.Second},
	} {
		if got := meterOf(tc.choice, tc.pull); got != (verify.Meter{Interval: tc.want, Freshness: tc.want}) {
			t.Errorf("%s: %+v, want %v", name, got, tc.want)
		}
	}
}

func TestProofSettings(t *testing.T) {
	policy := policyOf("p", 0, "")
	if got, want := proofSettings(&policy), (proof.Settings{HoldBack: 0.05, Confidence: 0.95}); got != want {
		t.Errorf("stored before there were defaults: %+v, want %+v", got, want)
	}
	none := int32(0)
	policy.Spec.Verification.HoldBackPercent, policy.Spec.Verification.ConfidencePercent = &none, 80
	if got, want := proofSettings(&policy), (proof.Settings{Confidence: 0.8}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// TestUnitOfANode: levers may be tried where plans act, nothing is the matter, and the
// node is known to be metered.
func TestUnitOfANode(t *testing.T) {
	class, meter := verify.Class{CPUModel: "C"}, verify.Meter{Interval: time.Second, Freshness: time.Second}
	candidates := []proof.Candidate{{Lever: model.LeverAffinity, Watts: 3}}
	for name, tc := range map[string]struct {
		change          func(*nodeSight, *v1alpha1.EnergyPolicy)
		ready, approved bool
		candidates      []proof.Candidate
	}{
		"good":      {func(*nodeSight, *v1alpha1.EnergyPolicy) {}, true, false, candidates},
		"no trials": {func(_ *nodeSight, p *v1alpha1.EnergyPolicy) { p.Spec.Verification.Trials = v1alpha1.TrialsDisabled }, true, true, candidates},
		"approved":  {func(_ *nodeSight, p *v1alpha1.EnergyPolicy) { p.Spec.Mode = v1alpha1.ModeRecommend }, true, true, candidates},
		"only recommended": {func(s *nodeSight, p *v1alpha1.EnergyPolicy) {
			p.Spec.Mode = v1alpha1.ModeRecommend
			s.plan.Spec.Apply = false
		}, false, true, candidates},
		"observed":               {func(_ *nodeSight, p *v1alpha1.EnergyPolicy) { p.Spec.Mode = v1alpha1.ModeObserve }, false, false, candidates},
		"paused":                 {func(_ *nodeSight, p *v1alpha1.EnergyPolicy) { p.Spec.Paused = true }, false, false, candidates},
		"nothing new now":        {func(s *nodeSight, _ *v1alpha1.EnergyPolicy) { s.facts.waits = true }, false, false, candidates},
		"the meter is not heard": {func(s *nodeSight, _ *v1alpha1.EnergyPolicy) { s.choice.Unknown = true }, false, false, candidates},
		"the meter is lost":      {func(s *nodeSight, _ *v1alpha1.EnergyPolicy) { s.choice.LostSince = statusTime() }, false, false, candidates},
		"no plan":                {func(s *nodeSight, _ *v1alpha1.EnergyPolicy) { s.plan = nil }, false, false, candidates},
		"a plan of another":      {func(s *nodeSight, _ *v1alpha1.EnergyPolicy) { s.plan.Spec.Policy = "q" }, false, false, candidates},
		"its plan is being done": {func(s *nodeSight, _ *v1alpha1.EnergyPolicy) {
			s.plan.Spec.RecentChanges = []v1alpha1.RecentChange{{Time: metav1.NewTime(statusTime())}}
		}, false, false, candidates},
		"not planned yet":    {func(s *nodeSight, _ *v1alpha1.EnergyPolicy) { s.facts = nil }, false, false, nil},
		"planned by another": {func(s *nodeSight, _ *v1alpha1.EnergyPolicy) { s.facts.policy.Name = "q" }, false, false, nil},
		"another lever": {func(s *nodeSight, _ *v1alpha1.EnergyPolicy) {
			s.facts.policy.Levers = []model.Lever{model.LeverShaping}
		}, true, false, nil},
		"nothing to do for it": {func(s *nodeSight, _ *v1alpha1.EnergyPolicy) { s.potentials[0].VMs = 0 }, true, false, nil},
		"one that protects":    {func(s *nodeSight, _ *v1alpha1.EnergyPolicy) { s.potentials[0].Lever = model.LeverSlice }, true, false, nil},
	} {
		policy := policyOf("p", 0, "")
		s := &nodeSight{
			governedNode: governedNode{node: nodeOf("a", "x"), policy: "p"}, class: class, meter: meter,
			facts:      &nodeFacts{policy: model.Policy{Name: "p", Levers: []model.Lever{model.LeverAffinity, model.LeverSlice}}},
			plan:       planOf("a", true, "v"),
			potentials: []model.Potential{{Lever: model.LeverAffinity, Watts: 3, VMs: 1}},
		}
		s.plan.Spec.Policy = "p"
		tc.change(s, &policy)
		lost := name == "the meter is lost"
		want := proof.Unit{Name: "a", Nodes: []string{"a"}, Class: class, Meter: meter, MeterLost: lost, MostWatts: 20_000, Ready: tc.ready, Approved: tc.approved, Candidates: tc.candidates}
		if diff := cmp.Diff(want, s.unit(&policy, statusTime())); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestMostWatts(t *testing.T) {
	of := func(cpus int32) *v1alpha1.NodeReport {
		return &v1alpha1.NodeReport{Status: v1alpha1.NodeReportStatus{Topology: v1alpha1.Topology{LogicalCPUs: cpus}}}
	}
	packages := energy.Choice{Power: &model.Power{Scope: model.ScopePackage}}
	for name, c := range map[string]struct {
		report *v1alpha1.NodeReport
		choice energy.Choice
		want   units.Watts
	}{
		"packages of 64 CPUs":     {of(64), packages, 3300},
		"packages of many CPUs":   {of(1024), packages, 20_000},
		"a whole machine":         {of(64), energy.Choice{Power: &model.Power{Scope: model.ScopePlatform}}, 20_000},
		"no figure":               {of(64), energy.Choice{}, 20_000},
		"CPUs that are not known": {of(0), packages, 20_000},
		"no report":               {nil, packages, 20_000},
	} {
		if got := mostWatts(c.report, c.choice); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// TestFactsOf: a node waits for what keeps new things away.
func TestFactsOf(t *testing.T) {
	good := func() model.Node {
		return model.Node{Reported: true, Rates: &model.NodeRates{}, VMs: []model.VM{{TrafficClass: model.TrafficInteractive}, {TrafficClass: model.TrafficInteractive}}}
	}
	if got := factsOf(new(good())); got.waits || got.vms[model.TrafficInteractive] != 2 {
		t.Errorf("%+v of a good node", got)
	}
	for name, change := range map[string]func(*model.Node){
		"frozen": func(n *model.Node) { n.Frozen = true }, "held": func(n *model.Node) { n.Hold.Reason = model.ReasonInFreeze },
		"its owner does not want it": func(n *model.Node) { n.OptOut.All = true }, "no report": func(n *model.Node) { n.Reported = false },
		"no rates": func(n *model.Node) { n.Rates = nil }, "no word of the meter": func(n *model.Node) { n.MeterUnknown = true },
	} {
		node := good()
		if change(&node); !factsOf(&node).waits {
			t.Errorf("%s: it does not wait", name)
		}
	}
}
