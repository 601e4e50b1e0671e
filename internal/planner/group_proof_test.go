package planner

import (
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/planner/traffic"
	"github.com/joulevirt/joulevirt/internal/units"
)

// groupSchedule has slots of 21 minutes; at noon the lever is on.
func groupSchedule() *model.Schedule { return scheduleWith(true) }

// scheduleWith has the lever on at noon, or off, and on at the end of the tests.
func scheduleWith(on bool) *model.Schedule {
	s := model.NewSchedule(v1alpha1.LeverTrafficShare, "shop/web", model.TrialOneIn)
	for s.At(noon()).On != on || !s.At(noon().Add(101*time.Minute)).On {
		s.Seed++
	}
	return s
}

func stands(stance model.Stance, use bool, schedule *model.Schedule) *model.Proof {
	return &model.Proof{Lever: v1alpha1.LeverTrafficShare, Stance: stance, Use: use, Schedule: schedule, Message: "what trials say"}
}

// sharesGiven is what each member gets by a plan.
func sharesGiven(group Group, plan GroupPlan) map[string]float64 {
	shares := map[string]float64{}
	for i := range group.Members {
		if plan.Action == GroupSteer && !plan.Off {
			maps.Copy(shares, plan.Shares)
			break
		}
		shares[group.Members[i].Name] = 1 / float64(len(group.Members))
	}
	return shares
}

// TestGroupStands: what trials say decides whether a group is steered, where nothing else does.
func TestGroupStands(t *testing.T) {
	approved := func(g *Group) {
		recommended := groupOf(g.Granularity, 5)
		forNodes(&recommended, func(n *GroupNode) { n.Policy = trafficPolicy(v1alpha1.ModeRecommend) })
		plan := PlanGroup(recommended, noon())
		g.Last = &plan
		forNodes(g, func(n *GroupNode) { n.Policy = trafficPolicy(v1alpha1.ModeRecommend, plan.Revision) })
	}
	off, broken := scheduleWith(false), groupSchedule()
	broken.Slot = 0
	for name, tc := range map[string]struct {
		change   func(*Group)
		steers   bool
		reason   string
		approved bool
	}{
		"no trials":           {func(*Group) {}, true, v1alpha1.ReasonSkewed, true},
		"unproven":            {func(g *Group) { g.Proof = stands(model.StanceUnproven, true, nil) }, true, v1alpha1.ReasonSkewed, true},
		"adopted":             {func(g *Group) { g.Proof = stands(model.StanceAdopted, true, nil) }, true, v1alpha1.ReasonSkewed, true},
		"awaits its trial":    {func(g *Group) { g.Proof = stands(model.StanceAwaiting, false, nil) }, false, v1alpha1.ReasonAwaitingTrial, false},
		"rejected":            {func(g *Group) { g.Proof = stands(model.StanceRejected, false, nil) }, false, v1alpha1.ReasonRejectedByTrial, false},
		"undecided":           {func(g *Group) { g.Proof = stands(model.StanceUndecided, false, nil) }, false, v1alpha1.ReasonTrialUndecided, false},
		"rejected, schedule":  {func(g *Group) { g.Proof = stands(model.StanceRejected, false, groupSchedule()) }, false, v1alpha1.ReasonRejectedByTrial, false},
		"not known yet":       {func(g *Group) { g.ProofsAwaited = true }, false, v1alpha1.ReasonAwaitingProof, false},
		"on":                  {func(g *Group) { g.Proof = stands(model.StanceOnTrial, true, groupSchedule()) }, true, v1alpha1.ReasonSkewed, true},
		"off":                 {func(g *Group) { g.Proof = stands(model.StanceOnTrial, true, off) }, false, v1alpha1.ReasonSkewed, true},
		"a broken schedule":   {func(g *Group) { g.Proof = stands(model.StanceOnTrial, true, broken) }, false, v1alpha1.ReasonSkewed, true},
		"approved":            {func(g *Group) { approved(g); g.Proof = stands(model.StanceAdopted, true, nil) }, true, v1alpha1.ReasonSkewed, true},
		"approved, rejected":  {func(g *Group) { approved(g); g.Proof = stands(model.StanceRejected, false, nil) }, false, v1alpha1.ReasonRejectedByTrial, true},
		"approved, not known": {func(g *Group) { approved(g); g.ProofsAwaited = true }, false, v1alpha1.ReasonAwaitingProof, true},
		"approved, known since": {func(g *Group) {
			approved(g)
			g.ProofsAwaited = true
			g.Last = ptrTo(planGroup(t, *g, noon()))
			g.ProofsAwaited, g.Proof = false, stands(model.StanceAdopted, true, nil)
		}, true, v1alpha1.ReasonSkewed, true},
		"withdrawn":         {func(g *Group) { g.Withdrawn = hurt() }, false, v1alpha1.ReasonGuardWithdrawn, false},
		"withdrawn, over":   {func(g *Group) { g.Withdrawn = hurt(); g.Withdrawn.Until = noon() }, true, v1alpha1.ReasonSkewed, true},
		"withdrawn, frozen": {func(g *Group) { steered(t, g); g.Withdrawn = hurt() }, false, v1alpha1.ReasonGuardWithdrawn, false},
		"frozen":            {func(g *Group) { steered(t, g) }, true, v1alpha1.ReasonInFreeze, true},
		"withdrawn, approved": {func(g *Group) {
			approved(g)
			g.Withdrawn = hurt()
		}, false, v1alpha1.ReasonGuardWithdrawn, true},
		"withdrawn, on":  {func(g *Group) { g.Proof, g.Withdrawn = stands(model.StanceOnTrial, true, groupSchedule()), hurt() }, false, v1alpha1.ReasonGuardWithdrawn, false},
		"withdrawn, off": {func(g *Group) { g.Proof, g.Withdrawn = stands(model.StanceOnTrial, true, off), hurt() }, false, v1alpha1.ReasonGuardWithdrawn, false},
		"forbidden": {func(g *Group) {
			g.Proof = stands(model.StanceOnTrial, true, groupSchedule())
			g.Nodes[0].Policy = trafficPolicy(v1alpha1.ModeObserve)
		}, false, v1alpha1.ReasonObserveOnly, false},
	} {
		for _, granularity := range []traffic.Granularity{traffic.Weighted, traffic.Equal} {
			group := groupOf(granularity, 5)
			tc.change(&group)
			plan := planGroup(t, group, noon())
			steers := moved(sharesGiven(groupOf(granularity, 5), GroupPlan{}), sharesGiven(group, plan)) > 0.1
			if steers != tc.steers || plan.Reason != tc.reason || plan.Approved != tc.approved {
				t.Errorf("%s, granularity %d: steers %t, %s, approved %t; want %t, %s, %t", name, granularity, steers, plan.Reason, plan.Approved, tc.steers, tc.reason, tc.approved)
			}
			if plan.Possible == nil {
				t.Errorf("%s, granularity %d: what could be saved is not reported", name, granularity)
			}
		}
	}
}

// hurt is what the manager's guard takes the lever for at noon.
func hurt() *model.Withdrawal {
	return &model.Withdrawal{
		PodUID: "a", Lever: v1alpha1.LeverTrafficShare, Sign: v1alpha1.GuardSteal, Time: noon(), Until: noon().Add(5 * time.Minute), Count: 1, Message: "VM a waits",
	}
}

// steered has the group's shares in force, and a freeze since.
func steered(t *testing.T, g *Group) {
	plan := planGroup(t, *g, noon())
	for range 8 {
		*g = follow(*g, plan)
		plan = planGroup(t, *g, noon())
	}
	*g = follow(*g, plan)
	forNodes(g, func(n *GroupNode) { n.Hold = model.Hold{Reason: v1alpha1.ReasonInFreeze, Message: "a freeze"} })
}

// TestWithdrawnGroupKeepsItsSchedule: slots go on as they were drawn, though all get the same,
// also while nothing new may be done; then the lever comes back as it was.
func TestWithdrawnGroupKeepsItsSchedule(t *testing.T) {
	for _, frozen := range []bool{false, true} {
		group := groupOf(traffic.Weighted, 5)
		group.Proof = stands(model.StanceOnTrial, true, groupSchedule())
		group = follow(group, planGroup(t, group, noon()))
		before := sharesGiven(group, *group.Last)
		if frozen {
			forNodes(&group, func(n *GroupNode) { n.Hold = model.Hold{Reason: v1alpha1.ReasonInFreeze} })
		}
		group.Withdrawn = hurt()
		group.Withdrawn.Until = noon().Add(100 * time.Minute)
		for minute := range 100 {
			now := noon().Add(time.Duration(minute) * time.Minute)
			plan := planGroup(t, group, now)
			done := plan.Done(nil, true, now)
			if moment := groupSchedule().At(now); plan.Action == GroupSteer || done == nil || done.On != moment.On {
				t.Fatalf("frozen %t, minute %d: %+v, done %+v", frozen, minute, plan, done)
			}
			group = follow(group, plan)
		}
		forNodes(&group, func(n *GroupNode) { n.Hold = model.Hold{} })
		plan := planGroup(t, group, noon().Add(101*time.Minute))
		if diff := cmp.Diff(before, sharesGiven(group, plan)); diff != "" {
			t.Errorf("frozen %t, shares (-before +after):\n%s", frozen, diff)
		}
	}
}

func ptrTo(plan GroupPlan) *GroupPlan { return &plan }

// TestRejectedIsTold: a group that its plan balances by itself says that its lever was rejected,
// as long as it is, also while a new manager does not know yet what trials showed.
func TestRejectedIsTold(t *testing.T) {
	for _, granularity := range []traffic.Granularity{traffic.Weighted, traffic.Equal} {
		group := groupOf(granularity, 5)
		linear := func(rate units.BitsPerSecond) units.Watts { return units.Watts(rate / 1e8) }
		group.Curves[1] = linear
		if plan := planGroup(t, group, noon()); plan.Reason != v1alpha1.ReasonCurvesLinear {
			t.Fatalf("granularity %d: without a saving %s: %s", granularity, plan.Reason, plan.Message)
		}
		for _, step := range []struct {
			name    string
			proof   *model.Proof
			awaited bool
			due     bool
			want    string
		}{
			{"rejected", stands(model.StanceRejected, false, nil), false, true, v1alpha1.ReasonRejectedByTrial},
			{"between two plans", stands(model.StanceRejected, false, nil), false, false, v1alpha1.ReasonRejectedByTrial},
			{"another manager", nil, true, true, v1alpha1.ReasonRejectedByTrial},
			{"its cool-down is over", stands(model.StanceAwaiting, false, nil), false, false, v1alpha1.ReasonCurvesLinear},
		} {
			group.Proof, group.ProofsAwaited, group.Due = step.proof, step.awaited, step.due
			plan := planGroup(t, group, noon())
			if plan.Reason != step.want || plan.Action != GroupBalance || plan.Withheld ||
				plan.Reason == v1alpha1.ReasonRejectedByTrial && plan.Message != "what trials say" {
				t.Errorf("granularity %d, %s: %+v, want %s", granularity, step.name, plan, step.want)
			}
			group.Last = &plan
		}
	}
}
