package group

import (
	"context"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	trialing "github.com/joulevirt/joulevirt/controllers/trials"
	"github.com/joulevirt/joulevirt/controllers/watch"
	"github.com/joulevirt/joulevirt/internal/energy"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/observe/slots"
	"github.com/joulevirt/joulevirt/internal/planner"
	"github.com/joulevirt/joulevirt/internal/planner/traffic"
	"github.com/joulevirt/joulevirt/internal/trials"
)

// GroupProofs say how lever TrafficShare stands on groups, as "namespace/name" of their
// profile, and record what the manager did of their schedules: trials.Memory.
type GroupProofs interface {
	// Of is false while that is not known.
	Of(policy, group string) ([]model.Proof, bool)
	ObserveGroup(policy, group string, s slots.GroupSample)
	ForgetGroup(group string)
}

// stand gives a group what is known of the lever by trials.
func (r *Reconciler) stand(group *planner.Group, profile types.NamespacedName) {
	if r.Proofs == nil {
		return
	}
	group.Stand(r.Proofs.Of(planner.ProvingPolicy(group.Nodes), profile.String()))
}

// note tells proofs what was done of the group's schedule.
func (r *Reconciler) note(round *groupRound, memory *groupMemory) {
	memory.noteSwitch(round)
	if r.Proofs == nil {
		return
	}
	sample := slots.GroupSample{Done: memory.done}
	if stands := round.stands; stands != nil && stands.Use {
		sample.Schedule = stands.Schedule
	}
	for i := range round.seen.Plan.Nodes {
		sample.Nodes = append(sample.Nodes, round.seen.Plan.Nodes[i].Name)
	}
	r.Proofs.ObserveGroup(planner.ProvingPolicy(round.seen.Plan.Nodes), round.seen.Routing.Profile.String(), sample)
}

// noteSwitch remembers since when the shares are as the schedule has them.
func (m *groupMemory) noteSwitch(round *groupRound) {
	if round.refusal != nil || round.contested {
		m.done = nil
		return
	}
	released := round.plan.Action == planner.GroupBalance && round.seen.Plan.Granularity == traffic.Equal
	m.done = round.plan.Done(m.done, round.state.Settled || released, round.at)
}

// tried returns the policy in whose trials the group is, and the group as a unit of them. Where it is
// not known whether a node has a meter, as when its agent is late, the group is what it was at the
// last look; without one it is no unit yet.
func (r *groupRound) tried(was *View) (policy string, unit trials.Unit) {
	plan := &r.seen.Plan
	policy = planner.ProvingPolicy(plan.Nodes)
	choices := make([]energy.Choice, len(r.seen.Sources))
	for i := range choices {
		choices[i] = r.seen.Sources[i].Choice
	}
	unit, unknown := trialing.UnitOf(r.seen.Routing.Profile.String(), plan.Nodes, choices)
	unit.Approved = unit.Approved || len(plan.Nodes) > 0 && r.plan.Recommend
	if unknown {
		if was == nil || was.policy == "" {
			return "", trials.Unit{}
		}
		unit.Metered, unit.TooSlow = was.unit.Metered, was.unit.TooSlow
		return policy, unit
	}
	acts := r.plan.Action == planner.GroupSteer || r.plan.Action == planner.GroupBalance
	steerable := r.refusal == nil && !r.contested && r.seen.TakenBy == ""
	ready := !r.plan.Held && (!r.plan.Recommend || r.plan.Approved)
	if acts && steerable && ready && r.saving != nil && r.saving.Watts > 0 {
		unit.Candidates = []v1alpha1.Lever{v1alpha1.LeverTrafficShare}
	}
	if w := r.withdrawal(); w != nil && w.Count > 0 {
		unit.Stopped = map[v1alpha1.Lever]trials.Stop{v1alpha1.LeverTrafficShare: {At: w.Time, Evidence: w.Message}}
	}
	return policy, unit
}

// Units are the groups that are tried by a policy's trials, in the order of their names.
func (t *Views) Units(policy string) []trials.Unit {
	var units []trials.Unit
	for _, view := range t.All() {
		if view.policy == policy && policy != "" {
			units = append(units, view.unit)
		}
	}
	slices.SortFunc(units, func(x, y trials.Unit) int { return strings.Compare(x.Name, y.Name) })
	return units
}

// Replan has a group planned anew, by the name of its unit. It may block until the context
// ends.
func (t *Views) Replan(ctx context.Context, unit string) {
	namespace, name, _ := strings.Cut(unit, "/")
	watch.Send(ctx, t.again, &v1alpha1.VMNetworkProfile{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}})
}
