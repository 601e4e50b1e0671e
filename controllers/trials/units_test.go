package trials

import (
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/controllers/controllertest"
	"github.com/joulevirt/joulevirt/controllers/objects"
	"github.com/joulevirt/joulevirt/internal/energy"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/power"
	"github.com/joulevirt/joulevirt/internal/units"
	"github.com/joulevirt/joulevirt/internal/verify"
	"github.com/joulevirt/joulevirt/internal/verify/proof"
)

func TestMeterOf(t *testing.T) {
	server := func(interval float64) energy.Choice {
		return energy.Choice{Source: v1alpha1.PowerPrometheus, Metered: true, Power: &model.Power{IntervalSeconds: interval}}
	}
	for name, tc := range map[string]struct {
		choice energy.Choice
		pull   time.Duration
		want   time.Duration
	}{
		"none":                    {energy.Choice{}, 15 * time.Second, 0},
		"a model":                 {energy.Choice{Source: v1alpha1.PowerModel}, 15 * time.Second, 0},
		"counters":                {energy.Choice{Source: v1alpha1.PowerRAPL, Metered: true}, 15 * time.Second, 15 * time.Second},
		"counters, pulled often":  {energy.Choice{Source: v1alpha1.PowerRAPL, Metered: true}, 200 * time.Millisecond, time.Second},
		"a server's moments":      {server(0), time.Second, 15 * time.Second},
		"a server's intervals":    {server(29.6), time.Second, 30 * time.Second},
		"a little longer":         {server(30.4), time.Second, 30 * time.Second},
		"of a minute":             {server(60), time.Second, time.Minute},
		"without a figure at all": {energy.Choice{Source: v1alpha1.PowerPrometheus, Metered: true}, time.Second, 15 * time.Second},
	} {
		if got := MeterOf(tc.choice, tc.pull); got != (verify.Meter{Interval: tc.want, Freshness: tc.want}) {
			t.Errorf("%s: %+v, want %v", name, got, tc.want)
		}
	}
}

func TestProofSettings(t *testing.T) {
	policy := controllertest.PolicyOf("p", 0, "")
	if got, want := ProofSettings(&policy), (proof.Settings{HoldBack: 0.05, Confidence: 0.95}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// TestUnitOfANode: levers may be tried where plans act, nothing is the matter, and the
// node is known to be metered.
func TestUnitOfANode(t *testing.T) {
	class, meter := verify.Class{CPUModel: "C"}, verify.Meter{Interval: time.Second, Freshness: time.Second}
	candidates := []proof.Candidate{{Lever: v1alpha1.LeverAffinity, Watts: 3}}
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
		"the meter is lost":      {func(s *nodeSight, _ *v1alpha1.EnergyPolicy) { s.choice.LostSince = controllertest.StatusTime() }, false, false, candidates},
		"no plan":                {func(s *nodeSight, _ *v1alpha1.EnergyPolicy) { s.plan = nil }, false, false, candidates},
		"a plan of another":      {func(s *nodeSight, _ *v1alpha1.EnergyPolicy) { s.plan.Spec.Policy = "q" }, false, false, candidates},
		"its plan is being done": {func(s *nodeSight, _ *v1alpha1.EnergyPolicy) {
			s.plan.Spec.RecentChanges = []v1alpha1.RecentChange{{Time: metav1.NewTime(controllertest.StatusTime())}}
		}, false, false, candidates},
		"not planned yet":    {func(s *nodeSight, _ *v1alpha1.EnergyPolicy) { s.facts = nil }, false, false, nil},
		"planned by another": {func(s *nodeSight, _ *v1alpha1.EnergyPolicy) { s.facts.policy.Name = "q" }, false, false, nil},
		"another lever": {func(s *nodeSight, _ *v1alpha1.EnergyPolicy) {
			s.facts.policy.Levers = []v1alpha1.Lever{v1alpha1.LeverShaping}
		}, true, false, nil},
		"nothing to do for it": {func(s *nodeSight, _ *v1alpha1.EnergyPolicy) { s.potentials[0].VMs = 0 }, true, false, nil},
		"one that protects":    {func(s *nodeSight, _ *v1alpha1.EnergyPolicy) { s.potentials[0].Lever = v1alpha1.LeverSlice }, true, false, nil},
	} {
		policy := controllertest.PolicyOf("p", 0, "")
		s := &nodeSight{
			GovernedNode: objects.GovernedNode{Node: controllertest.NodeOf("a", "x"), Policy: "p"}, class: class, meter: meter,
			facts:      &nodeFacts{policy: model.Policy{Name: "p", Levers: []v1alpha1.Lever{v1alpha1.LeverAffinity, v1alpha1.LeverSlice}}},
			plan:       controllertest.PlanOf("a", true, "v"),
			potentials: []model.Potential{{Lever: v1alpha1.LeverAffinity, Watts: 3, VMs: 1}},
		}
		s.plan.Spec.Policy = "p"
		tc.change(s, &policy)
		lost := name == "the meter is lost"
		want := proof.Unit{Name: "a", Nodes: []string{"a"}, Class: class, Meter: meter, MeterLost: lost, MostWatts: 20_000, Ready: tc.ready, Approved: tc.approved, Candidates: tc.candidates}
		if diff := cmp.Diff(want, s.unit(&policy, controllertest.StatusTime())); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestMostWatts(t *testing.T) {
	of := func(cpus int) *v1alpha1.NodeReport {
		var cores v1alpha1.CoreGroup
		for cpu := range cpus {
			cores.Cores = append(cores.Cores, strconv.Itoa(cpu))
		}
		return &v1alpha1.NodeReport{Status: v1alpha1.NodeReportStatus{Topology: v1alpha1.Topology{CoreGroups: []v1alpha1.CoreGroup{cores}}}}
	}
	packages := energy.Choice{Power: &model.Power{Scope: v1alpha1.PowerScopePackage}}
	for name, c := range map[string]struct {
		report *v1alpha1.NodeReport
		choice energy.Choice
		want   units.Watts
	}{
		"packages of 64 CPUs":     {of(64), packages, 3300},
		"packages of many CPUs":   {of(1024), packages, 20_000},
		"a whole machine":         {of(64), energy.Choice{Power: &model.Power{Scope: v1alpha1.PowerScopePlatform}}, 20_000},
		"no figure":               {of(64), energy.Choice{}, 20_000},
		"CPUs that are not known": {of(0), packages, 20_000},
		"no report":               {nil, packages, 20_000},
	} {
		if got := MostWatts(c.report, c.choice); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// TestFactsOf: a node waits for what keeps new things away.
func TestFactsOf(t *testing.T) {
	good := func() model.Node {
		return model.Node{Reported: true, Rates: &model.NodeRates{}, VMs: []model.VM{{TrafficClass: v1alpha1.TrafficInteractive}, {TrafficClass: v1alpha1.TrafficInteractive}}}
	}
	if got := factsOf(new(good())); got.waits || got.vms[v1alpha1.TrafficInteractive] != 2 {
		t.Errorf("%+v of a good node", got)
	}
	for name, change := range map[string]func(*model.Node){
		"frozen": func(n *model.Node) { n.Frozen = true }, "held": func(n *model.Node) { n.Hold.Reason = v1alpha1.ReasonInFreeze },
		"its owner does not want it": func(n *model.Node) { n.OptOut.All = true }, "no report": func(n *model.Node) { n.Reported = false },
		"no rates": func(n *model.Node) { n.Rates = nil }, "no word of the meter": func(n *model.Node) { n.MeterUnknown = true },
	} {
		node := good()
		if change(&node); !factsOf(&node).waits {
			t.Errorf("%s: it does not wait", name)
		}
	}
}

// TestForetold: models tell only of nodes without a meter, where the policy lets levers act by
// them, and of levers that came to all VMs.
func TestForetold(t *testing.T) {
	all := map[v1alpha1.Lever]power.Estimate{
		v1alpha1.LeverAffinity: {Watts: 20, StdErr: 6}, v1alpha1.LeverBuffering: {Watts: 4, StdErr: 2},
	}
	for name, tc := range map[string]struct {
		change func(*nodeSight)
		partly []v1alpha1.Lever
		want   map[v1alpha1.Lever]power.Estimate
	}{
		"without a meter":      {func(*nodeSight) {}, nil, all},
		"metered":              {func(s *nodeSight) { s.choice.Metered = true }, nil, nil},
		"not allowed":          {func(s *nodeSight) { s.facts.policy.AllowModelled = false }, nil, nil},
		"planned by another":   {func(s *nodeSight) { s.facts.policy.Name = "q" }, nil, nil},
		"not planned yet":      {func(s *nodeSight) { s.facts = nil }, nil, nil},
		"nothing foretold yet": {func(s *nodeSight) { s.potentials = nil }, nil, map[v1alpha1.Lever]power.Estimate{}},
		"on some VMs only": {func(*nodeSight) {}, []v1alpha1.Lever{v1alpha1.LeverAffinity}, map[v1alpha1.Lever]power.Estimate{
			v1alpha1.LeverBuffering: {Watts: 4, StdErr: 2},
		}},
	} {
		s := &nodeSight{
			GovernedNode: objects.GovernedNode{Policy: "p"}, facts: &nodeFacts{policy: model.Policy{Name: "p", AllowModelled: true}},
			potentials: []model.Potential{
				{Lever: v1alpha1.LeverAffinity, Watts: 20, StdErr: 6, VMs: 3}, {Lever: v1alpha1.LeverBuffering, Watts: 4, StdErr: 2, VMs: 1},
				{Lever: v1alpha1.LeverShaping, VMs: 2},
			},
		}
		tc.change(s)
		if diff := cmp.Diff(tc.want, s.foretold(tc.partly)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestALostMeter: for a day the node is what it was, so that no lever acts unproven that did
// not before; then it is one without a meter. A new leader, to which no meter is known either,
// takes the word of the last one.
func TestALostMeter(t *testing.T) {
	lost := energy.Choice{Source: v1alpha1.PowerModel, LostSince: controllertest.StatusTime()}
	s := nodeSight{GovernedNode: objects.GovernedNode{Settings: []energy.Setting{{Type: v1alpha1.PowerRAPL}, {Type: v1alpha1.PowerModel}}}}
	var k knownNode
	for _, step := range []struct {
		name   string
		choice energy.Choice
		want   time.Duration
	}{
		{"metered", energy.Choice{Source: v1alpha1.PowerRAPL, Metered: true}, 15 * time.Second},
		{"lost", lost, 15 * time.Second},
		{"for a day", energy.Choice{Source: v1alpha1.PowerModel}, 0},
	} {
		s.choice = step.choice
		if k.update(&s, 15*time.Second, controllertest.StatusTime()); k.meter.Interval != step.want {
			t.Errorf("%s: the meter is %+v", step.name, k.meter)
		}
	}
	for metered, want := range map[bool]time.Duration{true: 15 * time.Second, false: 0} {
		scene := newProofScene(t)
		was := proof.New()
		unit := proof.Unit{Name: "n", Nodes: []string{"n"}, Class: verify.Class{CPUModel: "made up"}}
		if metered {
			unit.Meter = verify.Meter{Interval: 15 * time.Second, Freshness: 15 * time.Second}
		}
		was.Round([]proof.Unit{unit}, proof.Settings{}, scene.Clock.Now())
		controllertest.LoadTrials(t, scene.store, was)
		governed, err := objects.GovernedNodes(t.Context(), scene.Client)
		scene.must(err)
		governed[0].Settings = s.Settings
		got := scene.watch.see(governed[0], energy.Choice{Source: v1alpha1.PowerModel}, nil, scene.Clock.Now())
		if got.meter.Interval != want || got.choice.LostSince.IsZero() == metered {
			t.Errorf("after one to which it was metered %t: %+v, lost since %v", metered, got.meter, got.choice.LostSince)
		}
	}
}
