package planner

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

func perHour(vms int) func(*model.Node) {
	return func(n *model.Node) { n.Policy.MaxChangesPerHour = vms }
}

// remembered is how many VMs were changed, change by change.
func remembered(plan model.Plan) string {
	text := ""
	for _, change := range plan.Changes {
		text += fmt.Sprintf("%s:%d ", change.Time.Format("15:04"), change.VMs)
	}
	return text
}

// With a budget of two, four VMs are bound in two steps an hour apart, those that are
// bound already staying where they are.
func TestChangesOfAnHour(t *testing.T) {
	node := with(newNode("a", "b", "c", "d"), nil, perHour(2))
	for i := range node.Rates.VMs {
		for k := range node.Rates.VMs[i].VCPUs {
			node.Rates.VMs[i].VCPUs[k].RunCores = 0.2
		}
	}
	var plan model.Plan
	for _, step := range []struct {
		after      time.Duration
		want, said string
	}{
		{0, "ChangeBudgetHour apply=true a:Pinned/2 b:Pinned/2 c:ChangeBudgetHour/0 d:ChangeBudgetHour/0", "12:00:2 "},
		{time.Minute, "ChangeBudgetHour apply=true a:Pinned/2 b:Pinned/2 c:ChangeBudgetHour/0 d:ChangeBudgetHour/0", "12:00:2 "},
		{59*time.Minute + 59*time.Second, "ChangeBudgetHour apply=true a:Pinned/2 b:Pinned/2 c:ChangeBudgetHour/0 d:ChangeBudgetHour/0", "12:00:2 "},
		{time.Hour, "Planned apply=true a:Pinned/2 b:Pinned/2 c:Pinned/2 d:Pinned/2", "13:00:2 "},
		{3 * time.Hour, "Planned apply=true a:Pinned/2 b:Pinned/2 c:Pinned/2 d:Pinned/2", "13:00:2 "},
	} {
		before := plan
		plan = Plan(node, now().Add(step.after))
		if outcome(plan) != step.want || remembered(plan) != step.said {
			t.Errorf("after %v: %s with changes %s, want %s with %s", step.after, outcome(plan), remembered(plan), step.want, step.said)
		}
		for _, vm := range before.VMs {
			if is, _ := plan.VM(vm.PodUID); len(vm.Pins) > 0 && !cmp.Equal(vm.Pins, is.Pins) {
				t.Errorf("after %v: pins of %s moved from %v to %v", step.after, vm.PodUID, vm.Pins, is.Pins)
			}
		}
		node.Current = &plan
	}
}

// An approval waits for room and for its time, and then is acted on as a whole.
func TestApprovalsWait(t *testing.T) {
	node := newNode("a", "b")
	node.Policy.Mode, node.Policy.MaxChangesPerHour = v1alpha1.ModeRecommend, 1
	first := Plan(node, now())
	node.Policy.Approvals = []string{first.Revision}
	closed := func(n *model.Node) { n.Hold = model.Hold{Reason: v1alpha1.ReasonOutsideChangeWindow, Message: "later"} }
	for name, tc := range map[string]struct {
		change func(*model.Node)
		want   string
	}{
		"room":          {nil, "Planned apply=true a:Pinned/2 b:Pinned/2"},
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
		if tc.change == nil && remembered(got) != "12:01:2 " {
			t.Errorf("%s: changes %s", name, remembered(got))
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

// No plan changes more VMs than there is room for; the others have what they had, or
// less; and what a plan of all VMs takes back is taken back.
func TestBudgetsHold(t *testing.T) {
	held := 0
	for seed := range uint64(150) {
		r := rand.New(rand.NewPCG(seed, 23))
		node := busyNode(r)
		inForce := Plan(load(r, node), now())
		node = with(load(r, node), &inForce, nil)
		full := Plan(node, now().Add(2*time.Hour))
		room := r.IntN(4)
		node.NodesBusy, node.Policy.MaxChangesPerHour = room == 0, room
		got := Plan(node, now().Add(2*time.Hour))
		if diff := cmp.Diff(got, Plan(node, now().Add(2*time.Hour))); diff != "" {
			t.Fatalf("seed %d: not deterministic:\n%s", seed, diff)
		}
		wanted, changed := Changed(node, full), Changed(node, got)
		if wanted <= room {
			if diff := cmp.Diff(full, got); diff != "" {
				t.Fatalf("seed %d: there was room for %d of %d changes:\n%s", seed, room, wanted, diff)
			}
			continue
		}
		held++
		if changed > room || got.Reason != v1alpha1.ReasonChangeBudgetHour && got.Reason != v1alpha1.ReasonChangeBudgetNodes {
			t.Fatalf("seed %d: %d VMs changed where there was room for %d: %s", seed, changed, room, got.Reason)
		}
		for i := range got.VMs {
			vm, all := &got.VMs[i], &full.VMs[i]
			was, _ := inForce.VM(vm.PodUID)
			if !adds(vm, &was) && (actsBy(vm, v1alpha1.LeverAffinity) && !actsBy(all, v1alpha1.LeverAffinity) ||
				actsBy(vm, v1alpha1.LeverSlice) && !actsBy(all, v1alpha1.LeverSlice) || actsBy(vm, v1alpha1.LeverBuffering) && !actsBy(all, v1alpha1.LeverBuffering)) {
				t.Fatalf("seed %d: %s keeps what a plan of all takes back:\n%+v\n%+v", seed, vm.PodUID, *vm, *all)
			}
			if slices.ContainsFunc(vm.Reasons, func(why model.LeverReason) bool { return why.Reason == "" }) {
				t.Fatalf("seed %d: %s without a reason: %+v", seed, vm.PodUID, vm.Reasons)
			}
		}
	}
	if held < 25 {
		t.Errorf("only %d plans were held", held)
	}
}
