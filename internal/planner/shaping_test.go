package planner

import (
	"fmt"
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// shapingNode has VMs that send 100 Mbit/s each and may be held for a minute, and
// a policy that allows lever Shaping alone.
func shapingNode(names ...string) model.Node {
	node := newNode(names...)
	node.Policy.Levers = []v1alpha1.Lever{v1alpha1.LeverShaping}
	for i := range node.VMs {
		node.VMs[i].TrafficClass, node.VMs[i].MaxDelay = v1alpha1.TrafficDeferrable, time.Minute
		node.Rates.VMs[i].Sent = &model.Sent{BitsPerSecond: 100e6, Seconds: 64}
	}
	return node
}

// shapes is a plan in short: what lever Shaping does.
func shapes(plan model.Plan) string {
	text := fmt.Sprintf("%s apply=%t", plan.Reason, plan.Apply)
	for _, vm := range plan.VMs {
		text += " " + vm.PodUID + ":" + vm.Reason(v1alpha1.LeverShaping).Reason
		if vm.Shaping.Ceiling > 0 {
			text += fmt.Sprintf("<%.0fM", vm.Shaping.Ceiling/1e6)
		}
		if turn := vm.Shaping.Turn; turn != nil {
			text += fmt.Sprintf("@%v+%v", turn.Offset, turn.Length)
		}
	}
	return text
}

func both(n *model.Node) {
	n.Policy.Levers = []v1alpha1.Lever{v1alpha1.LeverAffinity, v1alpha1.LeverShaping}
}

func TestShapingReasons(t *testing.T) {
	ceiling := func(c units.BitsPerSecond) func(*model.Node) {
		return func(n *model.Node) { n.VMs[0].Ceiling = c }
	}
	ceilingAlone := func(n *model.Node) { n.VMs[0].Ceiling, n.VMs[0].TrafficClass = 50e6, "Throughput" }
	for name, tc := range map[string]struct {
		change func(*model.Node)
		want   string
	}{
		"turns":                     {nil, "Planned apply=true a:TakesTurns@0s+4s b:TakesTurns@4s+4s"},
		"a ceiling too":             {ceiling(1e9), "Planned apply=true a:TakesTurns<1000M@0s+4s b:TakesTurns@4s+4s"},
		"a ceiling and no room":     {ceiling(110e6), "Planned apply=true a:Ceiling<110M b:NoRoom"},
		"a ceiling alone":           {ceilingAlone, "Planned apply=true a:Ceiling<50M b:NoOtherSender"},
		"a ceiling too low":         {ceiling(255_999), "NothingToDo apply=true a:CeilingTooLow b:NoOtherSender"},
		"nothing to shape":          {func(n *model.Node) { n.VMs[0].TrafficClass = "Interactive" }, "NothingToDo apply=true a:NothingToShape b:NoOtherSender"},
		"sends little":              {func(n *model.Node) { n.Rates.VMs[0].Sent = &model.Sent{BitsPerSecond: 1e5} }, "NothingToDo apply=true a:SendsLittle b:NoOtherSender"},
		"not known yet":             {func(n *model.Node) { n.Rates.VMs[0].Sent = nil }, "NothingToDo apply=true a:Learning b:NoOtherSender"},
		"not running":               {func(n *model.Node) { n.Rates.VMs = n.Rates.VMs[1:] }, "NothingToDo apply=true a:NotRunning b:NoOtherSender"},
		"no ceiling before it runs": {func(n *model.Node) { ceilingAlone(n); n.Rates.VMs = nil }, "NothingToDo apply=true a:NotRunning b:NotRunning"},
		"both levers":               {both, "Planned apply=true a:TakesTurns@0s+4s b:TakesTurns@4s+4s"},
		"nobody asks, nothing is reported": {func(n *model.Node) {
			n.Policy.Levers = []v1alpha1.Lever{v1alpha1.LeverAffinity}
			n.VMs[0].TrafficClass, n.VMs[1].TrafficClass = "Interactive", "Throughput"
		}, "Planned apply=true a: b:"},
	} {
		node := shapingNode("a", "b")
		if got := shapes(Plan(with(node, nil, tc.change), now())); got != tc.want {
			t.Errorf("%s:\n     %s\nwant %s", name, got, tc.want)
		}
	}
}

func TestShapingKeepsAndDrops(t *testing.T) {
	start := shapingNode("a", "b")
	start.VMs[0].Ceiling = 500e6
	inForce := Plan(start, now())
	if got, want := shapes(inForce), "Planned apply=true a:TakesTurns<500M@0s+4s b:TakesTurns@4s+4s"; got != want {
		t.Fatalf("%s, want %s", got, want)
	}
	frozen := func(change func(*model.Node)) func(*model.Node) {
		return func(n *model.Node) {
			n.Frozen = true
			change(n)
		}
	}
	const turnOfB = " b:TakesTurns@4s+4s"
	for name, tc := range map[string]struct {
		change func(*model.Node)
		want   string
	}{
		"a little changed": {func(n *model.Node) { n.Rates.VMs[0].Sent = &model.Sent{BitsPerSecond: 110e6} }, "Planned apply=true a:TakesTurns<500M@0s+4s" + turnOfB},
		"means missing":    {func(n *model.Node) { n.Rates.VMs[0].Sent, n.Rates.VMs[1].Sent = nil, nil }, "Planned apply=true a:TakesTurns<500M@0s+4s" + turnOfB},
		"a VM not seen, its ceiling lowered": {func(n *model.Node) { n.Rates.VMs = n.Rates.VMs[1:]; n.VMs[0].Ceiling = 1e6 },
			"Planned apply=true a:TakesTurns<500M@0s+4s" + turnOfB},
		"a VM went":               {func(n *model.Node) { n.VMs = n.VMs[1:] }, "NothingToDo apply=true b:NoOtherSender"},
		"frozen, delay shorter":   {frozen(func(n *model.Node) { n.VMs[0].MaxDelay = 15 * time.Second }), "NodeFrozen apply=true a:Ceiling<500M" + turnOfB},
		"frozen, class changed":   {frozen(func(n *model.Node) { n.VMs[1].TrafficClass = "Interactive" }), "NodeFrozen apply=true a:TakesTurns<500M@0s+4s b:NothingToShape"},
		"frozen, no ceiling":      {frozen(func(n *model.Node) { n.VMs[0].Ceiling = 0 }), "NodeFrozen apply=true a:TakesTurns@0s+4s" + turnOfB},
		"frozen, ceiling raised":  {frozen(func(n *model.Node) { n.VMs[0].Ceiling = 1e9 }), "NodeFrozen apply=true a:TakesTurns@0s+4s" + turnOfB},
		"frozen, ceiling lowered": {frozen(func(n *model.Node) { n.VMs[0].Ceiling = 400e6 }), "NodeFrozen apply=true a:TakesTurns<500M@0s+4s" + turnOfB},
		"ceiling lowered":         {func(n *model.Node) { n.VMs[0].Ceiling = 400e6 }, "Planned apply=true a:TakesTurns<400M@0s+4s" + turnOfB},
		"rates awaited, ceiling gone": {func(n *model.Node) { n.Rates, n.VMs[0].Ceiling = nil, 0 },
			"NoRates apply=true a:TakesTurns@0s+4s" + turnOfB},
	} {
		node := shapingNode("a", "b")
		node.VMs[0].Ceiling = 500e6
		if got := shapes(Plan(with(node, &inForce, tc.change), now())); got != tc.want {
			t.Errorf("%s:\n     %s\nwant %s", name, got, tc.want)
		}
	}
}

func TestShapingIsRecommended(t *testing.T) {
	node := with(shapingNode("a", "b"), nil, both)
	node.Policy.Mode = v1alpha1.ModeRecommend
	first := Plan(node, now())
	approve := func(n *model.Node) { n.Policy.Approvals = []string{first.Revision} }
	for name, tc := range map[string]struct {
		change   func(*model.Node)
		after    time.Duration
		want     string
		revision bool
	}{
		"approved, a ceiling came": {func(n *model.Node) { approve(n); n.VMs[0].Ceiling = 1e9 }, time.Minute,
			"Planned apply=true a:TakesTurns@0s+4s b:TakesTurns@4s+4s", true},
		"approved, the lever went": {func(n *model.Node) { approve(n); n.Policy.Levers = []v1alpha1.Lever{v1alpha1.LeverAffinity} }, time.Minute,
			"Planned apply=true a:LeverNotAllowed b:LeverNotAllowed", true},
		"the validity ended, a ceiling came": {func(n *model.Node) { approve(n); n.VMs[0].Ceiling = 1e9 }, 2 * time.Hour,
			"AwaitingApproval apply=false a:TakesTurns<1000M@0s+4s b:TakesTurns@4s+4s", false},
	} {
		got := Plan(with(clone(node), &first, tc.change), now().Add(tc.after))
		if shapes(got) != tc.want {
			t.Errorf("%s:\n     %s\nwant %s", name, shapes(got), tc.want)
		}
		if (got.Revision == first.Revision) != tc.revision {
			t.Errorf("%s: revision %s after %s", name, got.Revision, first.Revision)
		}
	}
}
