package planner

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/planner/traffic"
	"github.com/joulevirt/joulevirt/internal/power"
	"github.com/joulevirt/joulevirt/internal/units"
)

// groupState is a group with what follows from it.
type groupState struct {
	Group
	// ready are the members that may serve, as an allocation sees them.
	ready []traffic.Member
	at    map[string]int
	// total is what is planned for.
	total units.BitsPerSecond
	// last is never nil.
	last *GroupPlan
	// slot of the schedule that switches the group.
	slot inSlot
	// reasons of an allocation, by member. Nil: none was made.
	reasons map[string]string
}

func newGroupState(group Group, now time.Time) *groupState {
	g := &groupState{Group: group, last: group.Last, at: map[string]int{}, slot: group.slotAt(now)}
	if g.last == nil {
		g.last = &GroupPlan{}
	}
	if w := group.Withdrawn; w != nil && !w.Lasts(now) {
		g.Withdrawn = nil
	}
	g.resume()
	if g.total = group.Total; g.total == 0 {
		for i := range group.Members {
			g.total += group.Members[i].Rate
		}
	}
	for i := range g.Members {
		m := &g.Members[i]
		if !m.Ready {
			continue
		}
		member := m.Member
		if group.Nodes[m.Node].Frozen {
			// It may lose traffic, and gets no more than it has.
			has := g.total * units.BitsPerSecond(member.Share)
			member.Limit = min(member.Limit, has)
			member.Floor = min(member.Floor, member.Limit)
		}
		g.at[member.Name] = len(g.ready)
		g.ready = append(g.ready, member)
	}
	return g
}

// steering returns whether a plan is acted on, when its schedule has the lever on.
func (p *GroupPlan) steering() bool { return p.Approved && !p.Withheld && p.Goals.Whole > 0 }

// trafficGroup is the group as an allocation sees it.
func (g *groupState) trafficGroup() traffic.Group {
	return traffic.Group{
		Members: g.ready, Curves: g.Curves, Total: g.total, Granularity: g.Granularity,
		MinActive: g.MinActive, MinDomains: groupMinDomains, SpareLargest: g.SpareLargest, MinSaving: groupMinSaving,
	}
}

// keepGoals takes over the goals of the plan before.
func (g *groupState) keepGoals(plan *GroupPlan) {
	plan.Goals, plan.UIDs, plan.Revision, plan.RecommendedAt = g.last.Goals, g.last.UIDs, g.last.Revision, g.last.RecommendedAt
	plan.Reason, plan.Message = g.last.Reason, g.last.Message
	plan.Action = GroupBalance
	if g.Missing == "" && len(g.ready) > 0 && plan.Goals.Whole > 0 {
		g.predict(plan, plan.Goals)
	}
}

// allocate finds goals, or that there are none. While what traffic costs is learned anew, as after a
// start of the manager, the goals that are acted on stay.
func (g *groupState) allocate(plan *GroupPlan, now time.Time) {
	found := traffic.Allocate(g.trafficGroup())
	if found.Reason == v1alpha1.ReasonCurvesUnknown && g.last.steering() {
		g.keepGoals(plan)
		return
	}
	g.reasons = map[string]string{}
	for i, share := range found.Shares {
		g.reasons[g.ready[i].Name] = share.Reason
	}
	if found.Reason == v1alpha1.ReasonFloorsExceedTotal {
		// What is demanded cannot be had: traffic is left as it is.
		g.keepGoals(plan)
		plan.Shares, plan.Approved = g.last.Shares, g.last.Approved
		plan.finish(GroupLeave, found.Reason, found.Message)
		return
	}
	plan.finish(GroupBalance, found.Reason, found.Message)
	if !found.Skewed {
		return
	}
	plan.Goals = g.round(found.Shares)
	plan.UIDs = g.uids(plan.Goals)
	g.predict(plan, plan.Goals)
	switch {
	case !plan.Recommend:
		plan.Revision = g.revision(plan.Goals, time.Time{})
	case g.isSameRecommendation(plan.Goals, now):
		plan.Revision, plan.RecommendedAt = g.last.Revision, g.last.RecommendedAt
	default:
		plan.Revision, plan.RecommendedAt = g.revision(plan.Goals, now), now
	}
}

// isSameRecommendation returns whether goals are those of the recommendation before, and it is valid or in
// force. What expired without an approval is recommended anew, so that none comes late.
func (g *groupState) isSameRecommendation(goals Parts, now time.Time) bool {
	last := g.last
	if last.RecommendedAt.IsZero() || g.revision(goals, last.RecommendedAt) != last.Revision {
		return false
	}
	return !g.expired(now) || last.steering() && g.approved(last.Revision)
}

// act follows the goals where that is allowed: by a step or, without advance, only in place
// of members that are not ready. What is not in force yet then waits.
func (g *groupState) act(plan *GroupPlan, advance bool) {
	switch {
	case plan.Action == GroupLeave || plan.Goals.Whole == 0, !advance && !g.last.steering(), plan.Recommend && !g.approved(plan.Revision):
		return
	}
	plan.Action, plan.Approved = GroupSteer, true
	if !advance {
		plan.Shares = g.replace(g.last.Shares)
		return
	}
	goals := make(map[string]float64, len(plan.Goals.Of))
	for name := range plan.Goals.Of {
		goals[name] = plan.Goals.Share(name)
	}
	plan.Shares = g.step(g.replace(goals))
}

// waitForApproval explains what has to be approved, or that it was.
func (g *groupState) waitForApproval(plan *GroupPlan) {
	switch {
	case plan.Goals.Whole == 0 || plan.Action == GroupLeave || plan.Action == GroupRelease:
	case plan.Action != GroupSteer:
		plan.finish(GroupBalance, v1alpha1.ReasonAwaitingApproval, "a recommendation: to apply it, add "+plan.Revision+" to spec.approvals of "+g.approvers())
	case plan.Reason == v1alpha1.ReasonAwaitingApproval || g.last.Withheld: // prove explains what still withholds it
		plan.Reason, plan.Message = v1alpha1.ReasonSkewed, "the recommendation was approved"
	}
}

// recommendationStands returns whether goals that were recommended are still valid
// and at least one of the members that they name exists, and was not made anew.
func (g *groupState) recommendationStands(now time.Time) bool {
	if g.last.Goals.Whole == 0 || g.last.RecommendedAt.IsZero() || g.expired(now) {
		return false
	}
	return slices.ContainsFunc(g.Members, func(m GroupMember) bool { return g.last.Goals.Of[m.Name] > 0 && g.last.UIDs[m.Name] == m.UID })
}

// expired is by the shortest validity of the policies.
func (g *groupState) expired(now time.Time) bool {
	return slices.ContainsFunc(g.Nodes, func(n GroupNode) bool {
		return n.Policy.Mode == v1alpha1.ModeRecommend && !now.Before(g.last.RecommendedAt.Add(n.Policy.RecommendationValidity))
	})
}

// approved returns whether all policies of mode Recommend approve a revision.
func (g *groupState) approved(revision string) bool {
	return !slices.ContainsFunc(g.Nodes, func(n GroupNode) bool {
		return n.Policy.Mode == v1alpha1.ModeRecommend && !slices.Contains(n.Policy.Approvals, revision)
	})
}

// approvers names the policies of mode Recommend.
func (g *groupState) approvers() string {
	var names []string
	for _, n := range g.Nodes {
		if n.Policy.Mode == v1alpha1.ModeRecommend && !slices.Contains(names, n.Policy.Name) {
			names = append(names, n.Policy.Name)
		}
	}
	slices.Sort(names)
	const most = 3
	switch {
	case len(names) == 1:
		return "EnergyPolicy " + names[0]
	case len(names) > most:
		return fmt.Sprintf("EnergyPolicies %s and %d others", strings.Join(names[:most], ", "), len(names)-most)
	}
	return "EnergyPolicies " + strings.Join(names, ", ")
}

// predictPossible predicts what could be had if it were allowed.
func (g *groupState) predictPossible(plan *GroupPlan) {
	if g.Missing != "" || len(g.ready) == 0 {
		return
	}
	if found := traffic.Allocate(g.trafficGroup()); found.Skewed {
		g.predict(plan, g.round(found.Shares))
	}
}

// predict computes what goals lead to.
func (g *groupState) predict(plan *GroupPlan, goals Parts) {
	plan.Baseline, plan.Possible = map[string]units.BitsPerSecond{}, map[string]units.BitsPerSecond{}
	rates := make([]units.BitsPerSecond, 0, len(g.ready))
	for i := range g.ready {
		name := g.ready[i].Name
		plan.Baseline[name] = g.total / units.BitsPerSecond(len(g.ready))
		plan.Possible[name] = g.total * units.BitsPerSecond(goals.Share(name))
		rates = append(rates, plan.Possible[name])
	}
	plan.Planned = spreadOf(rates)
}

// spreadNow is of all members, those that are not ready too: their connections
// may linger. Nil: not all rates are known.
func (g *groupState) spreadNow() *traffic.Spread {
	if g.Missing == v1alpha1.ReasonNoRates || len(g.Members) == 0 {
		return nil
	}
	rates := make([]units.BitsPerSecond, 0, len(g.Members))
	for i := range g.Members {
		rates = append(rates, g.Members[i].Rate)
	}
	return spreadOf(rates)
}

func spreadOf(rates []units.BitsPerSecond) *traffic.Spread {
	return &traffic.Spread{Sigma: power.Sigma(rates), Talkers: power.EffectiveTalkers(rates)}
}

// explainMembers gives each member's reason.
func (g *groupState) explainMembers(plan *GroupPlan) {
	plan.Reasons = make(map[string]string, len(g.Members))
	for i := range g.Members {
		m := &g.Members[i]
		reason := plan.Reason
		switch {
		case !m.Ready:
			reason = v1alpha1.ReasonMemberNotReady
		case g.reasons != nil:
			reason = g.reasons[m.Name]
		case plan.Action == GroupSteer || plan.Goals.Whole > 0:
			reason = cmp.Or(g.last.Reasons[m.Name], v1alpha1.ReasonKept)
		}
		plan.Reasons[m.Name] = reason
	}
}
