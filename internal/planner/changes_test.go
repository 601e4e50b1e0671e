package planner

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// An approval waits for other nodes and for its time, and then is acted on as a whole.
func TestApprovalsWait(t *testing.T) {
	node := newNode("a", "b")
	node.Policy.Mode = v1alpha1.ModeRecommend
	first := Plan(node, now())
	node.Policy.Approvals = []string{first.Revision}
	closed := func(n *model.Node) { n.Hold = model.Hold{Reason: v1alpha1.ReasonOutsideChangeWindow, Message: "later"} }
	for name, tc := range map[string]struct {
		change func(*model.Node)
		want   string
	}{
		"its time":      {nil, "Planned apply=true a:Pinned/2 b:Pinned/2"},
		"busy nodes":    {func(n *model.Node) { n.NodesBusy = true }, "ChangeBudgetNodes apply=false a:Pinned/2 b:Pinned/2"},
		"not its time":  {closed, "OutsideChangeWindow apply=false a:Pinned/2 b:Pinned/2"},
		"paused":        {func(n *model.Node) { n.Policy.Paused = true }, "Paused apply=false a:Pinned/2 b:Pinned/2"},
		"not approved":  {func(n *model.Node) { closed(n); n.Policy.Approvals = nil }, "AwaitingApproval apply=false a:Pinned/2 b:Pinned/2"},
		"frozen nodes":  {func(n *model.Node) { closed(n); n.Frozen = true }, "NodeFrozen apply=false a:Pinned/2 b:Pinned/2"},
		"another is in": {func(n *model.Node) { closed(n); n.Policy.Approvals = []string{"other"} }, "AwaitingApproval apply=false a:Pinned/2 b:Pinned/2"},
	} {
		got := Plan(with(clone(node), &first, tc.change), now().Add(time.Minute))
		if outcome(got) != tc.want || got.Revision != first.Revision {
			t.Errorf("%s: %s of revision %s, want %s of %s", name, outcome(got), got.Revision, tc.want, first.Revision)
		}
	}
}

// busyNode has VMs of any load and wish on CPUs that do nothing else.
func busyNode(r *rand.Rand) model.Node {
	node := with(newNode([]string{"a", "b", "c", "d", "e", "f"}[:2+r.IntN(5)]...), nil, everyLever)
	node.Slices = r.IntN(4) > 0
	randomWishes(r, &node)
	return node
}

// load gives the node's VMs other rates.
func load(r *rand.Rand, node model.Node) model.Node {
	node = clone(node)
	for i := range node.Rates.VMs {
		if r.IntN(2) == 0 {
			behave(&node.Rates.VMs[i], []string{"n", "c"}[r.IntN(2)])
		}
		for k := range node.Rates.VMs[i].VCPUs {
			node.Rates.VMs[i].VCPUs[k].RunCores = units.Cores(r.Float64())
		}
	}
	return node
}

// While other nodes change, VMs have what they had, or less: what lost its permission goes, and
// no core stays too hot.
func TestNothingNewWhileOtherNodesChange(t *testing.T) {
	held := 0
	for seed := range uint64(150) {
		r := rand.New(rand.NewPCG(seed, 23))
		node := busyNode(r)
		inForce := Plan(load(r, node), now())
		node = with(load(r, node), &inForce, nil)
		if !Changes(node, Plan(node, now().Add(2*time.Hour))) {
			continue
		}
		held++
		node.NodesBusy = true
		node.VMs[0].OptOut = model.OptOut{All: true}
		got := Plan(node, now().Add(2*time.Hour))
		if Changes(node, got) || got.Reason != v1alpha1.ReasonChangeBudgetNodes {
			t.Fatalf("seed %d: something new was done: %s", seed, outcome(got))
		}
		if vm, _ := got.VM(node.VMs[0].PodUID); slices.ContainsFunc(v1alpha1.NodeLevers(), func(lever v1alpha1.Lever) bool { return actsBy(&vm, lever) }) {
			t.Fatalf("seed %d: a VM that opted out keeps %+v", seed, vm)
		}
		for i := range got.VMs {
			if slices.ContainsFunc(got.VMs[i].Reasons, func(why model.LeverReason) bool { return why.Reason == "" }) {
				t.Fatalf("seed %d: %s without a reason: %+v", seed, got.VMs[i].PodUID, got.VMs[i].Reasons)
			}
		}
	}
	if held < 25 {
		t.Errorf("only %d plans were held", held)
	}
}
