package planner

import (
	"slices"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
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
	// GroupRelease: traffic is released, if it was steered, and then left alone.
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
	// Rate of the member now: all of its traffic.
	Rate units.BitsPerSecond
	// UID of the VirtualMachineInstance: it stays when the VM migrates, and not when the VM
	// is made anew.
	UID string
	// Node is the number of the member's node in the group's nodes.
	Node int
	// Ready is true when the VM may serve.
	Ready bool
	// OptOut is what the VM's owner opted out of.
	OptOut model.OptOut
}

// GroupID identifies a group, also against one that had its name before.
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
	// Missing is the reason why an allocation cannot be computed: NoRates or Learning.
	// Empty: it can. MissingMessage names what is missing.
	Missing        string
	MissingMessage string
	// Proof is the state of the lever by its trials. Nil: it acts as the policies have
	// it. ProofsAwaited, see model.Node.
	Proof         *model.Proof
	ProofsAwaited bool
	// Withdrawn is why the manager's guard withdrew the lever. Nil: it did not, or it is over.
	Withdrawn *model.Withdrawal
	// Last is the plan before. Nil: this is the first.
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
	// Recommend is true when goals wait for an approval.
	Recommend bool
	Action    GroupAction
	// Shares to be written now, by member: they are those of the goals, or on the
	// way there.
	Shares map[string]float64
	// Schedule that switches the group. Nil: none does. Washing is true in the wash-out of
	// one of its slots.
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
	Reasons map[string]string
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
	// by the goals or what is possible: what a saving is predicted from. Nil: not known.
	Baseline, Possible map[string]units.BitsPerSecond
	Reason             string
	Message            string
}

const (
	// groupMaxStep is the part of a group's traffic that moves in one round: what
	// goes wrong shows before all has moved.
	groupMaxStep = 0.25
	// groupMinSaving is the part of the traffic's cost that must be saved: curves are
	// not known better.
	groupMinSaving = 0.02
	// groupMinDomains is the least number of failure domains that serve.
	groupMinDomains = 2
)

// PlanGroup decides how a group's traffic is to be split. Equal groups give equal
// plans, and a group that changed little keeps the plan that it has.
//
// When a permission goes, the traffic is released whatever else is the matter.
// Members that are not ready are replaced whatever else is the matter, as long
// as there is a permission. Everything new waits while something is not known.
func PlanGroup(group Group, now time.Time) GroupPlan {
	g := newGroupState(group, now)
	permission := permitGroup(&group, v1alpha1.LeverTrafficShare)
	plan := GroupPlan{Recommend: permission.Recommend, Held: permission.Hold, Now: g.spreadNow()}
	unused := g.last.Withheld || g.last.Reason == v1alpha1.ReasonRejectedByTrial
	due := g.Due || g.last.Recommend != plan.Recommend || unused || g.last.Off && !g.slot.isOff()
	switch {
	case permission.Undo:
		g.predictPossible(&plan)
		plan.finish(GroupRelease, permission.Reason, permission.Message)
	case len(g.ready) == 0:
		// Whoever gets ready first serves as it is: nothing helps until then.
		g.keepGoals(&plan)
		plan.Shares, plan.Approved = g.last.Shares, g.last.Approved
		plan.finish(GroupLeave, v1alpha1.ReasonNoReadyMembers, "no VM of the group is ready: traffic is left as it is")
	case permission.Hold:
		g.keepGoals(&plan)
		g.act(&plan, false)
		plan.Reason, plan.Message = permission.Reason, permission.Message
	case g.last.steering() && (g.ProofsAwaited || g.slot.isOff()):
		g.keepGoals(&plan)
		g.act(&plan, false)
	case plan.Recommend && g.recommendationStands(now):
		g.keepGoals(&plan)
		g.act(&plan, due || !g.last.steering())
	case !due && g.last.Action >= GroupBalance:
		g.keepGoals(&plan)
		g.act(&plan, false)
	default:
		g.allocate(&plan, now)
		g.act(&plan, true)
	}
	if plan.Recommend && !permission.Hold {
		g.waitForApproval(&plan)
	}
	g.prove(&plan, permission.Hold)
	g.explainMembers(&plan)
	return plan
}

func (p *GroupPlan) finish(action GroupAction, reason string, message string) {
	p.Action, p.Reason, p.Message = action, reason, message
}

// ProvingPolicy is the policy whose trials and ledger a group belongs to: of all that govern the
// members' nodes the first by name, as a group must not be tried twice. Empty: none governs one.
func ProvingPolicy(nodes []GroupNode) string {
	name := ""
	for i := range nodes {
		if policy := nodes[i].Policy; policy != nil && (name == "" || policy.Name < name) {
			name = policy.Name
		}
	}
	return name
}

// Stand sets the state of the lever by trials, from the states of all levers of the group, when
// they are known. A lever without a state has not been observed yet.
func (g *Group) Stand(stands []model.Proof, known bool) {
	at := slices.IndexFunc(stands, func(p model.Proof) bool { return p.Lever == v1alpha1.LeverTrafficShare })
	if g.ProofsAwaited = !known || at < 0; !g.ProofsAwaited {
		g.Proof = &stands[at]
	}
}

// Evenly gives all ready members the same share.
func Evenly(members []GroupMember) map[string]float64 {
	shares := map[string]float64{}
	for i := range members {
		if members[i].Ready {
			shares[members[i].Name] = 1
		}
	}
	for name := range shares {
		shares[name] = 1 / float64(len(shares))
	}
	return shares
}

// Done returns what is in force of the plan's schedule, and since when, by what was in force in
// the last round. settled is true when the shares are now those of the plan. Nil: they are
// not known to be those of a schedule. That a member comes or fails later in a slot
// changes nothing: it is left to chance, like all that VMs do.
func (p *GroupPlan) Done(was *model.Switch, settled bool, now time.Time) *model.Switch {
	return p.Schedule.Done(was, !p.Off, settled, now)
}
