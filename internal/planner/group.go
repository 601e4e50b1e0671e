package planner

import (
	"fmt"
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/planner/traffic"
	"github.com/joulevirt/joulevirt/internal/units"
)

// GroupAction is what is to be done with a group's traffic.
type GroupAction int

// The actions.
const (
	// GroupLeave: traffic is left as it is.
	GroupLeave GroupAction = iota
	// GroupRelease: traffic is given back, if it was steered, and then left alone.
	GroupRelease
	// GroupBalance: all ready members get the same.
	GroupBalance
	// GroupSteer: the members get the plan's shares.
	GroupSteer
)

// GroupNode is a node that runs members of a group.
type GroupNode struct {
	Name string
	// Policy that governs the node. Nil: none.
	Policy *model.Policy
	// NamespaceSelected is true when the policy covers the group's namespace.
	NamespaceSelected bool
	// Frozen is true when the node is cordoned or draining.
	Frozen bool
	// Metered, MeterUnknown, Hold, OptOut: see model.Node.
	Metered, MeterUnknown bool
	Hold                  model.Hold
	OptOut                model.OptOut
	// Untried is true when the policy asks for no trials.
	Untried bool
}

// GroupMember is one VM of a group.
type GroupMember struct {
	traffic.Member
	// UID of the VirtualMachineInstance: it stays when the VM migrates, and not when the VM
	// is made anew.
	UID string
	// Node is the number of the member's node in the group's nodes.
	Node int
	// Ready is true when the VM may serve.
	Ready bool
	// OptOut is what the VM's owner keeps away from it.
	OptOut model.OptOut
}

// GroupID tells a group from all others, and from one that had its name before.
type GroupID struct {
	// Namespace and Profile are of the VMNetworkProfile, and UID is its.
	Namespace, Profile, UID string
}

// Group is what the plan of one group depends on.
type Group struct {
	ID    GroupID
	Nodes []GroupNode
	// Members in the order of their names.
	Members      []GroupMember
	Curves       []traffic.Curve
	Granularity  traffic.Granularity
	MinActive    int
	SpareLargest bool
	// Total is the traffic to plan for, see Demand. 0: the sum of the members' rates.
	Total units.BitsPerSecond
	// Missing says what is not known that an allocation needs: NoRates or Learning.
	// Empty: all is known. MissingMessage names it.
	Missing        model.Reason
	MissingMessage string
	// Proof says how the lever stands with experiments. Nil: it acts as the policies have
	// it. ProofsAwaited, see model.Node.
	Proof         *model.Proof
	ProofsAwaited bool
	// Withdrawn is what the manager's guard took the lever for. Nil: nothing, or it is over.
	Withdrawn *model.Withdrawal
	// Last is the plan before. Nil: there is none.
	Last *GroupPlan
	// Due is true when the shares are to be planned anew. Until then those of Last
	// stay, but for members that are not ready.
	Due bool
}

// Parts are shares in parts of Whole, by member. Who is not named has none.
type Parts struct {
	Whole int
	Of    map[string]int
}

// Share returns a member's share: 0 to 1.
func (p Parts) Share(name string) float64 {
	if p.Whole == 0 {
		return 0
	}
	return float64(p.Of[name]) / float64(p.Whole)
}

// GroupPlan is what is to be done with a group's traffic, and why.
type GroupPlan struct {
	Mode   model.Mode
	Action GroupAction
	// Shares to be written now, by member: they are those of the goals, or on the
	// way there.
	Shares map[string]float64
	// Schedule that switches the group. Nil: none does. Washing is true in the wash-out of
	// one of its blocks.
	Schedule *model.Schedule
	Washing  bool
	// Off is true while the schedule has the lever off: all ready members get the same
	// instead of Shares.
	Off bool
	// Withheld is true when it is for what trials showed, for a lack of trials, or for what
	// the manager's guard saw, that the group is balanced.
	Withheld bool
	// Goals are what is planned or recommended. Whole 0: nothing is.
	Goals Parts
	// Reasons of the members' shares.
	Reasons map[string]model.Reason
	// UIDs are those of the members that the goals name, by name, when the goals were found.
	UIDs map[string]string
	// Revision is a hash of the goals and of whom they are for, and in mode Recommend of
	// RecommendedAt too. Empty: there are no goals.
	Revision string
	// RecommendedAt is when goals of mode Recommend were found.
	RecommendedAt time.Time
	// Approved is true when the goals may be acted on by the policies.
	Approved bool
	// Held is true when nothing new may be done by the policies' times of changes, or
	// while something is not known.
	Held bool
	// Now is how the traffic is spread, Planned how it would be by the goals, or by
	// what is possible when nothing is allowed. Nil: not known.
	Now, Planned *traffic.Spread
	// Baseline and Possible are the rates of the ready members at equal shares, and
	// by the goals or what is possible: what a saving is foretold of. Nil: not known.
	Baseline, Possible map[string]units.BitsPerSecond
	Reason             model.Reason
	Message            string
}

const (
	// groupMaxStep is the part of a group's traffic that moves in one round: what
	// goes wrong shows before all has moved.
	groupMaxStep = 0.25
	// groupMinSaving is the part of the members' cost that must be saved: curves are
	// not known better.
	groupMinSaving = 0.02
	// groupMinDomains is the least number of failure domains that serve.
	groupMinDomains = 2
)

// PlanGroup decides how a group's traffic is to be split. Equal groups give equal
// plans, and a group that changed little keeps the plan that it has.
//
// When a permission goes, the traffic is given back whatever else is the matter.
// Members that are not ready are replaced whatever else is the matter, as long
// as there is a permission. Everything new waits while something is not known.
//
// The error is about figures that make no sense, and names one.
func PlanGroup(group Group, now time.Time) (GroupPlan, error) {
	g := newGroupState(group, now)
	plan := GroupPlan{Mode: groupMode(group.Nodes), Now: g.spreadNow()}
	unused := g.last.Withheld || g.last.Reason == model.ReasonRejectedByTrial
	g.Due = g.Due || g.last.Mode != plan.Mode || unused || g.last.Off && !g.block.isOff()
	forbidden, message := groupForbidden(group, plan.Mode)
	held, heldMessage := groupHolding(group, plan.Mode)
	plan.Held = held != ""
	switch {
	case len(group.Members) == 0:
		plan.finish(GroupRelease, model.ReasonNoMembers, groupMessage(model.ReasonNoMembers))
	case forbidden != "":
		g.showPossible(&plan)
		plan.finish(GroupRelease, forbidden, message)
	case len(g.ready) == 0:
		// Whoever gets ready first serves as it is: nothing helps until then.
		g.repeat(&plan)
		plan.finish(GroupLeave, model.ReasonNoReadyMembers, groupMessage(model.ReasonNoReadyMembers))
	case held != "":
		g.hold(&plan, false)
		plan.Reason, plan.Message = held, heldMessage
	case g.last.steering() && (g.ProofsAwaited || g.block.isOff()):
		g.hold(&plan, false)
		if plan.Mode == model.ModeRecommend {
			g.waitForApproval(&plan)
		}
	case g.recommendationStands(now):
		g.hold(&plan, g.Due || !g.last.steering())
		g.waitForApproval(&plan)
	case !g.Due && g.last.Action >= GroupBalance:
		g.hold(&plan, false)
	default:
		if err := g.allocate(&plan); err != nil {
			return GroupPlan{}, fmt.Errorf("split the traffic: %w", err)
		}
		g.authorise(&plan, now)
	}
	g.prove(&plan, held != "")
	g.explainMembers(&plan)
	return plan, nil
}

func (p *GroupPlan) finish(action GroupAction, reason model.Reason, message string) {
	p.Action, p.Reason, p.Message = action, reason, message
}
