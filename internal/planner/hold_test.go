package planner

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

func inFreeze(n *model.Node) {
	n.Hold = model.Hold{Reason: model.ReasonInFreeze, Message: "until tomorrow"}
}

// Outside of the times of changes a plan stays as far as it is allowed.
func TestTimesOfNoChanges(t *testing.T) {
	hot := func(n *model.Node) {
		for cpu := range 8 {
			n.Rates.CPUs = append(n.Rates.CPUs, model.CPURates{CPU: cpu, BusyCores: 0.95})
		}
	}
	inForce := Plan(newNode("a", "b"), now())
	none := Plan(with(newNode("a", "b"), nil, hot), now())
	approved := newNode("a", "b")
	approved.Policy.Mode = model.ModeRecommend
	recommended := Plan(approved, now())
	approved.Policy.Approvals = []string{recommended.Revision}
	recommended = Plan(with(approved, &recommended, nil), now())
	recommend := func(n *model.Node) { n.Policy = approved.Policy }
	for name, tc := range map[string]struct {
		current *model.Plan
		change  func(*model.Node)
		want    string
	}{
		"nothing was done":       {nil, nil, "InFreeze apply=true a:InFreeze/0 b:InFreeze/0"},
		"as it was":              {&inForce, nil, "InFreeze apply=true a:Pinned/2 b:Pinned/2"},
		"a VM is to be shared":   {&inForce, func(n *model.Node) { n.VMs[0].Affinity = model.AffinityShared }, "InFreeze apply=true a:SharedPreferred/0 b:Pinned/2"},
		"a VM opted out":         {&inForce, func(n *model.Node) { n.VMs[0].OptOut.All = true }, "InFreeze apply=true a:OptedOut/0 b:Pinned/2"},
		"cores became too hot":   {&inForce, hot, "InFreeze apply=true a:CoreWouldBeHot/0 b:CoreWouldBeHot/0"},
		"and one has no rates":   {&inForce, func(n *model.Node) { hot(n); n.Rates.VMs = n.Rates.VMs[1:] }, "InFreeze apply=true a:Pinned/2 b:CoreWouldBeHot/0"},
		"hot, and as approved":   {&recommended, func(n *model.Node) { recommend(n); hot(n) }, "InFreeze apply=true a:Pinned/2 b:Pinned/2"},
		"it would not help":      {&none, nil, "InFreeze apply=true a:CoreWouldBeHot/0 b:CoreWouldBeHot/0"},
		"the policy observes":    {&inForce, func(n *model.Node) { n.Policy.Mode = model.ModeObserve }, "ObserveOnly apply=false a:ObserveOnly/0 b:ObserveOnly/0"},
		"paused":                 {&inForce, func(n *model.Node) { n.Policy.Paused = true }, "Paused apply=false a:Paused/0 b:Paused/0"},
		"cordoned":               {&inForce, func(n *model.Node) { n.Frozen = true }, "NodeFrozen apply=true a:Pinned/2 b:Pinned/2"},
		"no rates":               {&inForce, func(n *model.Node) { n.Rates = nil }, "NoRates apply=true a:Pinned/2 b:Pinned/2"},
		"no report":              {&inForce, func(n *model.Node) { n.Reported, n.Rates = false, nil }, "NoReport apply=true a:Pinned/2 b:Pinned/2"},
		"the meter went":         {&inForce, func(n *model.Node) { n.Metered = false }, "NoMeter apply=false a:NoMeter/0 b:NoMeter/0"},
		"approved and in force":  {&recommended, recommend, "InFreeze apply=true a:Pinned/2 b:Pinned/2"},
		"approval taken back":    {&recommended, func(n *model.Node) { recommend(n); n.Policy.Approvals = nil }, "InFreeze apply=false a:Pinned/2 b:Pinned/2"},
		"nothing is recommended": {nil, func(n *model.Node) { recommend(n); n.Policy.Approvals = nil }, "AwaitingApproval apply=false a:Pinned/2 b:Pinned/2"},
	} {
		node := with(clone(newNode("a", "b")), tc.current, tc.change)
		inFreeze(&node)
		got := Plan(node, now().Add(time.Minute))
		if outcome(got) != tc.want {
			t.Errorf("%s: %s, want %s", name, outcome(got), tc.want)
		}
		if got.Reason == model.ReasonInFreeze && got.Message != "until tomorrow" {
			t.Errorf("%s: the plan says %q", name, got.Message)
		}
	}
}

// What a plan binds, all of it or the part that there was room for, makes no core hot: under
// the same loads a freeze takes no pins away. Those that it took stay away though loads fall.
func TestFreezesTakePinsForHeatAlone(t *testing.T) {
	bound, parts := 0, 0
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 31))
		node := busyNode(r)
		inForce := Plan(load(r, node), now())
		node = with(load(r, node), &inForce, nil)
		if node.Policy.MaxChangesPerHour = r.IntN(4); node.Policy.MaxChangesPerHour == 0 {
			node.NodesBusy = true
		}
		plan := Plan(node, now().Add(2*time.Hour))
		if plan.Reason == model.ReasonChangeBudgetHour {
			parts++
		}
		node = with(node, &plan, inFreeze)
		kept := Plan(node, now().Add(2*time.Hour+time.Minute))
		for i := range plan.VMs {
			bound += len(plan.VMs[i].Pins)
			if diff := cmp.Diff(plan.VMs[i].Pins, kept.VMs[i].Pins); diff != "" {
				t.Errorf("seed %d: of a plan for reason %s a freeze takes pins under the same loads:\n%s", seed, plan.Reason, diff)
			}
		}
	}
	if bound < 60 || parts < 5 {
		t.Errorf("only %d pins were looked at, and %d plans of a part", bound, parts)
	}

	node := newNode("a", "b")
	plan := Plan(node, now())
	for cpu := range 8 {
		node.Rates.CPUs = append(node.Rates.CPUs, model.CPURates{CPU: cpu, BusyCores: 0.95})
	}
	plan = Plan(with(node, &plan, inFreeze), now().Add(time.Minute))
	node.Rates.CPUs = nil
	plan = Plan(with(node, &plan, inFreeze), now().Add(2*time.Minute))
	if want := "InFreeze apply=true a:CoreWouldBeHot/0 b:CoreWouldBeHot/0"; outcome(plan) != want {
		t.Errorf("after the heat %s, want %s", outcome(plan), want)
	}
	node = with(node, &plan, nil)
	node.Review = true
	if want := "Planned apply=true a:Pinned/2 b:Pinned/2"; outcome(Plan(node, now().Add(time.Hour))) != want {
		t.Errorf("after the freeze %s, want %s", outcome(Plan(node, now().Add(time.Hour))), want)
	}
}

// A pause undoes everything; after it the same is done, and an approved recommendation
// needs no other approval.
func TestPause(t *testing.T) {
	for _, mode := range []model.Mode{model.ModeEnforce, model.ModeRecommend} {
		node := newNode("a", "b")
		node.Policy.Mode = mode
		node.Policy.Approvals = []string{Plan(node, now()).Revision}
		inForce := Plan(node, now())
		if !inForce.Apply {
			t.Fatalf("%s: %s", mode, outcome(inForce))
		}
		paused := with(clone(node), &inForce, func(n *model.Node) {
			n.Policy.Paused = true
			// Loads that would give another recommendation.
			n.Rates.VMs[0].VCPUs[0].RunCores = units.Cores(0.5)
		})
		stopped := Plan(paused, now().Add(time.Minute))
		if stopped.Apply || stopped.Reason != model.ReasonPaused || !strings.Contains(stopped.Message, "spec.paused") {
			t.Errorf("%s: paused %s: %s", mode, outcome(stopped), stopped.Message)
		}
		resumed := Plan(with(paused, &stopped, func(n *model.Node) { n.Policy.Paused = false }), now().Add(2*time.Minute))
		if want := "Planned apply=true a:Pinned/2 b:Pinned/2"; outcome(resumed) != want {
			t.Errorf("%s: resumed %s, want %s", mode, outcome(resumed), want)
		}
		if mode == model.ModeRecommend && resumed.Revision != inForce.Revision {
			t.Errorf("resumed with revision %s, was %s", resumed.Revision, inForce.Revision)
		}
		if got := remembered(resumed); got != "12:00:2 12:02:2 " {
			t.Errorf("%s: changes %s", mode, got)
		}
	}
}

func TestOptOut(t *testing.T) {
	inForce := Plan(with(newNode("a", "b"), nil, everyLever), now())
	only := func(levers ...model.Lever) model.OptOut { return model.OptOut{Levers: levers} }
	unreadable := model.OptOut{All: true, Unreadable: `"Afinity"`}
	for name, tc := range map[string]struct {
		change      func(*model.Node)
		want, words string
	}{
		"one VM":        {func(n *model.Node) { n.VMs[0].OptOut.All = true }, "Planned apply=true a:OptedOut/0 b:Pinned/2", "of the VirtualMachineInstance keeps all levers away"},
		"one lever":     {func(n *model.Node) { n.VMs[0].OptOut = only(model.LeverAffinity) }, "Planned apply=true a:OptedOut/0 b:Pinned/2", "of the VirtualMachineInstance names the lever"},
		"another lever": {func(n *model.Node) { n.VMs[0].OptOut = only(model.LeverTrafficShare) }, "Planned apply=true a:Pinned/2 b:Pinned/2", "one physical core"},
		"the node":      {func(n *model.Node) { n.OptOut.All = true }, "OptedOut apply=false a:OptedOut/0 b:OptedOut/0", "of the node keeps all"},
		"a lever of the node": {func(n *model.Node) { n.OptOut = only(model.LeverAffinity) },
			"NothingToDo apply=true a:OptedOut/0 b:OptedOut/0", "of the node names the lever"},
		"unreadable":   {func(n *model.Node) { n.VMs[0].OptOut = unreadable }, "Planned apply=true a:OptedOut/0 b:Pinned/2", `is "Afinity", neither`},
		"while frozen": {func(n *model.Node) { n.VMs[0].OptOut = unreadable; n.Frozen = true }, "NodeFrozen apply=true a:OptedOut/0 b:Pinned/2", "Afinity"},
	} {
		got := Plan(with(newNode("a", "b"), &inForce, tc.change), now())
		if outcome(got) != tc.want {
			t.Errorf("%s: %s, want %s", name, outcome(got), tc.want)
		}
		if words := got.VMs[0].Reason(model.LeverAffinity).Message; !strings.Contains(words, tc.words) {
			t.Errorf("%s: %q, want %q in it", name, words, tc.words)
		}
	}
}

// Each lever of a node's plan leaves alone who opted out of it, and only then.
func TestOptOutOfEachLever(t *testing.T) {
	for _, lever := range []model.Lever{model.LeverAffinity, model.LeverSlice, model.LeverShaping, model.LeverBuffering} {
		node := with(bufferingNode("c", "n"), nil, everyLever)
		node.Slices = true
		for i := range node.VMs {
			node.VMs[i].Ceiling = 50e6
			behave(&node.Rates.VMs[i], node.VMs[i].Name)
		}
		with := Plan(node, now())
		node.VMs[0].OptOut = model.OptOut{Levers: []model.Lever{lever}}
		without := Plan(node, now())
		for _, other := range []model.Lever{model.LeverAffinity, model.LeverShaping, model.LeverBuffering, model.LeverSlice} {
			vm := &without.VMs[0]
			optedOut := vm.Reason(other).Reason == model.ReasonOptedOut
			if other == lever && (!actsBy(&with.VMs[0], lever) || actsBy(vm, lever)) || optedOut != (other == lever) {
				t.Errorf("opted out of %s: %s says %+v, and said %+v", lever, other, vm.Reason(other), with.VMs[0].Reason(other))
			}
		}
	}
}
