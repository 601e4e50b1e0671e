package planner

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/planner/traffic"
)

// A pause, or one VM or node that opted out, gives the traffic of the whole group back.
func TestGroupGivesBack(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*Group)
		reason model.Reason
		words  string
	}{
		"paused":   {func(g *Group) { g.Nodes[3].Policy.Paused = true }, model.ReasonPaused, "EnergyPolicy p is paused"},
		"observes": {func(g *Group) { g.Nodes[3].Policy.Paused, g.Nodes[2].Policy.Mode = true, model.ModeObserve }, model.ReasonObserveOnly, ""},
		"a VM opted out": {func(g *Group) { g.Members[1].OptOut = model.OptOut{Levers: []model.Lever{model.LeverTrafficShare}} },
			model.ReasonOptedOut, "VirtualMachineInstance vm-1 names the lever; all VMs of the group keep equal shares"},
		"a VM that is not ready": {func(g *Group) { g.Members[1].OptOut.All, g.Members[1].Ready = true, false }, model.ReasonOptedOut, "vm-1 keeps all levers away"},
		"a node opted out":       {func(g *Group) { g.Nodes[2].OptOut = model.OptOut{All: true, Unreadable: `"x"`} }, model.ReasonOptedOut, `node n2, which runs VM vm-2, is "x"`},
		"during a freeze": {func(g *Group) {
			forNodes(g, func(n *GroupNode) { n.Policy.Paused = true; n.Hold.Reason = model.ReasonInFreeze })
		}, model.ReasonPaused, "p"},
	} {
		for _, granularity := range []traffic.Granularity{traffic.Weighted, traffic.Equal} {
			group, _ := settle(t, groupOf(granularity, 5))
			tc.change(&group)
			plan := planGroup(t, group, noon())
			if plan.Action != GroupRelease || plan.Reason != tc.reason || !strings.Contains(plan.Message, tc.words) || plan.Approved {
				t.Errorf("%s, granularity %d: action %d, %s: %q", name, granularity, plan.Action, plan.Reason, plan.Message)
			}
		}
	}
	other := groupOf(traffic.Weighted, 5)
	other.Members[1].OptOut = model.OptOut{Levers: []model.Lever{model.LeverAffinity}}
	if plan := planGroup(t, other, noon()); plan.Action != GroupSteer {
		t.Errorf("opted out of another lever: %+v", plan)
	}
}

// Outside of the times of changes shares stay, but for those of members that fail, and
// nothing is steered that was not.
func TestGroupOutsideOfTheTimesOfChanges(t *testing.T) {
	closed := func(g *Group) {
		g.Nodes[2].Hold = model.Hold{Reason: model.ReasonOutsideChangeWindow, Message: "none is open until then"}
	}
	group := groupOf(traffic.Weighted, 5)
	closed(&group)
	plan := planGroup(t, group, noon())
	if plan.Action != GroupBalance || plan.Reason != model.ReasonOutsideChangeWindow || plan.Message != "EnergyPolicy p: none is open until then" {
		t.Errorf("never steered: action %d, %s: %q", plan.Action, plan.Reason, plan.Message)
	}
	steered, before := settle(t, groupOf(traffic.Weighted, 5))
	closed(&steered)
	for i := range steered.Members {
		steered.Members[i].Rate /= 3
	}
	plan = planGroup(t, steered, noon().Add(time.Hour))
	if plan.Action != GroupSteer || plan.Reason != model.ReasonOutsideChangeWindow {
		t.Fatalf("steered: action %d, %s", plan.Action, plan.Reason)
	}
	for name, share := range before.Shares {
		if math.Abs(plan.Shares[name]-share) > 1e-9 {
			t.Errorf("%s had %v, and has %v", name, share, plan.Shares[name])
		}
	}
	for i := range steered.Members {
		if before.Shares[steered.Members[i].Name] > 0 {
			steered.Members[i].Ready = false
			failed := planGroup(t, steered, noon().Add(time.Hour))
			if failed.Action != GroupSteer || failed.Shares[steered.Members[i].Name] > 0 {
				t.Errorf("%s failed: action %d, shares %v", steered.Members[i].Name, failed.Action, failed.Shares)
			}
			break
		}
	}
	// An approval waits too.
	forNodes(&group, func(n *GroupNode) { n.Policy, n.Hold = trafficPolicy(model.ModeRecommend), model.Hold{} })
	recommended := planGroup(t, group, noon())
	group = follow(group, recommended)
	closed(&group)
	forNodes(&group, func(n *GroupNode) { n.Policy = trafficPolicy(model.ModeRecommend, recommended.Revision) })
	if plan := planGroup(t, group, noon().Add(time.Minute)); plan.Action == GroupSteer || plan.Revision != recommended.Revision {
		t.Errorf("approved: action %d, revision %s, want %s to wait", plan.Action, plan.Revision, recommended.Revision)
	}
	forNodes(&group, func(n *GroupNode) { n.Hold = model.Hold{} })
	if plan := planGroup(t, group, noon().Add(time.Minute)); plan.Action != GroupSteer || plan.Revision != recommended.Revision {
		t.Errorf("in time: action %d, revision %s, want %s to be steered", plan.Action, plan.Revision, recommended.Revision)
	}
}
