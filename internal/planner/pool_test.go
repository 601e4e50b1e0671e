package planner

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/planner/pools"
	"github.com/joulevirt/joulevirt/internal/units"
)

// poolNode has VMs of one vCPU each: those named n... move packets, the others are
// always busy. Its policy allows levers Affinity and Slice, and its kernel has slices.
func poolNode(names ...string) model.Node {
	node := newNode(names...)
	node.Policy.Levers = []model.Lever{model.LeverAffinity, model.LeverSlice}
	node.Slices = true
	for i, name := range names {
		node.VMs[i].Affinity, node.VMs[i].TrafficClass = model.AffinityAuto, model.TrafficInteractive
		behave(&node.Rates.VMs[i], name)
	}
	return node
}

func behave(vm *model.VMRates, name string) {
	vm.VCPUs = vm.VCPUs[:1]
	vm.Weight = 1024
	vm.VCPUs[0].RunCores = 1
	vm.Taps = []model.TapRates{{ToVM: model.TrafficRates{PacketsPerSecond: 2}}}
	if strings.HasPrefix(name, "n") {
		vm.VCPUs[0].RunCores = 0.3
		vm.Taps[0].ToVM.PacketsPerSecond = 5000
	}
}

func sliceAlone(n *model.Node) { n.Policy.Levers = []model.Lever{model.LeverSlice} }

// sliced is a plan in short: what lever Slice does.
func sliced(plan model.Plan) string {
	text := fmt.Sprintf("%s apply=%t", plan.Reason, plan.Apply)
	for _, vm := range plan.VMs {
		text += fmt.Sprintf(" %s:%s/%s/%v", vm.PodUID, vm.Pool, vm.Reason(model.LeverSlice).Reason, vm.Slice)
	}
	return text
}

func TestSliceReasons(t *testing.T) {
	const both = " c:Compute/LongSlice/30ms n:Network/ShortSlice/1ms"
	for name, tc := range map[string]struct {
		change func(*model.Node)
		want   string
	}{
		"both pools":             {nil, "Planned apply=true" + both},
		"one pool":               {func(n *model.Node) { behave(&n.Rates.VMs[1], "c") }, "NothingToDo apply=true c:Compute/NoOtherPool/0s n:Compute/NoOtherPool/0s"},
		"what a VM prefers":      {func(n *model.Node) { n.VMs[0].Affinity, n.VMs[1].Affinity = model.AffinityShared, model.AffinityShared }, "Planned apply=true" + both},
		"no slices":              {func(n *model.Node) { n.Slices = false }, "NothingToDo apply=true c:/SlicesUnsupported/0s n:/SlicesUnsupported/0s"},
		"another lever":          {func(n *model.Node) { n.Policy.Levers = []model.Lever{model.LeverShaping} }, "NothingToDo apply=true c://0s n://0s"},
		"namespace":              {func(n *model.Node) { n.VMs[0].NamespaceSelected = false }, "NothingToDo apply=true c:/NamespaceNotSelected/0s n:Network/NoOtherPool/0s"},
		"dedicated":              {func(n *model.Node) { n.Rates.VMs[1].Dedicated = true }, "NothingToDo apply=true c:Compute/NoOtherPool/0s n:/DedicatedCPUs/0s"},
		"not running":            {func(n *model.Node) { n.Rates.VMs = n.Rates.VMs[1:] }, "NothingToDo apply=true c:/NotRunning/0s n:Network/NoOtherPool/0s"},
		"observe":                {func(n *model.Node) { n.Policy.Mode = model.ModeObserve }, "ObserveOnly apply=false c:/ObserveOnly/0s n:/ObserveOnly/0s"},
		"observe, old kernel":    {func(n *model.Node) { n.Policy.Mode, n.Slices = model.ModeObserve, false }, "ObserveOnly apply=false c:/SlicesUnsupported/0s n:/SlicesUnsupported/0s"},
		"no meter":               {func(n *model.Node) { n.Metered = false }, "NoMeter apply=false c:/NoMeter/0s n:/NoMeter/0s"},
		"no meter and no slices": {func(n *model.Node) { n.Metered, n.Slices = false, false }, "NoMeter apply=false c:/SlicesUnsupported/0s n:/SlicesUnsupported/0s"},
		"meter unknown":          {unknownMeter, "AwaitingMeter apply=true c:/AwaitingMeter/0s n:/AwaitingMeter/0s"},
		"no report":              {func(n *model.Node) { n.Reported, n.Slices, n.Rates = false, false, nil }, "NoReport apply=true c:/NoReport/0s n:/NoReport/0s"},
		"no rates":               {func(n *model.Node) { n.Rates = nil }, "NoRates apply=true c:/NoRates/0s n:/NoRates/0s"},
		"frozen":                 {func(n *model.Node) { n.Frozen = true }, "NodeFrozen apply=true c:/NodeFrozen/0s n:/NodeFrozen/0s"},
		"recommend":              {func(n *model.Node) { n.Policy.Mode = model.ModeRecommend }, "AwaitingApproval apply=false" + both},
	} {
		node := with(poolNode("c", "n"), nil, sliceAlone)
		plan := Plan(with(node, nil, tc.change), now())
		if got := sliced(plan); got != tc.want {
			t.Errorf("%s:\n     %s\nwant %s", name, got, tc.want)
		}
		for _, vm := range plan.VMs {
			if len(vm.Pins) > 0 || !vm.Threads.IsZero() {
				t.Errorf("%s: VM %s is bound, which is another lever", name, vm.PodUID)
			}
		}
	}
}

func TestSlicesAreKeptAndDropped(t *testing.T) {
	const of, on = " c:Compute/LongSlice/30ms", " n:Network/ShortSlice/1ms"
	inForce := Plan(with(poolNode("c", "n"), nil, sliceAlone), now())
	for name, tc := range map[string]struct {
		change func(*model.Node)
		want   string
	}{
		"nothing changed":         {nil, "Planned apply=true" + of + on},
		"no rates":                {func(n *model.Node) { n.Rates = nil }, "NoRates apply=true" + of + on},
		"no report":               {func(n *model.Node) { n.Reported, n.Slices, n.Rates = false, false, nil }, "NoReport apply=true" + of + on},
		"frozen":                  {func(n *model.Node) { n.Frozen = true }, "NodeFrozen apply=true" + of + on},
		"frozen, it behaves new":  {func(n *model.Node) { n.Frozen = true; behave(&n.Rates.VMs[1], "c") }, "NodeFrozen apply=true" + of + on},
		"it behaves new":          {func(n *model.Node) { behave(&n.Rates.VMs[1], "c") }, "NothingToDo apply=true c:Compute/NoOtherPool/0s n:Compute/NoOtherPool/0s"},
		"it is idle":              {func(n *model.Node) { n.Rates.VMs[1].VCPUs[0].RunCores, n.Rates.VMs[1].Taps = 0.01, nil }, "Planned apply=true" + of + on},
		"frozen, a VM went":       {func(n *model.Node) { n.Frozen, n.VMs = true, n.VMs[:1] }, "NodeFrozen apply=true" + of},
		"a VM went":               {func(n *model.Node) { n.VMs = n.VMs[:1] }, "NothingToDo apply=true c:Compute/NoOtherPool/0s"},
		"not seen":                {func(n *model.Node) { n.Rates.VMs = n.Rates.VMs[:1] }, "Planned apply=true" + of + on},
		"frozen, lever gone":      {func(n *model.Node) { n.Frozen, n.Policy.Levers = true, []model.Lever{model.LeverAffinity} }, "NodeFrozen apply=true c:Compute//0s n:Network//0s"},
		"frozen, namespace gone":  {func(n *model.Node) { n.Frozen, n.VMs[0].NamespaceSelected = true, false }, "NodeFrozen apply=true c:/NamespaceNotSelected/0s" + on},
		"frozen, another kernel":  {func(n *model.Node) { n.Frozen, n.Slices = true, false }, "NodeFrozen apply=true c:/SlicesUnsupported/0s n:/SlicesUnsupported/0s"},
		"no meter":                {func(n *model.Node) { n.Metered = false }, "NoMeter apply=false c:/NoMeter/0s n:/NoMeter/0s"},
		"frozen, it is dedicated": {func(n *model.Node) { n.Frozen, n.VMs[1].Dedicated = true, true }, "NodeFrozen apply=true" + of + " n:/DedicatedCPUs/0s"},
	} {
		if got := sliced(Plan(with(with(poolNode("c", "n"), &inForce, sliceAlone), &inForce, tc.change), now())); got != tc.want {
			t.Errorf("%s:\n     %s\nwant %s", name, got, tc.want)
		}
	}
}

// What is approved is what was read, of slices too.
func TestARecommendationOfSlicesStands(t *testing.T) {
	node := with(poolNode("c", "n"), nil, sliceAlone)
	node.Policy.Mode = model.ModeRecommend
	first := Plan(node, now())
	node.Policy.Approvals = []string{first.Revision}
	more := with(poolNode("c", "d", "n"), &first, sliceAlone)
	more.Policy = node.Policy
	got := Plan(more, now().Add(time.Minute))
	want := "Planned apply=true c:Compute/LongSlice/30ms d:/AwaitingApproval/0s n:Network/ShortSlice/1ms"
	if sliced(got) != want || got.Revision != first.Revision {
		t.Errorf("%s, want %s; revision %s after %s", sliced(got), want, got.Revision, first.Revision)
	}
	// Another slice is another plan.
	behave(&more.Rates.VMs[0], "n")
	behave(&more.Rates.VMs[2], "c")
	if got := Plan(more, now().Add(2*time.Hour)); got.Apply || got.Revision == first.Revision {
		t.Errorf("slices were swapped under an approval: %s", sliced(got))
	}
}

// crowdedNode has eight CPUs in four cores, seven busy VMs and a network VM that is
// kept waiting.
func crowdedNode() model.Node {
	node := poolNode("c1", "c2", "c3", "c4", "c5", "c6", "n")
	node.VMs[6].Disturbance.Verdict = model.InterferenceCoRunner
	for cpu := range 8 {
		node.Rates.CPUs = append(node.Rates.CPUs, model.CPURates{CPU: cpu, BusyCores: 0.8})
	}
	return node
}

// A network VM that others disturb gets cores of its pool alone, and all others stay
// off them.
func TestADisturbedNetworkVMGetsCoresOfItsPool(t *testing.T) {
	node := crowdedNode()
	plan := Plan(node, now())
	network, compute := plan.Pools.Network, plan.Pools.Compute
	if network.Len() != 2 || compute.Len() != 6 || !network.Intersection(compute).IsEmpty() {
		t.Fatalf("pools %v and %v", network, compute)
	}
	verifyPools(t, &plan)
	for _, vm := range plan.VMs {
		if len(vm.Pins) == 0 {
			t.Errorf("VM %s runs anywhere: %+v", vm.PodUID, vm.Reason(model.LeverAffinity))
		}
	}
	// It works: the VM is stable, and stays where it is.
	node.VMs[6].Disturbance.Verdict = model.InterferenceStable
	again := Plan(with(node, &plan, nil), now())
	if !again.Pools.Equal(plan.Pools) {
		t.Errorf("pools became %v and %v", again.Pools.Network, again.Pools.Compute)
	}
	for name, tc := range map[string]struct {
		change func(*model.Node)
		shared bool
	}{
		"frozen":                {func(n *model.Node) { n.Frozen = true }, false},
		"no rates":              {func(n *model.Node) { n.Rates = nil }, false},
		"one is not seen":       {func(n *model.Node) { n.Rates.VMs = n.Rates.VMs[:6] }, false},
		"it is to be shared":    {func(n *model.Node) { n.VMs[6].Affinity = model.AffinityShared }, true},
		"frozen, the lever":     {func(n *model.Node) { n.Frozen = true; sliceAlone(n) }, true},
		"the lever":             {sliceAlone, true},
		"it computes now":       {func(n *model.Node) { behave(&n.Rates.VMs[6], "c") }, true},
		"it went":               {func(n *model.Node) { n.VMs = n.VMs[:6] }, true},
		"the cores are not all": {func(n *model.Node) { n.Topology.Exclusive = n.Topology.Online() }, true},
	} {
		node := with(clone(node), &plan, tc.change)
		got := Plan(node, now())
		if got.Pools.Shared() != tc.shared || !tc.shared && !got.Pools.Equal(plan.Pools) {
			t.Errorf("%s: pools %v and %v", name, got.Pools.Network, got.Pools.Compute)
		}
		verifyPools(t, &got)
	}
}

// On two cores, slices alone come first: cores of its own, which cost others half of
// theirs, a network VM gets when it is kept waiting all the same.
func TestPoolsOnTwoCores(t *testing.T) {
	for verdict, want := range map[model.Interference]string{
		model.InterferenceUnknown: "|", model.InterferenceStable: "|", model.InterferenceSelf: "|", model.InterferenceCoRunner: "0|1",
	} {
		node := poolNode("c1", "c2", "n")
		node.Topology.Cores = []model.Core{{CPUs: units.NewCPUSet(0)}, {CPUs: units.NewCPUSet(1)}}
		node.Rates.CPUs = []model.CPURates{{CPU: 0, BusyCores: 1}, {CPU: 1, BusyCores: 1}}
		for i, use := range []model.ThreadRates{{RunCores: 0.88, WaitCores: 0.12}, {RunCores: 0.88, WaitCores: 0.12}, {RunCores: 0.2, WaitCores: 0.1}} {
			vm := &node.Rates.VMs[i]
			vm.AllowedCPUs, vm.VCPUs[0].ThreadRates, vm.VCPUs[0].CPUs = node.Topology.Online(), use, node.Topology.Online()
		}
		node.VMs[2].Disturbance.Verdict = verdict
		plan := Plan(node, now())
		if got := plan.Pools.Network.String() + "|" + plan.Pools.Compute.String(); got != want {
			t.Errorf("%q: pools %s, want %s", verdict, got, want)
		}
		if got, want := sliced(plan), "Planned apply=true c1:Compute/LongSlice/30ms c2:Compute/LongSlice/30ms n:Network/ShortSlice/1ms"; got != want {
			t.Errorf("%q: %s, want %s", verdict, got, want)
		}
		verifyPools(t, &plan)
	}
}

// verifyPools checks that VMs keep to the cores of their pools, where these are divided,
// and that slices come in both kinds.
func verifyPools(t *testing.T, plan *model.Plan) {
	t.Helper()
	for _, vm := range plan.VMs {
		within := plan.Pools.Compute
		if vm.Pool == model.PoolNetwork {
			within = plan.Pools.Network
		}
		for _, pin := range vm.Pins {
			if !plan.Pools.Shared() && !pin.CPUs.IsSubsetOf(within) {
				t.Fatalf("VM %s of pool %s is pinned to %s, outside of %s", vm.PodUID, vm.Pool, pin.CPUs, within)
			}
		}
		if want := pools.SliceOf(vm.Pool); vm.Slice != 0 && vm.Slice != want {
			t.Fatalf("VM %s of pool %s has slice %v", vm.PodUID, vm.Pool, vm.Slice)
		}
	}
}

// randomPools is a node of any load and permission.
func randomPools(r *rand.Rand) model.Node {
	var names []string
	for i := range 1 + r.IntN(10) {
		names = append(names, fmt.Sprintf("%c%d", []byte("cn")[r.IntN(2)], i))
	}
	slices.Sort(names)
	node := poolNode(names...)
	node.Policy.Levers = node.Policy.Levers[r.IntN(2):]
	if r.IntN(3) > 0 {
		node.Policy.Levers = []model.Lever{model.LeverAffinity, model.LeverSlice}
	}
	node.Slices = r.IntN(5) > 0
	if r.IntN(3) == 0 {
		node.Policy.Reserved = units.NewCPUSet(r.IntN(8))
	}
	if r.IntN(3) == 0 {
		node.Topology.Exclusive = units.NewCPUSet(r.IntN(4))
	}
	for cpu := range 8 {
		node.Rates.CPUs = append(node.Rates.CPUs, model.CPURates{CPU: cpu, BusyCores: units.Cores(r.Float64())})
	}
	for i := range node.VMs {
		vm, rates := &node.VMs[i], &node.Rates.VMs[i]
		rates.VCPUs[0].RunCores *= units.Cores(r.Float64())
		rates.VCPUs[0].WaitCores = units.Cores(r.Float64() * 0.1)
		rates.Weight = []float64{0, 102, 1024, 16384}[r.IntN(4)]
		if r.IntN(6) == 0 {
			rates.AllowedCPUs = units.NewCPUSet(0, 4, 1, 5)
		}
		vm.NamespaceSelected, vm.Dedicated = r.IntN(8) > 0, r.IntN(8) == 0
		vm.Affinity = []model.AffinityPreference{model.AffinityAuto, model.AffinityAuto, model.AffinityShared, model.AffinitySeparated, model.AffinityPinned}[r.IntN(5)]
		vm.Disturbance.Verdict = []model.Interference{model.InterferenceStable, model.InterferenceCoRunner}[r.IntN(2)]
	}
	return node
}

func TestPlansOfPoolsAreSound(t *testing.T) {
	divided := 0
	for seed := range uint64(400) {
		node := randomPools(rand.New(rand.NewPCG(seed, 31)))
		plan := Plan(node, now())
		verifyPools(t, &plan)
		if !plan.Pools.Shared() {
			divided++
		}
		taken := node.Policy.Reserved.Union(node.Topology.Taken())
		kinds := map[model.Pool]bool{}
		for i, vm := range plan.VMs {
			of := node.VMs[i]
			allowed := node.Rates.VMs[i].AllowedCPUs.Difference(taken)
			sets := []units.CPUSet{vm.Threads.Emulator, vm.Threads.IOThreads, vm.Threads.Vhost}
			for _, pin := range vm.Pins {
				sets = append(sets, pin.CPUs)
			}
			for _, set := range sets {
				if !set.IsSubsetOf(allowed) {
					t.Fatalf("seed %d: VM %s is bound to %s, allowed are %s", seed, vm.PodUID, set, allowed)
				}
			}
			if !vm.Threads.IsZero() && len(vm.Pins) == 0 {
				t.Fatalf("seed %d: VM %s has threads bound beside no pins", seed, vm.PodUID)
			}
			untouched := of.Dedicated || !of.NamespaceSelected
			bound := untouched || of.Affinity == model.AffinityShared || !node.Policy.Allows(model.LeverAffinity)
			if bound && len(vm.Pins) > 0 || (untouched || !node.Slices) && vm.Slice > 0 {
				t.Fatalf("seed %d: VM %+v got %+v", seed, of, vm)
			}
			if !plan.Pools.Shared() && !bound && len(vm.Pins) == 0 {
				t.Fatalf("seed %d: VM %s runs on cores of both pools: %+v", seed, vm.PodUID, vm.Reasons)
			}
			if vm.Slice > 0 {
				kinds[vm.Pool] = true
			}
		}
		if len(kinds) == 1 {
			t.Fatalf("seed %d: slices of one pool: %s", seed, sliced(plan))
		}
	}
	if divided < 15 {
		t.Errorf("%d of 400 nodes are divided: the test tests little", divided)
	}
}

// A plan in force is soon kept for good while the rates are.
func TestPlansOfPoolsSettle(t *testing.T) {
	for seed := range uint64(100) {
		node := randomPools(rand.New(rand.NewPCG(seed, 37)))
		plan := Plan(node, now())
		was := plan
		for range 12 {
			was = plan
			node.Current = &was
			plan = Plan(node, now().Add(time.Minute))
		}
		if diff := cmp.Diff(was, plan); diff != "" {
			t.Fatalf("seed %d: the plan still changes (-was +is):\n%s", seed, diff)
		}
	}
}

// A new leader that knows neither rates nor meters says of pools and slices what the one
// before said.
func TestNewLeaderRepeatsPools(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 41))
		node := randomPools(r)
		node.Metered = r.IntN(3) > 0
		if diff := repeated(r, node); diff != "" {
			t.Fatalf("seed %d (-was +is):\n%s", seed, diff)
		}
	}
}

// Every reason is told in words.
func TestEveryReasonHasWords(t *testing.T) {
	for _, reason := range []model.Reason{
		model.ReasonPinned, model.ReasonSeparated, model.ReasonNothingToSeparate, model.ReasonNoSaving, model.ReasonSiblingsTaken,
		model.ReasonShortSlice, model.ReasonLongSlice, model.ReasonNoOtherPool, model.ReasonSlicesUnsupported,
		model.ReasonCoreWouldBeHot, model.ReasonNoAllowedCore, model.ReasonNotRunning, model.ReasonSharedPreferred,
	} {
		if words := because(model.LeverSlice, reason).Message; words == "" || len(words) > 256 {
			t.Errorf("%s: %q", reason, words)
		}
	}
}
