package planner

import (
	"fmt"
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
)

const us = time.Microsecond

// bufferingNode has VMs whose packets come fast and may be held for up to 500 us, and a
// policy that allows lever Buffering alone.
func bufferingNode(names ...string) model.Node {
	node := newNode(names...)
	node.Policy.Levers = []v1alpha1.Lever{v1alpha1.LeverBuffering}
	for i := range node.VMs {
		vm := &node.VMs[i]
		vm.TrafficClass, vm.LatencyBudget, vm.OnPackets, vm.DefendFloods = v1alpha1.TrafficThroughput, time.Millisecond, 10_000, true
		vm.Tuning.Trials = trialsOf(1)
		node.Rates.VMs[i].Taps = make([]model.TapRates, 1)
	}
	return node
}

// trialsOf windows one after the other, each of which wakes half as many threads for a
// packet as the one before.
func trialsOf(windows int) []model.Trial {
	var out []model.Trial
	for i, w := range []time.Duration{0, 250 * us, 500 * us, 1000 * us}[:windows] {
		out = append(out, model.Trial{
			Window: w, Seconds: 60, PacketsPerSecond: 20_000, BitsPerSecond: 1e8,
			WakeUpsPerPacket: 1 / float64(int(1)<<i), CoresPerPacket: 1e-5,
		})
	}
	return out
}

// buffers is a plan in short: what lever Buffering does.
func buffers(plan model.Plan) string {
	text := fmt.Sprintf("%s apply=%t", plan.Reason, plan.Apply)
	for _, vm := range plan.VMs {
		text += " " + vm.PodUID + ":" + vm.Reason(v1alpha1.LeverBuffering).Reason
		if b := vm.Buffering; !b.IsZero() {
			text += fmt.Sprintf("@%d/%d", b.Window.Microseconds(), b.FloodWindow.Microseconds())
		}
	}
	return text
}

func hurtAt(window time.Duration) []model.Hurt {
	return []model.Hurt{{Window: window, Until: now().Add(24 * time.Hour), Why: "packets were lost on the node"}}
}

func TestBufferingReasons(t *testing.T) {
	const ofB = " b:Buffered@250/500"
	for name, tc := range map[string]struct {
		change func(*model.Node)
		want   string
	}{
		"both":                   {nil, "Planned apply=true a:Buffered@250/500" + ofB},
		"few packets":            {func(n *model.Node) { n.VMs[0].Tuning = model.Tuning{} }, "Planned apply=true a:FloodDefenceOnly@0/500" + ofB},
		"interactive, no budget": {func(n *model.Node) { n.VMs[0].TrafficClass, n.VMs[0].LatencyBudget = v1alpha1.TrafficInteractive, 0 }, "Planned apply=true a:FloodDefenceOnly@0/500" + ofB},
		"no budget, no defence":  {func(n *model.Node) { n.VMs[0].LatencyBudget, n.VMs[0].DefendFloods = 0, false }, "Planned apply=true a:NoLatencyBudget" + ofB},
		"no defence":             {func(n *model.Node) { n.VMs[0].DefendFloods = false }, "Planned apply=true a:Buffered@250/0" + ofB},
		"no tap":                 {func(n *model.Node) { n.Rates.VMs[0].Taps = nil }, "Planned apply=true a:NoTap" + ofB},
		"it hurt":                {func(n *model.Node) { n.VMs[0].Tuning.Hurts = hurtAt(250 * us) }, "Planned apply=true a:Buffered@125/500" + ofB},
		"all hurt":               {func(n *model.Node) { n.VMs[0].Tuning.Hurts, n.VMs[0].DefendFloods = hurtAt(125*us), false }, "Planned apply=true a:Hurts" + ofB},
		"the node cannot":        {func(n *model.Node) { n.Buffering = "the kernel has no fq" }, "NothingToDo apply=true a:BufferingUnsupported b:BufferingUnsupported"},
		"another lever":          {func(n *model.Node) { n.Policy.Levers = []v1alpha1.Lever{v1alpha1.LeverAffinity} }, "Planned apply=true a:LeverNotAllowed b:LeverNotAllowed"},
		"nobody asks, nothing is reported": {func(n *model.Node) {
			n.Policy.Levers, n.VMs[0].LatencyBudget = []v1alpha1.Lever{v1alpha1.LeverAffinity}, 0
		}, "Planned apply=true a: b:LeverNotAllowed"},
	} {
		node := bufferingNode("a", "b")
		plan := Plan(with(node, nil, tc.change), now())
		if got := buffers(plan); got != tc.want {
			t.Errorf("%s:\n     %s\nwant %s", name, got, tc.want)
		}
		if why := plan.VMs[0].Reason(v1alpha1.LeverBuffering); why.Reason == v1alpha1.ReasonBufferingUnsupported && why.Message != "the kernel has no fq" {
			t.Errorf("%s: message %q", name, why.Message)
		}
	}
}

func TestBufferingKeepsAndDrops(t *testing.T) {
	start := bufferingNode("a", "b")
	first := Plan(start, now())
	start.VMs[0].Tuning.Trials = trialsOf(2)
	inForce := Plan(with(start, &first, nil), now())
	if got, want := buffers(inForce), "Planned apply=true a:Buffered@500/500 b:Buffered@250/500"; got != want {
		t.Fatalf("%s, want %s", got, want)
	}
	frozen := func(change func(*model.Node)) func(*model.Node) {
		return func(n *model.Node) {
			n.Frozen = true
			change(n)
		}
	}
	const ofB = " b:Buffered@250/500"
	const asItWas = "a:Buffered@500/500" + ofB
	for name, tc := range map[string]struct {
		change func(*model.Node)
		want   string
	}{
		"nothing known any more":   {func(n *model.Node) { n.VMs[0].Tuning, n.VMs[1].Tuning = model.Tuning{}, model.Tuning{} }, "Planned apply=true " + asItWas},
		"no taps for a moment":     {func(n *model.Node) { n.Review, n.Rates.VMs[0].Taps = false, nil }, "Planned apply=true " + asItWas},
		"no taps any more":         {func(n *model.Node) { n.Rates.VMs[0].Taps = nil }, "Planned apply=true a:NoTap" + ofB},
		"it hurt":                  {func(n *model.Node) { n.VMs[0].Tuning.Hurts = hurtAt(500 * us) }, "Planned apply=true a:Buffered@250/500" + ofB},
		"frozen, it hurt":          {frozen(func(n *model.Node) { n.VMs[0].Tuning.Hurts = hurtAt(500 * us) }), "NodeFrozen apply=true a:Buffered@250/500" + ofB},
		"frozen, budget shrank":    {frozen(func(n *model.Node) { n.VMs[0].LatencyBudget = 300 * us }), "NodeFrozen apply=true a:Buffered@125/500" + ofB},
		"frozen, budget grew":      {frozen(func(n *model.Node) { n.VMs[0].LatencyBudget = time.Second }), "NodeFrozen apply=true " + asItWas},
		"frozen, class changed":    {frozen(func(n *model.Node) { n.VMs[0].TrafficClass = v1alpha1.TrafficInteractive }), "NodeFrozen apply=true a:Buffered@250/500" + ofB},
		"frozen, no budget":        {frozen(func(n *model.Node) { n.VMs[0].LatencyBudget = 0 }), "NodeFrozen apply=true a:FloodDefenceOnly@0/500" + ofB},
		"frozen, no defence":       {frozen(func(n *model.Node) { n.VMs[0].DefendFloods = false }), "NodeFrozen apply=true a:Buffered@500/0" + ofB},
		"frozen, the node cannot":  {frozen(func(n *model.Node) { n.Buffering = "no fq" }), "NodeFrozen apply=true a:BufferingUnsupported b:BufferingUnsupported"},
		"services, and onPackets":  {func(n *model.Node) { n.VMs[0].Services, n.VMs[0].OnPackets = []model.Service{{Port: 53}}, 20_000 }, "Planned apply=true " + asItWas},
		"a longer one is deserved": {func(n *model.Node) { n.VMs[1].Tuning.Trials = trialsOf(2) }, "Planned apply=true a:Buffered@500/500 b:Buffered@500/500"},
	} {
		node := bufferingNode("a", "b")
		node.VMs[0].Tuning.Trials = trialsOf(2)
		got := Plan(with(node, &inForce, tc.change), now())
		if buffers(got) != tc.want {
			t.Errorf("%s:\n     %s\nwant %s", name, buffers(got), tc.want)
		}
		for _, vm := range got.VMs {
			was, _ := inForce.VM(vm.PodUID)
			why, before := vm.Reason(v1alpha1.LeverBuffering), was.Reason(v1alpha1.LeverBuffering)
			if vm.Buffering.Equal(was.Buffering) && why != before {
				t.Errorf("%s: of %s it is said %+v, it was %+v", name, vm.PodUID, why, before)
			}
		}
	}
}

// A recommendation stands, and what is approved is what was read: a longer window waits for
// the next. What hurts goes at once, and needs no new approval.
func TestBufferingIsRecommended(t *testing.T) {
	node := bufferingNode("a", "b")
	node.Policy.Mode = v1alpha1.ModeRecommend
	first := Plan(node, now())
	approve := func(n *model.Node) { n.Policy.Approvals = []string{first.Revision} }
	longer := func(n *model.Node) { n.VMs[0].Tuning.Trials = trialsOf(2) }
	for name, tc := range map[string]struct {
		change   func(*model.Node)
		after    time.Duration
		want     string
		revision bool
	}{
		"approved, longer is better": {func(n *model.Node) { approve(n); longer(n) }, time.Minute, "Planned apply=true a:Buffered@250/500 b:Buffered@250/500", true},
		"the validity ended":         {func(n *model.Node) { approve(n); longer(n) }, 2 * time.Hour, "AwaitingApproval apply=false a:Buffered@500/500 b:Buffered@250/500", false},
		"approved, it hurt":          {func(n *model.Node) { approve(n); n.VMs[0].Tuning.Hurts = hurtAt(250 * us) }, time.Minute, "Planned apply=true a:Buffered@125/500 b:Buffered@250/500", true},
		"approved, no budget":        {func(n *model.Node) { approve(n); n.VMs[0].LatencyBudget = 0 }, time.Minute, "Planned apply=true a:FloodDefenceOnly@0/500 b:Buffered@250/500", true},
	} {
		got := Plan(with(clone(node), &first, tc.change), now().Add(tc.after))
		if buffers(got) != tc.want || (got.Revision == first.Revision) != tc.revision {
			t.Errorf("%s:\n     %s, revision %s after %s\nwant %s", name, buffers(got), got.Revision, first.Revision, tc.want)
		}
	}
}

// everyLever is part of a node's plan.
func everyLever(n *model.Node) {
	n.Policy.Levers = []v1alpha1.Lever{v1alpha1.LeverAffinity, v1alpha1.LeverSlice, v1alpha1.LeverShaping, v1alpha1.LeverBuffering}
}
