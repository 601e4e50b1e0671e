package planner

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// costly has VMs that every lever does something for, on a node whose power is known.
func costly() model.Node {
	node := proved()
	node.Costs = model.PowerCosts{PerBusyCore: 10, PerWakeUp: 1e-5, PerAwakeCore: 1, Pinned: 0.2, Separated: 0.1}
	for i := range node.Rates.VMs {
		node.Rates.VMs[i].Taps[0].ToVM.PacketsPerSecond = 20_000
	}
	return node
}

// What levers could save is the same whatever the policy allows, when, and by which proofs,
// and whatever is in force.
func TestPotentialKnowsNoPolicy(t *testing.T) {
	want := Potential(costly(), now())
	if len(want) != 3 || want[0].VMs != 3 || !(want[0].Watts > 0.5) || want[1].VMs != 3 || !(want[1].Watts > 1) || want[2].VMs != 3 {
		t.Fatalf("%+v", want)
	}
	for name, change := range map[string]func(*model.Node){
		"observe":     func(n *model.Node) { n.Policy.Mode, n.Policy.Levers = model.ModeObserve, nil },
		"recommend":   func(n *model.Node) { n.Policy.Mode = model.ModeRecommend },
		"paused":      func(n *model.Node) { n.Policy.Paused = true },
		"no meter":    func(n *model.Node) { n.Metered = false },
		"meter late":  unknownMeter,
		"frozen":      func(n *model.Node) { n.Frozen = true },
		"in a freeze": inFreeze,
		"nodes busy":  func(n *model.Node) { n.NodesBusy, n.Policy.MaxChangesPerHour = true, 1 },
		"no review":   func(n *model.Node) { n.Review = false },
		"kept away": func(n *model.Node) {
			n.Proofs = []model.Proof{{Lever: model.LeverAffinity}, {Lever: model.LeverBuffering}}
		},
		"not known":    func(n *model.Node) { n.ProofsAwaited = true },
		"in the plan":  func(n *model.Node) { plan := Plan(*n, now()); n.Current = &plan },
		"an hour late": func(n *model.Node) { n.Rates.Time = n.Rates.Time.Add(-time.Hour) },
	} {
		if diff := cmp.Diff(want, Potential(with(costly(), nil, change), now())); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// Owners, what the node is like, and what is not known count.
func TestPotentialKnowsOwners(t *testing.T) {
	vms := func(of []model.Potential) (counts [3]int) {
		for i := range of {
			counts[i] = of[i].VMs
		}
		return counts
	}
	for name, tc := range map[string]struct {
		change func(*model.Node)
		known  bool
		want   [3]int
	}{
		"a VM opted out":          {func(n *model.Node) { n.VMs[0].OptOut.All = true }, true, [3]int{2, 2, 2}},
		"of one lever":            {func(n *model.Node) { n.VMs[0].OptOut.Levers = []model.Lever{model.LeverBuffering} }, true, [3]int{3, 2, 3}},
		"in another namespace":    {func(n *model.Node) { n.VMs[0].NamespaceSelected = false }, true, [3]int{2, 2, 2}},
		"it prefers to be shared": {func(n *model.Node) { n.VMs[0].Affinity = model.AffinityShared }, true, [3]int{2, 3, 3}},
		"it defers nothing":       {func(n *model.Node) { n.VMs[0].MaxDelay = 0 }, true, [3]int{3, 3, 2}},
		"without buffering":       {func(n *model.Node) { n.Buffering = "no eBPF" }, true, [3]int{3, 0, 3}},
		"no VMs":                  {func(n *model.Node) { n.VMs = nil }, true, [3]int{}},
		"no threads seen":         {func(n *model.Node) { n.Rates.VMs = nil }, true, [3]int{}},
		"the node opted out":      {func(n *model.Node) { n.OptOut.All = true }, true, [3]int{}},
		"it did so unheard":       {func(n *model.Node) { n.OptOut.All, n.Rates, n.Reported = true, nil, false }, true, [3]int{}},
		"an unreadable report":    {func(n *model.Node) { n.ReportUnreadable, n.Reported, n.Rates = true, false, nil }, true, [3]int{}},
		"no rates":                {func(n *model.Node) { n.Rates = nil }, false, [3]int{}},
		"no report":               {func(n *model.Node) { n.Reported = false }, false, [3]int{}},
	} {
		got := Potential(with(costly(), nil, tc.change), now())
		if (got != nil) != tc.known || vms(got) != tc.want {
			t.Errorf("%s: %+v, want VMs %v", name, got, tc.want)
		}
	}
}

// What was worked out and comes to nothing is known; what no VM, no model or too short a look
// tells is not.
func TestPotentialIsKnown(t *testing.T) {
	slow := func(n *model.Node) {
		for i := range n.Rates.VMs {
			n.Rates.VMs[i].Taps[0].ToVM.PacketsPerSecond = 10
		}
	}
	for name, tc := range map[string]struct {
		change func(*model.Node)
		want   [3]int
	}{
		"all":                         {func(*model.Node) {}, [3]int{3, 3, 0}},
		"slow":                        {slow, [3]int{3, 3, 0}},
		"fast, and not seen for long": {func(n *model.Node) { n.VMs[0].Tuning = model.Tuning{} }, [3]int{3, 2, 0}},
		"slow, and not seen for long": {func(n *model.Node) { slow(n); n.VMs[0].Tuning = model.Tuning{} }, [3]int{3, 3, 0}},
		"a VM opted out":              {func(n *model.Node) { n.VMs[0].OptOut.All = true }, [3]int{2, 2, 0}},
		"no threads seen":             {func(n *model.Node) { n.Rates.VMs = nil }, [3]int{}},
	} {
		var got [3]int
		for i, of := range Potential(with(costly(), nil, tc.change), now()) {
			got[i] = of.Considered
			if of.IsKnown() != (tc.want[i] > 0) || !of.IsKnown() && of.Watts != 0 {
				t.Errorf("%s: %+v", name, of)
			}
		}
		if got != tc.want {
			t.Errorf("%s: worked out for %v VMs, want %v", name, got, tc.want)
		}
	}
}

// A plan that may do all that it wants to does it for as many VMs as are foretold.
func TestPotentialIsOfThePlan(t *testing.T) {
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 29))
		node := costly()
		for i := range node.VMs {
			if r.IntN(3) == 0 {
				node.VMs[i].Affinity = model.AffinityAuto
			}
			if r.IntN(4) == 0 {
				node.VMs[i].LatencyBudget = 0
			}
			for k := range node.Rates.VMs[i].VCPUs {
				node.Rates.VMs[i].VCPUs[k].RunCores = units.Cores(r.Float64())
			}
		}
		plan := Plan(node, now())
		for _, potential := range Potential(node, now()) {
			acting := 0
			for i := range plan.VMs {
				one := model.Plan{VMs: plan.VMs[i : i+1]}
				if potential.Lever == model.LeverAffinity && len(plan.VMs[i].Pins) > 0 || potential.Lever != model.LeverAffinity && saves(&one, potential.Lever) {
					acting++
				}
			}
			if acting != potential.VMs || math.IsNaN(float64(potential.Watts)) || !(potential.StdErr >= 0) || acting == 0 && potential.Watts != 0 {
				t.Errorf("seed %d: %+v, and the plan acts on %d VMs", seed, potential, acting)
			}
		}
	}
}

// Where more is drawn, more is to be saved.
func TestPotentialRises(t *testing.T) {
	was := Potential(costly(), now())
	for name, tc := range map[string]struct {
		lever  int
		change func(*model.Node)
	}{
		"a core costs more":      {0, func(n *model.Node) { n.Costs.PerBusyCore *= 1.5 }},
		"binding saves more":     {0, func(n *model.Node) { n.Costs.Pinned *= 1.5 }},
		"a wake-up costs more":   {1, func(n *model.Node) { n.Costs.PerWakeUp *= 1.5 }},
		"there are more packets": {1, func(n *model.Node) { n.Rates.VMs[0].Taps[0].ToVM.PacketsPerSecond *= 1.5 }},
	} {
		if is := Potential(with(costly(), nil, tc.change), now()); !(is[tc.lever].Watts > was[tc.lever].Watts) {
			t.Errorf("%s: %+v, was %+v", name, is[tc.lever], was[tc.lever])
		}
	}
}
