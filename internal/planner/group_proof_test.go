package planner

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/planner/traffic"
	"github.com/joulevirt/joulevirt/internal/units"
)

// groupSchedule begins at noon with blocks of 30 minutes: off in the two in the middle.
func groupSchedule() *model.Schedule {
	return &model.Schedule{
		Lever: model.LeverTrafficShare, Seed: 7, Start: noon(), Block: 30 * time.Minute, WashOut: 6 * time.Minute, On: []bool{true, false, false, true},
	}
}

func stands(stance model.Stance, use bool, schedule *model.Schedule) *model.Proof {
	return &model.Proof{Lever: model.LeverTrafficShare, Stance: stance, Use: use, Schedule: schedule, Message: "what trials say"}
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
		forNodes(&recommended, func(n *GroupNode) { n.Policy = trafficPolicy(model.ModeRecommend) })
		plan, err := PlanGroup(recommended, noon())
		if err != nil {
			t.Fatal(err)
		}
		g.Last = &plan
		forNodes(g, func(n *GroupNode) { n.Policy = trafficPolicy(model.ModeRecommend, plan.Revision) })
	}
	off, broken := groupSchedule(), groupSchedule()
	off.On[0], broken.Block = false, 0
	for name, tc := range map[string]struct {
		change   func(*Group)
		steers   bool
		reason   model.Reason
		approved bool
	}{
		"no trials":           {func(*Group) {}, true, model.ReasonSkewed, true},
		"unproven":            {func(g *Group) { g.Proof = stands(model.StanceUnproven, true, nil) }, true, model.ReasonSkewed, true},
		"adopted":             {func(g *Group) { g.Proof = stands(model.StanceAdopted, true, nil) }, true, model.ReasonSkewed, true},
		"awaits its trial":    {func(g *Group) { g.Proof = stands(model.StanceAwaiting, false, nil) }, false, model.ReasonAwaitingTrial, false},
		"rejected":            {func(g *Group) { g.Proof = stands(model.StanceRejected, false, nil) }, false, model.ReasonRejectedByTrial, false},
		"undecided":           {func(g *Group) { g.Proof = stands(model.StanceUndecided, false, nil) }, false, model.ReasonTrialUndecided, false},
		"rejected, schedule":  {func(g *Group) { g.Proof = stands(model.StanceRejected, false, groupSchedule()) }, false, model.ReasonRejectedByTrial, false},
		"not known yet":       {func(g *Group) { g.ProofsAwaited = true }, false, model.ReasonAwaitingProof, false},
		"on":                  {func(g *Group) { g.Proof = stands(model.StanceOnTrial, true, groupSchedule()) }, true, model.ReasonSkewed, true},
		"off":                 {func(g *Group) { g.Proof = stands(model.StanceOnTrial, true, off) }, false, model.ReasonSkewed, true},
		"a broken schedule":   {func(g *Group) { g.Proof = stands(model.StanceOnTrial, true, broken) }, false, model.ReasonSkewed, true},
		"approved":            {func(g *Group) { approved(g); g.Proof = stands(model.StanceAdopted, true, nil) }, true, model.ReasonSkewed, true},
		"approved, rejected":  {func(g *Group) { approved(g); g.Proof = stands(model.StanceRejected, false, nil) }, false, model.ReasonRejectedByTrial, true},
		"approved, not known": {func(g *Group) { approved(g); g.ProofsAwaited = true }, false, model.ReasonAwaitingProof, true},
		"approved, known since": {func(g *Group) {
			approved(g)
			g.ProofsAwaited = true
			g.Last = ptrTo(planGroup(t, *g, noon()))
			g.ProofsAwaited, g.Proof = false, stands(model.StanceAdopted, true, nil)
		}, true, model.ReasonSkewed, true},
		"withdrawn":         {func(g *Group) { g.Withdrawn = hurt() }, false, model.ReasonGuardWithdrawn, false},
		"withdrawn, over":   {func(g *Group) { g.Withdrawn = hurt(); g.Withdrawn.Until = noon() }, true, model.ReasonSkewed, true},
		"withdrawn, alert":  {func(g *Group) { g.Withdrawn = hurt(); g.Withdrawn.Until = time.Time{} }, false, model.ReasonGuardWithdrawn, false},
		"withdrawn, frozen": {func(g *Group) { steered(t, g); g.Withdrawn = hurt() }, false, model.ReasonGuardWithdrawn, false},
		"frozen":            {func(g *Group) { steered(t, g) }, true, model.ReasonInFreeze, true},
		"withdrawn, approved": {func(g *Group) {
			approved(g)
			g.Withdrawn = hurt()
		}, false, model.ReasonGuardWithdrawn, true},
		"withdrawn, on":  {func(g *Group) { g.Proof, g.Withdrawn = stands(model.StanceOnTrial, true, groupSchedule()), hurt() }, false, model.ReasonGuardWithdrawn, false},
		"withdrawn, off": {func(g *Group) { g.Proof, g.Withdrawn = stands(model.StanceOnTrial, true, off), hurt() }, false, model.ReasonGuardWithdrawn, false},
		"forbidden": {func(g *Group) {
			g.Proof = stands(model.StanceOnTrial, true, groupSchedule())
			g.Nodes[0].Policy = trafficPolicy(model.ModeObserve)
		}, false, model.ReasonObserveOnly, false},
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
				t.Errorf("%s, granularity %d: what could be saved is not told", name, granularity)
			}
		}
	}
}

// hurt is what the manager's guard takes the lever for at noon.
func hurt() *model.Withdrawal {
	return &model.Withdrawal{
		PodUID: "a", Lever: model.LeverTrafficShare, Sign: model.GuardSteal, Time: noon(), Until: noon().Add(5 * time.Minute), Count: 1, Message: "VM a waits",
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
	forNodes(g, func(n *GroupNode) { n.Hold = model.Hold{Reason: model.ReasonInFreeze, Message: "a freeze"} })
}

// TestWithdrawnGroupKeepsItsSchedule: blocks go on as they were drawn, though all get the same,
// also while nothing new may be done; then the lever comes back as it was.
func TestWithdrawnGroupKeepsItsSchedule(t *testing.T) {
	for _, frozen := range []bool{false, true} {
		group := groupOf(traffic.Weighted, 5)
		group.Proof = stands(model.StanceOnTrial, true, groupSchedule())
		group = follow(group, planGroup(t, group, noon()))
		before := sharesGiven(group, *group.Last)
		if frozen {
			forNodes(&group, func(n *GroupNode) { n.Hold = model.Hold{Reason: model.ReasonInFreeze} })
		}
		group.Withdrawn = hurt()
		group.Withdrawn.Until = noon().Add(100 * time.Minute)
		for minute := range 100 {
			now := noon().Add(time.Duration(minute) * time.Minute)
			plan := planGroup(t, group, now)
			done := plan.Done(nil, true, now)
			if moment := groupSchedule().At(now); plan.Action == GroupSteer || done == nil || done.On != moment.On || done.Block != moment.Block {
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

// TestRejectedIsTold: a group that its plan balances by itself says that its lever was rejected,
// as long as it is, also while a new manager does not know yet what trials showed.
func TestRejectedIsTold(t *testing.T) {
	for _, granularity := range []traffic.Granularity{traffic.Weighted, traffic.Equal} {
		group := groupOf(granularity, 5)
		linear := func(rate units.BitsPerSecond) units.Watts { return units.Watts(rate / 1e8) }
		group.Curves[1] = linear
		if plan := planGroup(t, group, noon()); plan.Reason != model.ReasonCurvesLinear {
			t.Fatalf("granularity %d: without a saving %s: %s", granularity, plan.Reason, plan.Message)
		}
		for _, step := range []struct {
			name    string
			proof   *model.Proof
			awaited bool
			due     bool
			want    model.Reason
		}{
			{"rejected", stands(model.StanceRejected, false, nil), false, true, model.ReasonRejectedByTrial},
			{"between two plans", stands(model.StanceRejected, false, nil), false, false, model.ReasonRejectedByTrial},
			{"another manager", nil, true, true, model.ReasonRejectedByTrial},
			{"its cool-down is over", stands(model.StanceAwaiting, false, nil), false, false, model.ReasonCurvesLinear},
		} {
			group.Proof, group.ProofsAwaited, group.Due = step.proof, step.awaited, step.due
			plan := planGroup(t, group, noon())
			if plan.Reason != step.want || plan.Action != GroupBalance || plan.Withheld ||
				plan.Reason == model.ReasonRejectedByTrial && plan.Message != "what trials say" {
				t.Errorf("granularity %d, %s: %+v, want %s", granularity, step.name, plan, step.want)
			}
			group.Last = &plan
		}
	}
}

// TestGroupFollowsItsSchedule: in off blocks all get the same, in on blocks shares are those of
// the lever at once, and what is told is the same in both.
func TestGroupFollowsItsSchedule(t *testing.T) {
	for _, granularity := range []traffic.Granularity{traffic.Weighted, traffic.Equal} {
		group := groupOf(granularity, 5)
		group.Proof = stands(model.StanceOnTrial, true, groupSchedule())
		var on map[string]float64
		told, changes := "", 0
		for second := -600; second < 2*3600+600; second += 30 {
			now := noon().Add(time.Duration(second) * time.Second)
			group.Due = second%60 == 0
			plan := planGroup(t, group, now)
			has, wanted := sharesGiven(group, plan), groupSchedule().At(now)
			if is := len(has) < 5; is != wanted.On {
				t.Fatalf("granularity %d, at %d s: shares are %v, want the lever on: %t", granularity, second, has, wanted.On)
			}
			if wanted.On {
				if on == nil {
					on = has
				}
				if moved(on, has) > 1e-9 {
					t.Errorf("granularity %d, at %d s: shares are %v, and were %v", granularity, second, has, on)
				}
			}
			says := fmt.Sprint(plan.Action, plan.Reason, plan.Message, plan.Revision, plan.Reasons, plan.Goals)
			if says != told {
				told, changes = says, changes+1
			}
			last := plan
			shown := plan
			shown.Action, shown.Shares = GroupSteer, has
			group = follow(group, shown)
			group.Last = &last
		}
		// Once at first, and once as shares that are kept are explained otherwise.
		if changes > 2 {
			t.Errorf("granularity %d: what is told changes %d times", granularity, changes)
		}
	}
}

// TestGroupScheduleHeedsWhatChanged: traffic that grew in an off block is planned for when
// the lever comes on, at once, so that no limit is broken.
func TestGroupScheduleHeedsWhatChanged(t *testing.T) {
	group := groupOf(traffic.Weighted, 5)
	group.Proof = stands(model.StanceOnTrial, true, groupSchedule())
	group.Last = ptrTo(planGroup(t, group, noon()))
	off := group
	off.Due = false
	off.Last = ptrTo(planGroup(t, off, noon().Add(31*time.Minute)))
	if !off.Last.Off {
		t.Fatalf("%+v", off.Last)
	}
	forMembers(&off, func(m *GroupMember) { m.Rate, m.Share = 600e6, 0.2 })
	plan := planGroup(t, off, noon().Add(90*time.Minute))
	for name, share := range plan.Shares {
		if rate := 3e9 * units.BitsPerSecond(share); rate > 1.05e9 {
			t.Errorf("%s is to carry %v, more than it can", name, rate)
		}
	}
	if plan.Off || plan.Action != GroupSteer || len(plan.Shares) < 4 {
		t.Errorf("%+v", plan)
	}
}

// TestGroupKeepsWhatItHas while it is not known how the lever stands, with its schedule.
func TestGroupKeepsWhatItHas(t *testing.T) {
	for _, after := range []time.Duration{time.Minute, 31 * time.Minute} {
		group := groupOf(traffic.Weighted, 5)
		group.Proof = stands(model.StanceOnTrial, true, groupSchedule())
		group.Last = ptrTo(planGroup(t, group, noon()))
		known := planGroup(t, group, noon().Add(after))
		group.Proof, group.ProofsAwaited = nil, true
		awaited := planGroup(t, group, noon().Add(after))
		known.Reason, known.Message = awaited.Reason, awaited.Message
		if diff := cmp.Diff(sharesGiven(group, known), sharesGiven(group, awaited)); diff != "" || awaited.Schedule == nil || awaited.Off != known.Off {
			t.Errorf("after %v (-known +awaited):\n%s", after, diff)
		}
	}
}

func ptrTo(plan GroupPlan) *GroupPlan { return &plan }
