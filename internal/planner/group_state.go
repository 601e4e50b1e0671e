package planner

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
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
	// block of the schedule that switches the group.
	block inBlock
	// reasons of an allocation, by member, and its shares of this round. Nil shares:
	// they are the goals, or there was no allocation.
	reasons map[string]model.Reason
	next    map[string]float64
}

func newGroupState(group Group, now time.Time) *groupState {
	g := &groupState{Group: group, last: group.Last, at: map[string]int{}, block: group.blockAt(now)}
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

// steering tells whether a plan is acted on, when its schedule has the lever on.
func (p *GroupPlan) steering() bool { return p.Approved && !p.Withheld && p.Goals.Whole > 0 }

// trafficGroup is what is allocated. A step of everything leads to the goals.
func (g *groupState) trafficGroup() traffic.Group {
	return traffic.Group{
		Members: g.ready, Curves: g.Curves, Total: g.total, Granularity: g.Granularity,
		MinActive: g.MinActive, MinDomains: groupMinDomains, SpareLargest: g.SpareLargest,
		MaxStep: g.maxStep(), MinSaving: groupMinSaving,
	}
}

// maxStep is the part of the traffic that moves in this round.
func (g *groupState) maxStep() float64 {
	if g.block.atOnce(g.last) {
		return 1
	}
	return groupMaxStep
}

// allocate finds goals, or that there are none.
func (g *groupState) allocate(plan *GroupPlan) error {
	found, err := traffic.Allocate(g.trafficGroup())
	if err != nil {
		return err
	}
	if found.Reason == model.ReasonCurvesUnknown && g.last.steering() {
		// They are learned anew, as after a start of the manager.
		g.repeat(plan)
		plan.Reason, plan.Message = g.last.Reason, g.last.Message
		return nil
	}
	g.reasons = map[string]model.Reason{}
	for i, share := range found.Shares {
		g.reasons[g.ready[i].Name] = share.Reason
	}
	plan.Reason, plan.Message = found.Reason, found.Message
	switch {
	case impossible(found.Reason):
		g.repeat(plan)
		plan.Action = GroupLeave
		return nil
	case !found.Skewed:
		plan.Action = GroupBalance
		return nil
	}
	plan.Goals = g.round(found.Shares)
	g.next = onTheWay(found.Shares)
	plan.Revision, plan.UIDs = g.revision(plan.Goals, time.Time{}), g.uids(plan.Goals)
	g.tell(plan, plan.Goals)
	return nil
}

// onTheWay are the shares of this round, while they are not the goals.
func onTheWay(shares []traffic.Share) map[string]float64 {
	const same = 1e-9
	next, there := map[string]float64{}, true
	for _, share := range shares {
		if share.Share > 0 {
			next[share.Name] = share.Share
		}
		there = there && math.Abs(share.Share-share.Goal) < same
	}
	if there {
		return nil
	}
	return next
}

// impossible tells whether an allocation says that what is demanded cannot be
// had: traffic is then left as it is.
func impossible(reason model.Reason) bool { return reason == model.ReasonFloorsExceedTotal }

// repeat takes over what the plan before wants, without acting on it.
func (g *groupState) repeat(plan *GroupPlan) {
	plan.Goals, plan.UIDs, plan.Revision, plan.RecommendedAt = g.last.Goals, g.last.UIDs, g.last.Revision, g.last.RecommendedAt
	plan.Approved, plan.Shares = g.last.Approved, g.last.Shares
}

// hold goes on with the goals of the plan before: on the way to them when it may
// advance, and else no further than it is.
func (g *groupState) hold(plan *GroupPlan, advance bool) {
	plan.Goals, plan.UIDs, plan.Revision, plan.RecommendedAt = g.last.Goals, g.last.UIDs, g.last.Revision, g.last.RecommendedAt
	plan.Reason, plan.Message = g.last.Reason, g.last.Message
	plan.Action = GroupBalance
	if plan.Goals.Whole == 0 {
		return
	}
	if g.Missing == "" {
		g.tell(plan, plan.Goals)
	}
	if plan.Mode == model.ModeEnforce && g.last.steering() || plan.Mode == model.ModeRecommend && g.approved(plan.Revision) {
		g.steer(plan, advance)
	}
}

// authorise decides whether goals are acted on.
func (g *groupState) authorise(plan *GroupPlan, now time.Time) {
	if plan.Goals.Whole == 0 || impossible(plan.Reason) {
		return
	}
	if plan.Mode == model.ModeEnforce {
		plan.RecommendedAt = time.Time{}
		g.steer(plan, true)
		return
	}
	if g.goesOn(plan, now) {
		plan.Revision, plan.RecommendedAt = g.last.Revision, g.last.RecommendedAt
	} else {
		plan.Revision, plan.RecommendedAt = g.revision(plan.Goals, now), now
	}
	if g.approved(plan.Revision) {
		g.steer(plan, true)
	}
	g.waitForApproval(plan)
}

// goesOn tells whether goals are those of the recommendation before, and it is valid or in
// force. What expired without an approval is recommended anew, so that none comes late.
func (g *groupState) goesOn(plan *GroupPlan, now time.Time) bool {
	last := g.last
	if last.RecommendedAt.IsZero() || plan.Revision != last.Revision && g.revision(plan.Goals, last.RecommendedAt) != last.Revision {
		return false
	}
	return !g.expired(now) || last.steering() && g.approved(last.Revision)
}

// waitForApproval says what has to be approved, or that it was.
func (g *groupState) waitForApproval(plan *GroupPlan) {
	switch {
	case plan.Action != GroupSteer:
		plan.Action, plan.Reason = GroupBalance, model.ReasonAwaitingApproval
		plan.Message = "a recommendation: to apply it, add " + plan.Revision + " to spec.approvals of " + g.approvers()
	case plan.Reason == model.ReasonAwaitingApproval || g.last.Withheld: // what withheld it, if it still does, is told by prove
		plan.Reason, plan.Message = model.ReasonSkewed, "the recommendation was approved"
	}
}

// steer acts on the goals: a step towards them, or no step.
func (g *groupState) steer(plan *GroupPlan, advance bool) {
	if !advance && !g.last.steering() {
		return // which would be new
	}
	plan.Action, plan.Approved = GroupSteer, true
	if !advance {
		plan.Shares = g.replace(g.last.Shares)
		return
	}
	if g.next != nil {
		plan.Shares = g.next
		return
	}
	goals := make(map[string]float64, len(plan.Goals.Of))
	for name := range plan.Goals.Of {
		goals[name] = plan.Goals.Share(name)
	}
	plan.Shares = g.step(g.replace(goals))
}

// recommendationStands tells whether goals that were recommended are still valid
// and at least one of the members that they name exists, and was not made anew.
func (g *groupState) recommendationStands(now time.Time) bool {
	if groupMode(g.Nodes) != model.ModeRecommend || g.last.Goals.Whole == 0 || g.last.RecommendedAt.IsZero() || g.expired(now) {
		return false
	}
	return slices.ContainsFunc(g.Members, func(m GroupMember) bool { return g.last.Goals.Of[m.Name] > 0 && g.last.UIDs[m.Name] == m.UID })
}

// expired is by the shortest validity of the policies.
func (g *groupState) expired(now time.Time) bool {
	return slices.ContainsFunc(g.Nodes, func(n GroupNode) bool {
		return n.Policy.Mode == model.ModeRecommend && !now.Before(g.last.RecommendedAt.Add(n.Policy.RecommendationValidity))
	})
}

// approved tells whether all policies of mode Recommend approve a revision.
func (g *groupState) approved(revision string) bool {
	return !slices.ContainsFunc(g.Nodes, func(n GroupNode) bool {
		return n.Policy.Mode == model.ModeRecommend && !slices.Contains(n.Policy.Approvals, revision)
	})
}

// approvers names the policies of mode Recommend.
func (g *groupState) approvers() string {
	var names []string
	for _, n := range g.Nodes {
		if n.Policy.Mode == model.ModeRecommend && !slices.Contains(names, n.Policy.Name) {
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

// showPossible tells what could be had if it were allowed.
func (g *groupState) showPossible(plan *GroupPlan) {
	if g.Missing != "" || len(g.ready) == 0 {
		return
	}
	if found, err := traffic.Allocate(g.trafficGroup()); err == nil && found.Skewed {
		g.tell(plan, g.round(found.Shares))
	}
}

// tell says what goals lead to.
func (g *groupState) tell(plan *GroupPlan, goals Parts) {
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
	if g.Missing == model.ReasonNoRates || len(g.Members) == 0 {
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
	plan.Reasons = make(map[string]model.Reason, len(g.Members))
	for i := range g.Members {
		m := &g.Members[i]
		reason := plan.Reason
		switch {
		case !m.Ready:
			reason = model.ReasonMemberNotReady
		case g.reasons != nil:
			reason = g.reasons[m.Name]
		case plan.Action == GroupSteer || plan.Goals.Whole > 0:
			reason = cmp.Or(g.last.Reasons[m.Name], model.ReasonKept)
		}
		plan.Reasons[m.Name] = reason
	}
}
