package planner

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
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
		"observe":     func(n *model.Node) { n.Policy.Mode, n.Policy.Levers = v1alpha1.ModeObserve, nil },
		"recommend":   func(n *model.Node) { n.Policy.Mode = v1alpha1.ModeRecommend },
		"paused":      func(n *model.Node) { n.Policy.Paused = true },
		"no meter":    func(n *model.Node) { n.Metered = false },
		"meter late":  unknownMeter,
		"frozen":      func(n *model.Node) { n.Frozen = true },
		"in a freeze": inFreeze,
		"nodes busy":  func(n *model.Node) { n.NodesBusy = true },
		"no review":   func(n *model.Node) { n.Review = false },
		"kept away": func(n *model.Node) {
			n.Proofs = []model.Proof{{Lever: v1alpha1.LeverAffinity}, {Lever: v1alpha1.LeverBuffering}}
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
	slow := func(n *model.Node) {
		for i := range n.Rates.VMs {
			n.Rates.VMs[i].Taps[0].ToVM.PacketsPerSecond = 10
		}
	}
	// What was computed and comes to nothing is known; what was observed too shortly is not.
	for _, tc := range []struct {
		change func(*model.Node)
		want   int
	}{
		{slow, 3},
		{func(n *model.Node) { n.VMs[0].Tuning = model.Tuning{} }, 2},
		{func(n *model.Node) { slow(n); n.VMs[0].Tuning = model.Tuning{} }, 3},
	} {
		if got := Potential(with(costly(), nil, tc.change), now())[1]; got.Considered != tc.want || !got.IsKnown() {
			t.Errorf("%+v, want %d VMs considered", got, tc.want)
		}
	}
	for name, tc := range map[string]struct {
		change func(*model.Node)
		known  bool
		want   [3]int
	}{
		"a VM opted out":          {func(n *model.Node) { n.VMs[0].OptOut.All = true }, true, [3]int{2, 2, 2}},
		"of one lever":            {func(n *model.Node) { n.VMs[0].OptOut.Levers = []v1alpha1.Lever{v1alpha1.LeverBuffering} }, true, [3]int{3, 2, 3}},
		"in another namespace":    {func(n *model.Node) { n.VMs[0].NamespaceSelected = false }, true, [3]int{2, 2, 2}},
		"it prefers to be shared": {func(n *model.Node) { n.VMs[0].Affinity = v1alpha1.AffinityShared }, true, [3]int{2, 3, 3}},
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
