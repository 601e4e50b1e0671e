package planner

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

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
			Name: "p", Mode: model.ModeEnforce, Levers: []model.Lever{model.LeverAffinity},
			MaxCoreUtilization: 0.85, Sharing: model.ShareAny, RecommendationValidity: time.Hour,
		},
		Rates: &model.NodeRates{Node: "n", Time: now(), IntervalSeconds: 1},
	}
	for i := range 4 {
		node.Topology.Cores = append(node.Topology.Cores, model.Core{CPUs: units.NewCPUSet(i, i+4)})
	}
	for _, name := range names {
		node.VMs = append(node.VMs, model.VM{PodUID: name, Namespace: "ns", Name: name, Profile: "pr", Affinity: model.AffinityPinned, NamespaceSelected: true})
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
		text += fmt.Sprintf(" %s:%s/%d", vm.PodUID, vm.Reason(model.LeverAffinity).Reason, len(vm.Pins))
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
		"observe":                         {func(n *model.Node) { n.Policy.Mode = model.ModeObserve }, "ObserveOnly apply=false a:ObserveOnly/0"},
		"observe a VM that is left alone": {func(n *model.Node) { n.Policy.Mode, n.VMs[0].Dedicated = model.ModeObserve, true }, "ObserveOnly apply=false a:DedicatedCPUs/0"},
		"observe, opted out":              {func(n *model.Node) { n.Policy.Mode, n.OptOut.All = model.ModeObserve, true }, "ObserveOnly apply=false a:OptedOut/0"},
		"no mode is like observe":         {func(n *model.Node) { n.Policy.Mode = "" }, "ObserveOnly apply=false a:ObserveOnly/0"},
		"lever not allowed":               {func(n *model.Node) { n.Policy.Levers = []model.Lever{model.LeverTrafficShare} }, "LeverNotAllowed apply=false a:LeverNotAllowed/0"},
		"no meter":                        {func(n *model.Node) { n.Metered = false }, "NoMeter apply=false a:NoMeter/0"},
		"no meter, and shared":            {func(n *model.Node) { n.Metered, n.VMs[0].Affinity = false, model.AffinityShared }, "NoMeter apply=false a:SharedPreferred/0"},
		"no meter, modelled":              {func(n *model.Node) { n.Metered = false; n.Policy.AllowModelled = true }, "Planned apply=true a:Pinned/2"},
		"meter unknown":                   {unknownMeter, "AwaitingMeter apply=true a:AwaitingMeter/0"},
		"meter unknown, modelled":         {func(n *model.Node) { unknownMeter(n); n.Policy.AllowModelled = true }, "Planned apply=true a:Pinned/2"},
		"meter unknown, recommend":        {func(n *model.Node) { unknownMeter(n); n.Policy.Mode = model.ModeRecommend }, "AwaitingApproval apply=false a:Pinned/2"},
		"no report":                       {func(n *model.Node) { n.Reported = false; n.Rates = nil }, "NoReport apply=true a:NoReport/0"},
		"no rates":                        {func(n *model.Node) { n.Rates = nil }, "NoRates apply=true a:NoRates/0"},
		"frozen":                          {func(n *model.Node) { n.Frozen = true }, "NodeFrozen apply=true a:NodeFrozen/0"},
		"namespace not selected":          {func(n *model.Node) { n.VMs[0].NamespaceSelected = false }, "NothingToDo apply=true a:NamespaceNotSelected/0"},
		"dedicated by its VMI":            {func(n *model.Node) { n.VMs[0].Dedicated = true }, "NothingToDo apply=true a:DedicatedCPUs/0"},
		"dedicated by the agent":          {func(n *model.Node) { n.Rates.VMs[0].Dedicated = true }, "NothingToDo apply=true a:DedicatedCPUs/0"},
		"shared":                          {func(n *model.Node) { n.VMs[0].Affinity = model.AffinityShared }, "NothingToDo apply=true a:SharedPreferred/0"},
		"no threads found":                {func(n *model.Node) { n.Rates.VMs = nil }, "NothingToDo apply=true a:NotRunning/0"},
		"all cores reserved":              {func(n *model.Node) { n.Policy.Reserved = units.NewCPUSet(0, 1, 2, 3) }, "NothingToDo apply=true a:NoAllowedCore/0"},
		"all cores isolated":              {func(n *model.Node) { n.Topology.Isolated = units.NewCPUSet(4, 5, 6, 7) }, "NothingToDo apply=true a:NoAllowedCore/0"},
		"hot": {func(n *model.Node) {
			for cpu := range 8 {
				n.Rates.CPUs = append(n.Rates.CPUs, model.CPURates{CPU: cpu, BusyCores: 0.95})
			}
		}, "NothingToDo apply=true a:CoreWouldBeHot/0"},
		"recommend":                 {func(n *model.Node) { n.Policy.Mode = model.ModeRecommend }, "AwaitingApproval apply=false a:Pinned/2"},
		"recommend without meter":   {func(n *model.Node) { n.Policy.Mode = model.ModeRecommend; n.Metered = false }, "AwaitingApproval apply=false a:Pinned/2"},
		"nothing to be recommended": {func(n *model.Node) { n.Policy.Mode = model.ModeRecommend; n.VMs = nil }, "NothingToDo apply=false"},
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
		"no rates":        {func(n *model.Node) { n.Rates = nil }, "NoRates apply=true a:Pinned/2 b:Pinned/2"},
		"no report":       {func(n *model.Node) { n.Reported = false; n.Rates = nil }, "NoReport apply=true a:Pinned/2 b:Pinned/2"},
		"report unreadable, a VM is to be shared": {func(n *model.Node) {
			n.Reported, n.ReportUnreadable, n.Rates = false, true, nil
			n.VMs[0].Affinity = model.AffinityShared
		}, "ReportUnreadable apply=true a:SharedPreferred/0 b:Pinned/2"},
		"frozen":                       {func(n *model.Node) { n.Frozen = true }, "NodeFrozen apply=true a:Pinned/2 b:Pinned/2"},
		"frozen, a VM went":            {func(n *model.Node) { n.Frozen = true; n.VMs = n.VMs[1:] }, "NodeFrozen apply=true b:Pinned/2"},
		"frozen, a VM is to be shared": {func(n *model.Node) { n.Frozen = true; n.VMs[0].Affinity = model.AffinityShared }, "NodeFrozen apply=true a:SharedPreferred/0 b:Pinned/2"},
		"frozen, reserved":             {func(n *model.Node) { n.Frozen = true; n.Policy.Reserved = inForce.VMs[0].Pins[0].CPUs }, "NodeFrozen apply=true a:NodeFrozen/0 b:Pinned/2"},
		"frozen, cpuset shrank":        {func(n *model.Node) { n.Frozen = true; n.Rates.VMs[1].AllowedCPUs = units.NewCPUSet(0, 4) }, "NodeFrozen apply=true a:Pinned/2 b:NodeFrozen/0"},
		"frozen, observe":              {func(n *model.Node) { n.Frozen = true; n.Policy.Mode = model.ModeObserve }, "ObserveOnly apply=false a:ObserveOnly/0 b:ObserveOnly/0"},
		"threads not seen this time":   {func(n *model.Node) { n.Rates.VMs = n.Rates.VMs[1:] }, "Planned apply=true a:Pinned/2 b:Pinned/2"},
		"meter lost":                   {func(n *model.Node) { n.Metered = false }, "NoMeter apply=false a:NoMeter/0 b:NoMeter/0"},
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

// Until the agents were asked, nothing is said that would be taken back.
func TestPlanRepeatsItselfWhileRatesAreAwaited(t *testing.T) {
	inForce := Plan(with(newNode("a", "b"), nil, func(n *model.Node) { n.Rates.VMs = n.Rates.VMs[:1] }), now())
	for name, tc := range map[string]struct {
		change func(*model.Node)
		want   string
	}{
		"as it was":            {nil, "Planned apply=true a:Pinned/2 b:NotRunning/0"},
		"a VM went":            {func(n *model.Node) { n.VMs = n.VMs[1:] }, "NoRates apply=true b:NotRunning/0"},
		"a VM is to be shared": {func(n *model.Node) { n.VMs[1].Affinity = model.AffinityShared }, "Planned apply=true a:Pinned/2 b:SharedPreferred/0"},
		"cordoned":             {func(n *model.Node) { n.Frozen = true }, "NodeFrozen apply=true a:Pinned/2 b:NodeFrozen/0"},
		"another policy":       {func(n *model.Node) { n.Policy.Name = "q" }, "NoRates apply=true a:Pinned/2 b:NoRates/0"},
	} {
		node := with(newNode("a", "b"), &inForce, tc.change)
		node.Rates, node.RatesAwaited = nil, true
		if got := outcome(Plan(node, now())); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}

// While it is not known whether the node is metered, what is in force stays as
// it is, and goes with its permission.
func TestPlanRepeatsItselfWhileTheMeterIsAwaited(t *testing.T) {
	hot := func(n *model.Node) {
		for cpu := range 8 {
			n.Rates.CPUs = append(n.Rates.CPUs, model.CPURates{CPU: cpu, BusyCores: 0.95})
		}
	}
	inForce := Plan(newNode("a", "b"), now())
	none := Plan(with(newNode("a", "b"), nil, hot), now())
	unmetered := Plan(with(newNode("a", "b"), &inForce, func(n *model.Node) { n.Metered = false }), now())
	for name, tc := range map[string]struct {
		current *model.Plan
		change  func(*model.Node)
		want    string
	}{
		"as it was":                  {&inForce, nil, "Planned apply=true a:Pinned/2 b:Pinned/2"},
		"no rates yet":               {&inForce, func(n *model.Node) { n.Rates, n.RatesAwaited = nil, true }, "Planned apply=true a:Pinned/2 b:Pinned/2"},
		"a VM came":                  {&inForce, func(n *model.Node) { more := newNode("a", "b", "c"); n.VMs, n.Rates = more.VMs, more.Rates }, "Planned apply=true a:Pinned/2 b:Pinned/2 c:AwaitingMeter/0"},
		"a VM is to be shared":       {&inForce, func(n *model.Node) { n.VMs[0].Affinity = model.AffinityShared }, "AwaitingMeter apply=true a:SharedPreferred/0 b:Pinned/2"},
		"the lever is gone":          {&inForce, func(n *model.Node) { n.Policy.Levers = nil }, "LeverNotAllowed apply=false a:LeverNotAllowed/0 b:LeverNotAllowed/0"},
		"reserved":                   {&inForce, func(n *model.Node) { n.Policy.Reserved = n.Topology.Online() }, "AwaitingMeter apply=true a:AwaitingMeter/0 b:AwaitingMeter/0"},
		"cordoned":                   {&inForce, func(n *model.Node) { n.Frozen = true }, "NodeFrozen apply=true a:Pinned/2 b:Pinned/2"},
		"cores were hot":             {&none, nil, "NothingToDo apply=true a:CoreWouldBeHot/0 b:CoreWouldBeHot/0"},
		"there was no meter":         {&unmetered, nil, "NoMeter apply=false a:NoMeter/0 b:NoMeter/0"},
		"no meter, one was shared":   {&unmetered, func(n *model.Node) { n.VMs[0].Affinity = model.AffinityShared }, "NoMeter apply=false a:SharedPreferred/0 b:NoMeter/0"},
		"no meter, and no rates yet": {&unmetered, func(n *model.Node) { n.Rates, n.RatesAwaited = nil, true }, "NoMeter apply=false a:NoMeter/0 b:NoMeter/0"},
	} {
		node := with(newNode("a", "b"), tc.current, tc.change)
		unknownMeter(&node)
		got := Plan(node, now())
		if outcome(got) != tc.want {
			t.Errorf("%s: %s, want %s", name, outcome(got), tc.want)
		}
		for _, vm := range got.VMs {
			if was, _ := tc.current.VM(vm.PodUID); len(vm.Pins) > 0 && !cmp.Equal(vm.Pins, was.Pins) {
				t.Errorf("%s: pins of %s moved from %v to %v", name, vm.PodUID, was.Pins, vm.Pins)
			}
		}
	}
}

// Whatever else is unknown, a permission that went takes the pins with it, and
// nothing comes that was not there.
func TestPlanOfUnknownMeterOnlyTakes(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 11))
		names := []string{"a", "b", "c", "d"}
		inForce := Plan(newNode(names[:1+r.IntN(4)]...), now())
		node := with(newNode(names...), &inForce, unknownMeter)
		for i := range node.VMs {
			switch r.IntN(4) {
			case 0:
				node.VMs[i].Affinity = model.AffinityShared
			case 1:
				node.VMs[i].NamespaceSelected = false
			case 2:
				node.VMs[i].Dedicated = true
			}
		}
		node.Frozen = r.IntN(3) == 0
		if r.IntN(3) == 0 {
			node.Rates = nil
		}
		for i, vm := range Plan(node, now()).VMs {
			was, _ := inForce.VM(vm.PodUID)
			of := node.VMs[i]
			allowed := of.Affinity == model.AffinityPinned && of.NamespaceSelected && !of.Dedicated
			if wanted := allowed && len(was.Pins) > 0; (len(vm.Pins) > 0) != wanted || wanted && !cmp.Equal(vm.Pins, was.Pins) {
				t.Fatalf("seed %d: VM %+v had pins %v, has %v", seed, of, was.Pins, vm.Pins)
			}
		}
	}
}

func TestPlanDoesNotEnforceARecommendationOnAFrozenNode(t *testing.T) {
	node := newNode("a")
	node.Policy.Mode = model.ModeRecommend
	recommended := Plan(node, now())
	for name, tc := range map[string]struct {
		change func(*model.Node)
		want   string
	}{
		"approved while frozen": {func(n *model.Node) { n.Policy.Approvals = []string{recommended.Revision} }, "NodeFrozen apply=false a:Pinned/2"},
		"enforced while frozen": {func(n *model.Node) { n.Policy.Mode = model.ModeEnforce }, "NodeFrozen apply=true a:NodeFrozen/0"},
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
	node.Policy.Mode = model.ModeRecommend
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
	explained[0].Reasons = []model.LeverReason{{Lever: model.LeverAffinity, Reason: "Other", Message: "words"}}
	explained = append(explained, model.VMPlan{PodUID: "c", Reasons: []model.LeverReason{{Lever: model.LeverAffinity, Reason: model.ReasonSharedPreferred}}})
	if model.Revision(explained) != plan.Revision {
		t.Error("words, or a VM left alone, change the revision")
	}
	if model.Revision(plan.VMs[:1]) == plan.Revision {
		t.Error("a VM less does not change the revision")
	}
	if plan.Revision == model.Revision(nil) || len(plan.Revision) != 16 {
		t.Errorf("revision %q", plan.Revision)
	}
	// Approvals in policies name these revisions: what they hash must never change.
	pinned := func(name string, cores ...int) model.VMPlan {
		vm := model.VMPlan{PodUID: name, Pool: model.PoolCompute}
		for i, core := range cores {
			vm.Pins = append(vm.Pins, model.Pin{VCPU: i, CPUs: units.NewCPUSet(core, core+4)})
		}
		return vm
	}
	if got, want := model.Revision([]model.VMPlan{pinned("a", 0, 1), pinned("b", 2, 3)}), "7fc6c779501da300"; got != want {
		t.Errorf("revision %q of pins alone, want %q as ever", got, want)
	}
}

// A plan in force is kept for good while the rates are.
func TestPlanIsStable(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 7))
		names := []string{"a", "b", "c", "d", "e"}[:1+r.IntN(5)]
		node := newNode(names...)
		for i := range node.Rates.VMs {
			for k := range node.Rates.VMs[i].VCPUs {
				node.Rates.VMs[i].VCPUs[k].RunCores = units.Cores(r.Float64() * 0.6)
			}
		}
		plan := Plan(node, now())
		again := Plan(with(node, &plan, nil), now().Add(time.Minute))
		third := Plan(with(node, &again, nil), now().Add(2*time.Minute))
		if diff := cmp.Diff(again, third); diff != "" {
			t.Fatalf("seed %d: the plan changed (-was +is):\n%s", seed, diff)
		}
	}
}

// A recommendation of which nothing is allowed any more makes way for the next
// at once.
func TestARecommendationOfAForbiddenLeverDoesNotStand(t *testing.T) {
	node := shapingNode("a", "b")
	node.Policy.Mode = model.ModeRecommend
	recommended := Plan(node, now())
	node.Policy.Levers = []model.Lever{model.LeverAffinity}
	got := Plan(with(node, &recommended, nil), now().Add(time.Minute))
	if want := "AwaitingApproval apply=false a:Pinned/2 b:Pinned/2"; outcome(got) != want {
		t.Errorf("%s, want %s", outcome(got), want)
	}
}
