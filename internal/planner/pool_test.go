package planner

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/planner/pools"
	"github.com/joulevirt/joulevirt/internal/units"
)

// poolNode has VMs of one vCPU each: those named n... move packets, the others are
// always busy. Its policy allows levers Affinity and Slice, and its kernel has slices.
func poolNode(names ...string) model.Node {
	node := newNode(names...)
	node.Policy.Levers = []v1alpha1.Lever{v1alpha1.LeverAffinity, v1alpha1.LeverSlice}
	node.Slices = true
	for i, name := range names {
		node.VMs[i].Affinity, node.VMs[i].TrafficClass = v1alpha1.AffinityAuto, v1alpha1.TrafficInteractive
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

func sliceAlone(n *model.Node) { n.Policy.Levers = []v1alpha1.Lever{v1alpha1.LeverSlice} }

// sliced is a plan in short: what lever Slice does.
func sliced(plan model.Plan) string {
	text := fmt.Sprintf("%s apply=%t", plan.Reason, plan.Apply)
	for _, vm := range plan.VMs {
		text += fmt.Sprintf(" %s:%s/%s/%v", vm.PodUID, vm.Pool, vm.Reason(v1alpha1.LeverSlice).Reason, vm.Slice)
	}
	return text
}

func TestSliceReasons(t *testing.T) {
	const both = " c:Compute/ShortSlice/1ms n:Network/ShortSlice/1ms"
	apart := func(n *model.Node) {
		n.Rates.VMs[0].AllowedCPUs, n.Rates.VMs[1].AllowedCPUs = units.NewCPUSet(0, 1), units.NewCPUSet(2, 3)
	}
	for name, tc := range map[string]struct {
		change func(*model.Node)
		want   string
	}{
		"both pools":                    {nil, "Planned apply=true" + both},
		"cores apart":                   {apart, "Planned apply=true c:Compute/LongSlice/30ms n:Network/ShortSlice/1ms"},
		"the owner has it compute":      {func(n *model.Node) { n.VMs[1].Pool = v1alpha1.PoolAlwaysCompute }, "NothingToDo apply=true c:Compute/NoOtherPool/0s n:Compute/NoOtherPool/0s"},
		"the owner has it move packets": {func(n *model.Node) { n.VMs[0].Pool = v1alpha1.PoolAlwaysNetwork }, "NothingToDo apply=true c:Network/NoOtherPool/0s n:Network/NoOtherPool/0s"},
		"one pool":                      {func(n *model.Node) { behave(&n.Rates.VMs[1], "c") }, "NothingToDo apply=true c:Compute/NoOtherPool/0s n:Compute/NoOtherPool/0s"},
		"what a VM prefers": {func(n *model.Node) {
			n.VMs[0].Affinity, n.VMs[1].Affinity = v1alpha1.AffinityShared, v1alpha1.AffinityShared
		}, "Planned apply=true" + both},
		"no slices":     {func(n *model.Node) { n.Slices = false }, "NothingToDo apply=true c:/SlicesUnsupported/0s n:/SlicesUnsupported/0s"},
		"another lever": {func(n *model.Node) { n.Policy.Levers = []v1alpha1.Lever{v1alpha1.LeverShaping} }, "NothingToDo apply=true c://0s n://0s"},
		"dedicated":     {func(n *model.Node) { n.Rates.VMs[1].Dedicated = true }, "NothingToDo apply=true c:Compute/NoOtherPool/0s n:/DedicatedCPUs/0s"},
		"not running":   {func(n *model.Node) { n.Rates.VMs = n.Rates.VMs[1:] }, "NothingToDo apply=true c:/NotRunning/0s n:Network/NoOtherPool/0s"},
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

// crowdedNode has eight CPUs in four cores, seven busy VMs and a network VM that is
// kept waiting.
func crowdedNode() model.Node {
	node := poolNode("c1", "c2", "c3", "c4", "c5", "c6", "n")
	node.VMs[6].Disturbance.Verdict = v1alpha1.CauseNeighbour
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
			t.Errorf("VM %s runs anywhere: %+v", vm.PodUID, vm.Reason(v1alpha1.LeverAffinity))
		}
	}
	// It works: the VM is stable, and stays where it is.
	node.VMs[6].Disturbance.Verdict = v1alpha1.CauseStable
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
		"it is to be shared":    {func(n *model.Node) { n.VMs[6].Affinity = v1alpha1.AffinityShared }, true},
		"frozen, the lever":     {func(n *model.Node) { n.Frozen = true; sliceAlone(n) }, true},
		"the lever":             {sliceAlone, true},
		"it computes now":       {func(n *model.Node) { behave(&n.Rates.VMs[6], "c") }, true},
		"it went":               {func(n *model.Node) { n.VMs = n.VMs[:6] }, true},
		"the cores are not all": {func(n *model.Node) { n.Topology.Taken = n.Topology.Online() }, true},
	} {
		node := with(clone(node), &plan, tc.change)
		got := Plan(node, now())
		if got.Pools.Shared() != tc.shared || !tc.shared && !got.Pools.Equal(plan.Pools) {
			t.Errorf("%s: pools %v and %v", name, got.Pools.Network, got.Pools.Compute)
		}
		verifyPools(t, &got)
	}
}

// verifyPools checks that VMs keep to the cores of their pools, where these are divided,
// and that slices come in both kinds.
func verifyPools(t *testing.T, plan *model.Plan) {
	t.Helper()
	for _, vm := range plan.VMs {
		within := plan.Pools.Compute
		if vm.Pool == v1alpha1.PoolNetwork {
			within = plan.Pools.Network
		}
		for _, pin := range vm.Pins {
			if !plan.Pools.Shared() && !pin.CPUs.IsSubsetOf(within) {
				t.Fatalf("VM %s of pool %s is pinned to %s, outside of %s", vm.PodUID, vm.Pool, pin.CPUs, within)
			}
		}
		if long := vm.Slice == pools.ComputeSlice; vm.Slice != 0 && vm.Slice != pools.NetworkSlice && !long || long && vm.Pool != v1alpha1.PoolCompute {
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
		node.Policy.Levers = []v1alpha1.Lever{v1alpha1.LeverAffinity, v1alpha1.LeverSlice}
	}
	node.Slices = r.IntN(5) > 0
	if r.IntN(3) == 0 {
		node.Policy.Reserved = units.NewCPUSet(r.IntN(8))
	}
	if r.IntN(3) == 0 {
		node.Topology.Taken = units.NewCPUSet(r.IntN(4))
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
		vm.Affinity = []v1alpha1.AffinityPreference{v1alpha1.AffinityAuto, v1alpha1.AffinityAuto, v1alpha1.AffinityShared, v1alpha1.AffinitySeparated, v1alpha1.AffinityPinned}[r.IntN(5)]
		vm.Disturbance.Verdict = []v1alpha1.Cause{v1alpha1.CauseStable, v1alpha1.CauseNeighbour}[r.IntN(2)]
	}
	return node
}
