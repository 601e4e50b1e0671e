package planner

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/planner/buffering"
	"github.com/joulevirt/joulevirt/internal/planner/pools"
	"github.com/joulevirt/joulevirt/internal/units"
)

// anyNode has VMs of any load, wishes and permission, and any of the levers.
func anyNode(r *rand.Rand) model.Node {
	node := randomPools(r)
	randomWishes(r, &node)
	levers := slices.Clone(v1alpha1.NodeLevers())
	node.Policy.Levers = slices.DeleteFunc(levers, func(v1alpha1.Lever) bool { return r.IntN(5) == 0 })
	return node
}

// randomWishes changes what a node's VMs ask for and send, and what was seen of them.
func randomWishes(r *rand.Rand, node *model.Node) {
	for i := range node.VMs {
		vm := &node.VMs[i]
		vm.TrafficClass = []v1alpha1.TrafficClass{v1alpha1.TrafficDeferrable, v1alpha1.TrafficDeferrable, v1alpha1.TrafficThroughput, v1alpha1.TrafficInteractive}[r.IntN(4)]
		vm.MaxDelay = time.Duration(1+r.IntN(30)) * time.Second
		vm.Ceiling = []units.BitsPerSecond{0, 100_000, 30e6, 10e9}[r.IntN(4)]
		vm.LatencyBudget = []time.Duration{0, 300 * us, 600 * us, time.Millisecond, time.Second}[r.IntN(5)]
		vm.OnPackets = []units.PacketsPerSecond{1000, 10_000, 20_000}[r.IntN(3)]
		vm.DefendFloods = r.IntN(3) > 0
		vm.Services = make([]model.Service, r.IntN(10))
		for k := range vm.Services {
			vm.Services[k].Port = uint16(r.IntN(12))
		}
		vm.Tuning = model.Tuning{Trials: trialsOf(r.IntN(5))}
		if r.IntN(4) == 0 {
			vm.Tuning.Hurts = hurtAt(model.ShortestWindow << r.IntN(4))
		}
	}
	for i := range node.Rates.VMs {
		vm := &node.Rates.VMs[i]
		vm.Taps = append(vm.Taps, make([]model.TapRates, 2)...)[:r.IntN(3)]
		if r.IntN(5) > 0 {
			vm.Sent = &model.Sent{BitsPerSecond: units.BitsPerSecond(r.Float64() * 100e6), Seconds: 64}
		}
	}
}

// Whatever a node is like, plans do what policy, owners and the node allow; a plan in force
// soon changes nothing; and while nothing new may be done, nothing comes that was not there.
func TestPlanProperties(t *testing.T) {
	divided, acting := 0, map[v1alpha1.Lever]int{}
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 31))
		node := anyNode(r)
		var plan model.Plan
		for round := range 15 {
			was := plan
			plan = Plan(node, now().Add(time.Duration(round)*time.Minute))
			checkPlan(t, seed, &node, &plan)
			if diff := cmp.Diff(was.VMs, plan.VMs); diff != "" && round > 12 {
				t.Fatalf("seed %d: the plan still changes (-was +is):\n%s", seed, diff)
			}
			node.Current = &plan
		}
		if !plan.Pools.Shared() {
			divided++
		}
		for i := range plan.VMs {
			for _, lever := range v1alpha1.NodeLevers() {
				if actsBy(&plan.VMs[i], lever) {
					acting[lever]++
				}
			}
		}

		node = clone(node)
		randomWishes(r, &node)
		node.Policy.Levers = slices.DeleteFunc(slices.Clone(node.Policy.Levers), func(v1alpha1.Lever) bool { return r.IntN(8) == 0 })
		if r.IntN(8) == 0 {
			node.Buffering = "the kernel has no fq"
		}
		node.VMs[r.IntN(len(node.VMs))].NamespaceSelected = false
		[]func(){
			func() { node.Frozen = true }, func() { node.Rates = nil }, func() { node.Reported = false },
			func() { unknownMeter(&node) }, func() { node.Reported, node.ReportUnreadable = false, true },
		}[r.IntN(5)]()
		held := Plan(node, now().Add(time.Hour))
		checkPlan(t, seed, &node, &held)
		if !subset(held.VMs, &plan) {
			t.Fatalf("seed %d: the held plan does more than %+v: %+v", seed, plan.VMs, held.VMs)
		}
	}
	if divided < 10 || len(acting) < 4 {
		t.Errorf("%d nodes are divided, VMs by lever: %v: the test tests little", divided, acting)
	}
}

// checkPlan checks what holds for every plan.
func checkPlan(t *testing.T, seed uint64, node *model.Node, plan *model.Plan) {
	t.Helper()
	verifyPools(t, plan)
	kinds := map[v1alpha1.Pool]bool{}
	for i := range plan.VMs {
		vm, of := &plan.VMs[i], &node.VMs[i]
		for _, lever := range v1alpha1.NodeLevers() {
			if actsBy(vm, lever) && (!of.NamespaceSelected || !node.Policy.Allows(lever)) {
				t.Fatalf("seed %d: %s acts on VM %+v: %+v", seed, lever, of, vm)
			}
		}
		for _, why := range vm.Reasons {
			if why.Reason == "" || len(why.Message) > longestMessage {
				t.Fatalf("seed %d: reason %+v of VM %+v", seed, why, of)
			}
		}
		checkBinding(t, seed, node, plan, i)
		if vm.Slice > 0 {
			kinds[vm.Pool] = true
		}
		if b := vm.Buffering; !b.IsZero() && (!b.IsValid() || b.Window > buffering.Longest(of) || b.FloodWindow > 0 && !of.DefendFloods ||
			node.Reported && node.Buffering != "" || slices.ContainsFunc(of.Tuning.Hurts, func(h model.Hurt) bool { return b.Window >= h.Window })) {
			t.Fatalf("seed %d: VM %+v has %+v", seed, of, b)
		}
		if c := vm.Shaping.Ceiling; c != 0 && (c < of.Ceiling || of.Ceiling == 0 || c < model.LeastRate) {
			t.Fatalf("seed %d: VM %+v has ceiling %v", seed, of, c)
		}
		turn := vm.Shaping.Turn
		if turn == nil {
			continue
		}
		if !of.Defers() || 2*turn.Period > of.MaxDelay || !turn.IsValid() {
			t.Fatalf("seed %d: VM %+v has turn %+v", seed, of, *turn)
		}
		for _, other := range plan.VMs[:i] {
			if o := other.Shaping.Turn; o != nil && turn.Offset < o.Offset+o.Length && o.Offset < turn.Offset+turn.Length {
				t.Fatalf("seed %d: turns %+v of %s and %+v of %s", seed, *turn, vm.PodUID, *o, other.PodUID)
			}
		}
	}
	if len(kinds) == 1 && node.Current == nil {
		t.Fatalf("seed %d: slices of one pool: %s", seed, sliced(*plan))
	}
}

// checkBinding checks the CPUs and the slice of a VM.
func checkBinding(t *testing.T, seed uint64, node *model.Node, plan *model.Plan, i int) {
	t.Helper()
	vm, of := &plan.VMs[i], &node.VMs[i]
	sets := []units.CPUSet{vm.Threads.Emulator, vm.Threads.IOThreads, vm.Threads.Vhost}
	for _, pin := range vm.Pins {
		sets = append(sets, pin.CPUs)
	}
	allowed := node.Topology.Online()
	if node.Rates != nil {
		allowed = node.Rates.VMs[i].AllowedCPUs
	}
	allowed = allowed.Difference(node.Policy.Reserved.Union(node.Topology.Taken))
	for _, set := range sets {
		if !set.IsSubsetOf(allowed) {
			t.Fatalf("seed %d: VM %s is bound to %s, allowed are %s", seed, vm.PodUID, set, allowed)
		}
	}
	if !vm.Threads.IsZero() && len(vm.Pins) == 0 {
		t.Fatalf("seed %d: VM %s has threads bound beside no pins", seed, vm.PodUID)
	}
	stays := of.Dedicated || of.Affinity == v1alpha1.AffinityShared
	if stays && len(vm.Pins) > 0 || of.Dedicated && vm.Slice > 0 || vm.Slice > 0 && !node.Slices {
		t.Fatalf("seed %d: VM %+v got %+v", seed, of, vm)
	}
	bindable := !stays && of.NamespaceSelected && node.Policy.Allows(v1alpha1.LeverAffinity)
	if !plan.Pools.Shared() && bindable && len(vm.Pins) == 0 && node.Current == nil {
		t.Fatalf("seed %d: VM %s runs on cores of both pools: %+v", seed, vm.PodUID, vm.Reasons)
	}
	if long := vm.Slice == pools.ComputeSlice; vm.Slice != 0 && vm.Slice != pools.NetworkSlice && !long || long && vm.Pool != v1alpha1.PoolCompute {
		t.Fatalf("seed %d: VM %s of pool %s has slice %v", seed, vm.PodUID, vm.Pool, vm.Slice)
	}
}

// Each lever says why it does not act, in the same words of the policy and the node, and what
// is in force stays while nothing new may be done, and goes with its permission.
func TestPermissionsOfEveryLever(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*model.Node)
		reason string
		stays  bool
	}{
		"observe":         {func(n *model.Node) { n.Policy.Mode = v1alpha1.ModeObserve }, v1alpha1.ReasonObserveOnly, false},
		"paused":          {func(n *model.Node) { n.Policy.Paused = true }, v1alpha1.ReasonPaused, false},
		"no meter":        {func(n *model.Node) { n.Metered = false }, v1alpha1.ReasonNoMeter, false},
		"namespace":       {func(n *model.Node) { forVMs(n, func(vm *model.VM) { vm.NamespaceSelected = false }) }, v1alpha1.ReasonNamespaceNotSelected, false},
		"opted out":       {func(n *model.Node) { forVMs(n, func(vm *model.VM) { vm.OptOut.All = true }) }, v1alpha1.ReasonOptedOut, false},
		"node opted out":  {func(n *model.Node) { n.OptOut.All = true }, v1alpha1.ReasonOptedOut, false},
		"frozen":          {func(n *model.Node) { n.Frozen = true }, v1alpha1.ReasonNodeFrozen, true},
		"report":          {func(n *model.Node) { n.Reported, n.Rates = false, nil }, v1alpha1.ReasonNoReport, true},
		"rates":           {func(n *model.Node) { n.Rates = nil }, v1alpha1.ReasonNoRates, true},
		"meter unknown":   {unknownMeter, v1alpha1.ReasonAwaitingMeter, true},
		"proofs awaited":  {func(n *model.Node) { n.ProofsAwaited = true }, v1alpha1.ReasonAwaitingProof, true},
		"freeze":          {inFreeze, v1alpha1.ReasonInFreeze, true},
		"not in a window": {func(n *model.Node) { n.Hold.Reason = v1alpha1.ReasonOutsideChangeWindow }, v1alpha1.ReasonOutsideChangeWindow, true},
	} {
		node := everythingActs()
		inForce := Plan(node, now())
		for _, current := range []*model.Plan{nil, &inForce} {
			plan := Plan(with(clone(node), current, tc.change), now())
			for i := range plan.VMs {
				for _, lever := range v1alpha1.NodeLevers() {
					vm := &plan.VMs[i]
					acts, why := actsBy(vm, lever), vm.Reason(lever).Reason
					if !actsBy(&inForce.VMs[i], lever) {
						t.Fatalf("%s does not act on %s: %+v", lever, vm.PodUID, inForce.VMs[i].Reason(lever))
					}
					if want := current != nil && tc.stays; acts != want || !acts && why != tc.reason {
						t.Errorf("%s, in force %t: %s acts on %s: %t for %s", name, current != nil, lever, vm.PodUID, acts, why)
					}
				}
			}
		}
	}
}

func forVMs(n *model.Node, change func(*model.VM)) {
	for i := range n.VMs {
		change(&n.VMs[i])
	}
}

// everythingActs is a node on which each lever acts on each VM.
func everythingActs() model.Node {
	node := with(bufferingNode("c", "n"), nil, everyLever)
	node.Slices = true
	for i := range node.VMs {
		node.VMs[i].Ceiling = 50e6
		behave(&node.Rates.VMs[i], node.VMs[i].Name)
	}
	return node
}
