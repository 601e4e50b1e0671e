package group

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/observe"
	"github.com/joulevirt/joulevirt/internal/planner"
	"github.com/joulevirt/joulevirt/internal/planner/traffic"
	"github.com/joulevirt/joulevirt/internal/power"
	"github.com/joulevirt/joulevirt/internal/routing"
	"github.com/joulevirt/joulevirt/internal/units"
)

// groupMemory is what is remembered of a group between rounds. All but the
// reversions and the times can be had again from the status and the cluster.
type groupMemory struct {
	// group as it was last steered or looked at.
	group *routing.Group
	// mayHold is true when shares may be in force that are to be given back.
	mayHold bool
	// attached is true when the group's Service may have been adopted.
	attached  bool
	plan      *planner.GroupPlan
	plannedAt time.Time
	demand    planner.Demand
	// generation of the profile that was planned for.
	generation int64
	// reverted is how often somebody changed the shares back since the profile is of
	// a generation, and when the last time.
	reverted    int
	revertedAt  time.Time
	revertedFor int64
	// contestedFor is the generation for which the shares are contested, and why. 0: they are not.
	contestedFor     int64
	contestedMessage string
	// refusedAt is since when the group cannot be steered. Zero: it can.
	refusedAt time.Time
	// idleSince is since when there is nothing to steer. Zero: there is.
	idleSince time.Time
	// written is the status that was last written, reportedAt when.
	written    *v1alpha1.TrafficStatus
	reportedAt time.Time
	// done is what is in force of the group's schedule. Nil: the shares are not known to
	// be as one has them.
	done *model.Switch
}

// groupMemories are those of all groups. A group's own is used by one worker at a
// time.
type groupMemories struct {
	mu sync.Mutex
	by map[types.NamespacedName]*groupMemory
}

func (m *groupMemories) of(profile types.NamespacedName) *groupMemory {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.by == nil {
		m.by = map[types.NamespacedName]*groupMemory{}
	}
	if m.by[profile] == nil {
		m.by[profile] = &groupMemory{}
	}
	return m.by[profile]
}

func (m *groupMemories) known(profile types.NamespacedName) *groupMemory {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.by[profile]
}

func (m *groupMemories) forget(profile types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.by, profile)
}

// groupRound is one look at a group, and what came of it.
type groupRound struct {
	seen *observe.Group
	// at is when it was planned.
	at time.Time
	// stands is how the lever stands by trials. Nil: they do not say.
	stands *model.Proof
	// withdrawn is what the lever was taken from the group for, or what is remembered of it.
	withdrawn []model.Withdrawal
	// state is what is in force: empty when it could not be read.
	state routing.State
	plan  planner.GroupPlan
	// refusal says why the group cannot be steered. Nil: it can.
	refusal *routing.Refusal
	// contested is true when somebody else changed the shares back too often.
	contested        bool
	contestedMessage string
	// saving against equal shares. Nil: not known.
	saving *power.Estimate
	byNode map[string]power.Estimate
}

// moving reports whether what was written is not in force yet.
func (r *groupRound) moving() bool {
	written := r.plan.Action == planner.GroupSteer || r.plan.Action == planner.GroupBalance
	return written && r.refusal == nil && !r.contested && !r.state.Settled && r.state.Message != ""
}

// round reads what is in force, plans, and writes.
func (r *Reconciler) round(ctx context.Context, seen *observe.Group, memory *groupMemory) (*groupRound, error) {
	round := &groupRound{seen: seen}
	writer := r.Writers.For(seen.Routing.Target.Kind)
	if memory.group == nil {
		memory.mayHold = mayHold(seen.Profile.Status.Traffic)
	}
	memory.group = &seen.Routing
	var err error
	round.state, err = writer.Read(ctx, seen.Routing)
	if err != nil && !errors.As(err, &round.refusal) {
		return nil, err
	}
	// A route that is ours has to have its members whatever is allowed.
	memory.mayHold = memory.mayHold || seen.Plan.Granularity == traffic.Weighted && serving(round.state.Shares) || marked(&seen.Routing)
	memory.attached = memory.attached || round.state.Attached
	memory.noteRefusal(round, r.Clock.Now())
	if seen.TakenBy != "" {
		errors.As(routing.Refuse(v1alpha1.ReasonGroupTaken, "the older VMNetworkProfile %s has %s %s as its group: name another in spec.group, or remove it there",
			seen.TakenBy, seen.Routing.Target.Kind, seen.Routing.Target.Name), &round.refusal)
	}
	r.plan(round, memory)
	switch {
	case seen.TakenBy != "": // its Service is the other profile's to adopt
		return round, r.giveBack(ctx, round, memory)
	case round.plan.Action == planner.GroupRelease:
		if err := r.detach(ctx, memory); err != nil {
			return nil, err
		}
		return round, r.giveBack(ctx, round, memory)
	case r.isContested(round, memory):
		return round, r.leave(ctx, round, memory)
	}
	if err := r.attach(ctx, round, writer); err != nil {
		return nil, err
	}
	if round.refusal != nil && round.state.Shares == nil {
		return round, r.leave(ctx, round, memory)
	}
	return round, r.write(ctx, round, memory, writer)
}

// attach prepares the group to be steered. What it is refused for says more than that it cannot
// be read.
func (r *Reconciler) attach(ctx context.Context, round *groupRound, writer routing.Writer) error {
	var refusal *routing.Refusal
	// Outside of change windows VMs are labelled, or they would not serve. A Service waits.
	waits := slices.ContainsFunc(round.seen.Plan.Nodes, func(n planner.GroupNode) bool { return n.Hold.Reason != "" })
	err := writer.Attach(ctx, round.seen.Routing, !waits)
	switch {
	case err != nil && !errors.As(err, &refusal):
		return err
	case refusal != nil && round.state.Shares == nil:
		round.refusal = refusal
	}
	return nil
}

// plan makes the plan of the round.
func (r *Reconciler) plan(round *groupRound, memory *groupMemory) {
	seen, now := round.seen, r.Clock.Now()
	for i := range seen.Plan.Members {
		seen.Plan.Members[i].Share = round.state.Shares[seen.Plan.Members[i].Name]
	}
	group := seen.Plan
	group.Last = lastPlan(seen, &round.state, memory)
	if seen.Plan.Missing != v1alpha1.ReasonNoRates && len(seen.Plan.Members) > 0 {
		memory.demand = memory.demand.Next(carried(seen), now, r.Options.Replan)
	}
	group.Total = memory.demand.Total
	group.Due = r.due(seen, &group, memory)
	r.stand(&group, seen.Routing.Profile)
	round.withdrawn = r.withdrawn(round, memory)
	group.Withdrawn = round.withdrawal()
	round.at, round.stands = now, group.Proof
	round.plan = planner.PlanGroup(group, now)
	if group.Due {
		memory.plannedAt, memory.generation = now, seen.Profile.Generation
	}
	if round.state.Shares != nil {
		memory.plan = &round.plan
	}
	if round.plan.Possible != nil {
		if total, byNode, known := seen.Saving(round.plan.Baseline, round.plan.Possible); known {
			round.saving, round.byNode = &total, byNode
		}
	}
}

// due reports whether a group is to be planned anew. What the manager before planned
// stays a round: a first rate says little.
func (r *Reconciler) due(seen *observe.Group, group *planner.Group, memory *groupMemory) bool {
	now, generation := r.Clock.Now(), seen.Profile.Generation
	if memory.plan == nil {
		steered := group.Last != nil && group.Last.Action == planner.GroupSteer && seen.Profile.Status.Traffic.ObservedGeneration == generation
		if steered {
			memory.plannedAt, memory.generation = now, generation
		}
		return !steered
	}
	return memory.generation != generation || waited(memory.plan) && group.Missing == "" || !now.Before(memory.plannedAt.Add(r.Options.Replan))
}

// carried is what all members carry together.
func carried(seen *observe.Group) units.BitsPerSecond {
	total := units.BitsPerSecond(0)
	for i := range seen.Plan.Members {
		total += seen.Plan.Members[i].Rate
	}
	return total
}

// waited reports whether a plan waited for what may be known now.
func waited(plan *planner.GroupPlan) bool {
	switch plan.Reason {
	case v1alpha1.ReasonNoRates, v1alpha1.ReasonLearning, v1alpha1.ReasonAwaitingMeter, v1alpha1.ReasonNoReadyMembers, v1alpha1.ReasonNoMembers,
		v1alpha1.ReasonOutsideChangeWindow, v1alpha1.ReasonInFreeze, v1alpha1.ReasonInvalidSchedule:
		return true
	}
	return false
}

// giveBack releases the traffic: of a Service once, of a route again and again,
// for it names its members.
func (r *Reconciler) giveBack(ctx context.Context, round *groupRound, memory *groupMemory) error {
	if !memory.mayHold {
		return nil
	}
	if err := r.release(ctx, round.seen.Routing); err != nil {
		return err
	}
	memory.plan = nil
	memory.mayHold = round.seen.Plan.Granularity == traffic.Weighted
	return nil
}

func serving(shares map[string]float64) bool {
	for _, share := range shares {
		if share > 0 {
			return true
		}
	}
	return false
}

// write does what the plan says.
func (r *Reconciler) write(ctx context.Context, round *groupRound, memory *groupMemory, writer routing.Writer) error {
	shares := round.plan.Shares
	switch {
	case round.plan.Action == planner.GroupLeave:
		return nil
	case round.plan.Recommend && !round.plan.Approved && !memory.mayHold:
		return nil // no route is made before the first approval
	case round.plan.Off:
		// In its off blocks a schedule keeps the writer at work, for the next is on.
		shares = planner.Evenly(round.seen.Plan.Members)
	case round.plan.Action == planner.GroupBalance:
		if round.seen.Plan.Granularity == traffic.Equal {
			// A Service spreads evenly by itself.
			return r.giveBack(ctx, round, memory)
		}
		shares = planner.Evenly(round.seen.Plan.Members)
	}
	if len(shares) == 0 {
		return nil
	}
	memory.mayHold = true
	round.refusal = nil // the newest word counts
	state, err := writer.Write(ctx, round.seen.Routing, shares)
	if err != nil && !errors.As(err, &round.refusal) {
		return err
	}
	if state.Shares != nil {
		round.state = state
	}
	memory.countReversion(state.Reverted, round.seen.Profile.Generation, r.Clock.Now())
	return nil
}

// mayHold tells by a status whether the manager before steered the group.
func mayHold(status *v1alpha1.TrafficStatus) bool {
	if status == nil {
		return false
	}
	return status.State == v1alpha1.LeverInForce || status.Reason == v1alpha1.ReasonSteering
}

// recovered is the plan that the manager before made, by the profile's status. Nil: there was
// none.
func recovered(seen *observe.Group, state *routing.State) *planner.GroupPlan {
	status := seen.Profile.Status.Traffic
	if status == nil || len(status.Goals) == 0 {
		return nil
	}
	goals := planner.Parts{Of: map[string]int{}}
	for name, parts := range status.Goals {
		goals.Of[name] = int(parts)
		goals.Whole += int(parts)
	}
	plan := &planner.GroupPlan{
		Revision: status.Revision, Reason: status.Reason, Message: status.Message,
		Approved: mayHold(status), Action: planner.GroupBalance,
	}
	if status.RecommendedAt != nil {
		plan.Recommend, plan.RecommendedAt = true, status.RecommendedAt.Time
	}
	if same := seen.Plan.Resume(plan, goals); !same && (plan.Recommend || !plan.Approved) {
		return nil // an approval must not come to stand for other members
	}
	if plan.Approved {
		plan.Action, plan.Shares = planner.GroupSteer, maps.Clone(state.Shares)
	}
	return plan
}
