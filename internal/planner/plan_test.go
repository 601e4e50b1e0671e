package planner

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

func now() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }

// newNode has four whole cores and one VM of two vCPUs for each name given. The
// agent is heard, the node is metered, and the policy enforces.
func newNode(names ...string) model.Node {
	node := model.Node{
		Name: "n", Reported: true, Metered: true, Review: true,
		Policy: model.Policy{
			Name: "p", Mode: v1alpha1.ModeEnforce, Levers: []v1alpha1.Lever{v1alpha1.LeverAffinity},
			MaxCoreUtilization: 0.85, Sharing: v1alpha1.ShareAny, RecommendationValidity: time.Hour,
		},
		Rates: &model.NodeRates{Node: "n", Time: now(), IntervalSeconds: 1},
	}
	for i := range 4 {
		node.Topology.Cores = append(node.Topology.Cores, model.Core{CPUs: units.NewCPUSet(i, i+4)})
	}
	for _, name := range names {
		node.VMs = append(node.VMs, model.VM{PodUID: name, Namespace: "ns", Name: name, Profile: "pr", Affinity: v1alpha1.AffinityPinned, NamespaceSelected: true})
		vm := model.VMRates{PodUID: name, Namespace: "ns", Name: name, AllowedCPUs: node.Topology.Online()}
		for i := range 2 {
			vm.VCPUs = append(vm.VCPUs, model.VCPURates{Index: i, CPUs: vm.AllowedCPUs, ThreadRates: model.ThreadRates{RunCores: 0.3}})
		}
		node.Rates.VMs = append(node.Rates.VMs, vm)
	}
	return node
}

// with returns the node after a change, with the plan given in force.
func with(node model.Node, current *model.Plan, change func(*model.Node)) model.Node {
	node.Current = current
	if change != nil {
		change(&node)
	}
	return node
}

// outcome is a plan in short: what tests are about.
func outcome(plan model.Plan) string {
	text := fmt.Sprintf("%s apply=%t", plan.Reason, plan.Apply)
	for _, vm := range plan.VMs {
		text += fmt.Sprintf(" %s:%s/%d", vm.PodUID, vm.Reason(v1alpha1.LeverAffinity).Reason, len(vm.Pins))
	}
	return text
}

func unknownMeter(n *model.Node) { n.Metered, n.MeterUnknown = false, true }

func TestPlanReasons(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*model.Node)
		want   string
	}{
		"pinned":                          {nil, "Planned apply=true a:Pinned/2"},
		"no VMs":                          {func(n *model.Node) { n.VMs = nil }, "NothingToDo apply=true"},
		"observe a VM that is left alone": {func(n *model.Node) { n.Policy.Mode, n.VMs[0].Dedicated = v1alpha1.ModeObserve, true }, "ObserveOnly apply=false a:DedicatedCPUs/0"},
		"observe, opted out":              {func(n *model.Node) { n.Policy.Mode, n.OptOut.All = v1alpha1.ModeObserve, true }, "ObserveOnly apply=false a:OptedOut/0"},
		"lever not allowed":               {func(n *model.Node) { n.Policy.Levers = []v1alpha1.Lever{v1alpha1.LeverTrafficShare} }, "LeverNotAllowed apply=false a:LeverNotAllowed/0"},
		"no meter, and shared":            {func(n *model.Node) { n.Metered, n.VMs[0].Affinity = false, v1alpha1.AffinityShared }, "NoMeter apply=false a:SharedPreferred/0"},
		"no meter, modelled":              {func(n *model.Node) { n.Metered = false; n.Policy.AllowModelled = true }, "Planned apply=true a:Pinned/2"},
		"meter unknown, modelled":         {func(n *model.Node) { unknownMeter(n); n.Policy.AllowModelled = true }, "Planned apply=true a:Pinned/2"},
		"meter unknown, recommend":        {func(n *model.Node) { unknownMeter(n); n.Policy.Mode = v1alpha1.ModeRecommend }, "AwaitingApproval apply=false a:Pinned/2"},
		"dedicated by its VMI":            {func(n *model.Node) { n.VMs[0].Dedicated = true }, "NothingToDo apply=true a:DedicatedCPUs/0"},
		"dedicated by the agent":          {func(n *model.Node) { n.Rates.VMs[0].Dedicated = true }, "NothingToDo apply=true a:DedicatedCPUs/0"},
		"no threads found":                {func(n *model.Node) { n.Rates.VMs = nil }, "NothingToDo apply=true a:NotRunning/0"},
		"all cores reserved":              {func(n *model.Node) { n.Policy.Reserved = units.NewCPUSet(0, 1, 2, 3) }, "NothingToDo apply=true a:NoAllowedCore/0"},
		"all cores isolated":              {func(n *model.Node) { n.Topology.Taken = units.NewCPUSet(4, 5, 6, 7) }, "NothingToDo apply=true a:NoAllowedCore/0"},
		"hot": {func(n *model.Node) {
			for cpu := range 8 {
				n.Rates.CPUs = append(n.Rates.CPUs, model.CPURates{CPU: cpu, BusyCores: 0.95})
			}
		}, "NothingToDo apply=true a:CoreWouldBeHot/0"},
		"recommend":                 {func(n *model.Node) { n.Policy.Mode = v1alpha1.ModeRecommend }, "AwaitingApproval apply=false a:Pinned/2"},
		"nothing to be recommended": {func(n *model.Node) { n.Policy.Mode = v1alpha1.ModeRecommend; n.VMs = nil }, "NothingToDo apply=false"},
	} {
		node := newNode("a")
		node.Rates.VMs = append([]model.VMRates(nil), node.Rates.VMs...)
		if got := outcome(Plan(with(node, nil, tc.change), now())); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}

// What is in force stays while nothing new may be done, and goes with its
// permission.
func TestPlanKeepsAndDrops(t *testing.T) {
	inForce := Plan(newNode("a", "b"), now())
	for name, tc := range map[string]struct {
		change func(*model.Node)
		want   string
	}{
		"nothing changed": {nil, "Planned apply=true a:Pinned/2 b:Pinned/2"},
		"report unreadable, a VM is to be shared": {func(n *model.Node) {
			n.Reported, n.ReportUnreadable, n.Rates = false, true, nil
			n.VMs[0].Affinity = v1alpha1.AffinityShared
		}, "ReportUnreadable apply=true a:SharedPreferred/0 b:Pinned/2"},
		"frozen, a VM went":            {func(n *model.Node) { n.Frozen = true; n.VMs = n.VMs[1:] }, "NodeFrozen apply=true b:Pinned/2"},
		"frozen, a VM is to be shared": {func(n *model.Node) { n.Frozen = true; n.VMs[0].Affinity = v1alpha1.AffinityShared }, "NodeFrozen apply=true a:SharedPreferred/0 b:Pinned/2"},
		"frozen, reserved":             {func(n *model.Node) { n.Frozen = true; n.Policy.Reserved = inForce.VMs[0].Pins[0].CPUs }, "NodeFrozen apply=true a:NodeFrozen/0 b:Pinned/2"},
		"frozen, cpuset shrank":        {func(n *model.Node) { n.Frozen = true; n.Rates.VMs[1].AllowedCPUs = units.NewCPUSet(0, 4) }, "NodeFrozen apply=true a:Pinned/2 b:NodeFrozen/0"},
		"threads not seen this time":   {func(n *model.Node) { n.Rates.VMs = n.Rates.VMs[1:] }, "Planned apply=true a:Pinned/2 b:Pinned/2"},
	} {
		got := Plan(with(newNode("a", "b"), &inForce, tc.change), now())
		if outcome(got) != tc.want {
			t.Errorf("%s: %s, want %s", name, outcome(got), tc.want)
		}
		for _, vm := range got.VMs {
			was, _ := inForce.VM(vm.PodUID)
			if len(vm.Pins) > 0 && !cmp.Equal(vm.Pins, was.Pins) {
				t.Errorf("%s: pins of %s moved from %v to %v", name, vm.PodUID, was.Pins, vm.Pins)
			}
		}
	}
}

func TestPlanDoesNotEnforceARecommendationOnAFrozenNode(t *testing.T) {
	node := newNode("a")
	node.Policy.Mode = v1alpha1.ModeRecommend
	recommended := Plan(node, now())
	for name, tc := range map[string]struct {
		change func(*model.Node)
		want   string
	}{
		"approved while frozen": {func(n *model.Node) { n.Policy.Approvals = []string{recommended.Revision} }, "NodeFrozen apply=false a:Pinned/2"},
		"enforced while frozen": {func(n *model.Node) { n.Policy.Mode = v1alpha1.ModeEnforce }, "NodeFrozen apply=true a:NodeFrozen/0"},
	} {
		frozen := with(node, &recommended, tc.change)
		frozen.Frozen = true
		if got := outcome(Plan(frozen, now())); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}

func TestRecommendationStands(t *testing.T) {
	node := newNode("a", "b")
	node.Policy.Mode = v1alpha1.ModeRecommend
	first := Plan(node, now())
	approve := func(n *model.Node) { n.Policy.Approvals = []string{first.Revision} }
	for name, tc := range map[string]struct {
		change   func(*model.Node)
		after    time.Duration
		want     string
		revision bool
	}{
		"as it was": {nil, time.Minute, "AwaitingApproval apply=false a:Pinned/2 b:Pinned/2", true},
		"approved":  {approve, time.Minute, "Planned apply=true a:Pinned/2 b:Pinned/2", true},
		"loads changed": {func(n *model.Node) { n.Rates.VMs[0].VCPUs[0].RunCores = 1.2 }, time.Minute,
			"AwaitingApproval apply=false a:Pinned/2 b:Pinned/2", true},
		"approved, a VM went": {func(n *model.Node) { approve(n); n.VMs = n.VMs[:1] }, time.Minute, "Planned apply=true a:Pinned/2", true},
		"all its VMs went":    {func(n *model.Node) { approve(n); n.VMs = nil }, time.Minute, "NothingToDo apply=false", false},
		"a VM came": {func(n *model.Node) {
			more := newNode("a", "b", "c")
			n.VMs, n.Rates = more.VMs, more.Rates
			approve(n)
		}, time.Minute, "Planned apply=true a:Pinned/2 b:Pinned/2 c:AwaitingApproval/0", true},
		"a VM came, and the validity ended": {func(n *model.Node) {
			more := newNode("a", "b", "c")
			n.VMs, n.Rates = more.VMs, more.Rates
			approve(n)
		}, 2 * time.Hour, "AwaitingApproval apply=false a:Pinned/2 b:Pinned/2 c:Pinned/2", false},
		"approved when the validity had ended": {approve, 2 * time.Hour, "AwaitingApproval apply=false a:Pinned/2 b:Pinned/2", false},
		"approved when it just ended":          {approve, time.Hour, "AwaitingApproval apply=false a:Pinned/2 b:Pinned/2", false},
		"approved when it is about to end":     {approve, time.Hour - time.Second, "Planned apply=true a:Pinned/2 b:Pinned/2", true},
		"in force, the validity ended and nothing changed": {func(n *model.Node) { approve(n); n.Current = applied(first) }, 2 * time.Hour,
			"Planned apply=true a:Pinned/2 b:Pinned/2", true},
		"in force, the approval went and the validity ended": {func(n *model.Node) { n.Current = applied(first) }, 2 * time.Hour,
			"AwaitingApproval apply=false a:Pinned/2 b:Pinned/2", false},
	} {
		got := Plan(with(clone(node), &first, tc.change), now().Add(tc.after))
		if outcome(got) != tc.want {
			t.Errorf("%s: %s, want %s", name, outcome(got), tc.want)
		}
		if (got.Revision == first.Revision) != tc.revision {
			t.Errorf("%s: revision %s after %s", name, got.Revision, first.Revision)
		}
	}
}

// applied is a plan that the agent is to act on.
func applied(plan model.Plan) *model.Plan {
	plan.Apply = true
	return &plan
}

// clone copies what the tests change.
func clone(node model.Node) model.Node {
	rates := *node.Rates
	rates.VMs = append([]model.VMRates(nil), rates.VMs...)
	for i := range rates.VMs {
		rates.VMs[i].VCPUs = append([]model.VCPURates(nil), rates.VMs[i].VCPUs...)
	}
	node.Rates = &rates
	node.VMs = append([]model.VM(nil), node.VMs...)
	return node
}

func TestRevision(t *testing.T) {
	plan := Plan(newNode("a", "b"), now())
	explained := append([]model.VMPlan(nil), plan.VMs...)
	explained[0].Reasons = []model.LeverReason{{Lever: v1alpha1.LeverAffinity, Reason: "Other", Message: "words"}}
	explained = append(explained, model.VMPlan{PodUID: "c", Reasons: []model.LeverReason{{Lever: v1alpha1.LeverAffinity, Reason: v1alpha1.ReasonSharedPreferred}}})
	if model.Revision(explained) != plan.Revision {
		t.Error("words, or a VM left alone, change the revision")
	}
	if model.Revision(plan.VMs[:1]) == plan.Revision {
		t.Error("a VM less does not change the revision")
	}
	if plan.Revision == model.Revision(nil) || len(plan.Revision) != 16 {
		t.Errorf("revision %q", plan.Revision)
	}
}

// A VM that was left unbound is bound at once where that would be well with all of its
// vCPUs busy, and else when it is tried again.
func TestUnboundVMsAreTriedAgain(t *testing.T) {
	const auto, pinned = v1alpha1.AffinityAuto, v1alpha1.AffinityPinned
	for name, tc := range map[string]struct {
		affinity v1alpha1.AffinityPreference
		was      string
		// busy is what else each CPU does.
		busy   units.Cores
		review bool
		want   string
	}{
		"room for all vCPUs":                   {auto, v1alpha1.ReasonCoreWouldBeHot, 0.1, false, "Planned apply=true a:Pinned/2"},
		"not while one may be busy":            {auto, v1alpha1.ReasonCoreWouldBeHot, 0.5, false, "NothingToDo apply=true a:CoreWouldBeHot/0"},
		"nor when it was no saving":            {auto, v1alpha1.ReasonNoSaving, 0.5, false, "NothingToDo apply=true a:NoSaving/0"},
		"nor when its owner wishes it":         {pinned, v1alpha1.ReasonCoreWouldBeHot, 0.5, false, "NothingToDo apply=true a:CoreWouldBeHot/0"},
		"but when it is looked at anew":        {auto, v1alpha1.ReasonCoreWouldBeHot, 0.5, true, "Planned apply=true a:Pinned/2"},
		"and when its owner wishes it by now":  {pinned, v1alpha1.ReasonNoSaving, 0.5, false, "Planned apply=true a:Pinned/2"},
		"and when another reason went away":    {auto, v1alpha1.ReasonLeverNotAllowed, 0.5, false, "Planned apply=true a:Pinned/2"},
		"and when the plan knew nothing of it": {auto, "", 0.5, false, "Planned apply=true a:Pinned/2"},
	} {
		node := newNode("a")
		node.VMs[0].Affinity, node.Review = tc.affinity, tc.review
		for cpu := range 8 {
			node.Rates.CPUs = append(node.Rates.CPUs, model.CPURates{CPU: cpu, BusyCores: tc.busy})
		}
		for i := range node.Rates.VMs[0].VCPUs {
			node.Rates.VMs[0].VCPUs[i].RunCores = 0.1
		}
		current := &model.Plan{Policy: "p", Mode: v1alpha1.ModeEnforce, Apply: true}
		if tc.was != "" {
			current.VMs = []model.VMPlan{{PodUID: "a", Reasons: []model.LeverReason{{Lever: v1alpha1.LeverAffinity, Reason: tc.was}}}}
		}
		if got := outcome(Plan(with(node, current, nil), now())); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}

// What the agent's guard undid because a VM waited is planned otherwise, for as long as the
// agent remembers it.
func TestPlansLearnFromTrips(t *testing.T) {
	trip := model.Trip{PodUID: "a", Lever: v1alpha1.LeverAffinity, Symptom: model.SymptomRunDelay, Time: now(), Until: now().Add(5 * time.Minute), Count: 1}
	with := func(change func(*model.Trip)) []model.Trip {
		other := trip
		change(&other)
		return []model.Trip{other}
	}
	for name, tc := range map[string]struct {
		trips []model.Trip
		want  string
	}{
		"none":             {nil, "Planned apply=true a:Pinned/2"},
		"it waited":        {[]model.Trip{trip}, "NothingToDo apply=true a:WouldWait/0"},
		"another VM did":   {with(func(t *model.Trip) { t.PodUID = "b" }), "Planned apply=true a:Pinned/2"},
		"the node tripped": {with(func(t *model.Trip) { t.PodUID = "" }), "Planned apply=true a:Pinned/2"},
		"packets were lost": {with(func(t *model.Trip) {
			t.Lever, t.Symptom = v1alpha1.LeverBuffering, model.SymptomRingOverrun
		}), "Planned apply=true a:Pinned/2"},
	} {
		// One core has a single CPU, which two vCPUs can only share.
		node := newNode("a")
		node.Topology.Cores = []model.Core{{CPUs: units.NewCPUSet(0)}}
		for i := range node.Rates.VMs[0].VCPUs {
			node.Rates.VMs[0].VCPUs[i].RunCores = 0.1
		}
		node.Rates.VMs[0].AllowedCPUs = units.NewCPUSet(0)
		before := Plan(node, now())
		node.Rates.Trips = tc.trips
		for _, current := range []*model.Plan{nil, &before} {
			node.Current = current
			if got := outcome(Plan(node, now())); got != tc.want {
				t.Errorf("%s, in force %t: %s, want %s", name, current != nil, got, tc.want)
			}
		}
	}
}
