package group

import (
	"context"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/controllers/trials"
	"github.com/joulevirt/joulevirt/controllers/watch"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/observe"
	"github.com/joulevirt/joulevirt/internal/observe/blocks"
	"github.com/joulevirt/joulevirt/internal/observe/proofs"
	"github.com/joulevirt/joulevirt/internal/planner"
	"github.com/joulevirt/joulevirt/internal/planner/traffic"
	"github.com/joulevirt/joulevirt/internal/verify/proof"
)

// GroupProofs say how lever TrafficShare stands on groups, as "namespace/name" of their
// profile, and are told what the manager did of their schedules. proofs.Store has them.
type GroupProofs interface {
	// Of is false while that is not known.
	Of(policy, group string) ([]model.Proof, bool)
	Group(policy, group string, sight blocks.GroupSight, now time.Time)
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
	sight := blocks.GroupSight{Done: memory.done, Withdrawn: round.withdrawn}
	if stands := round.stands; stands != nil && stands.Use {
		sight.Schedule = stands.Schedule
	}
	for i := range round.seen.Plan.Nodes {
		sight.Nodes = append(sight.Nodes, round.seen.Plan.Nodes[i].Name)
	}
	r.Proofs.Group(planner.ProvingPolicy(round.seen.Plan.Nodes), round.seen.Routing.Profile.String(), sight, r.Clock.Now())
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

// tried returns the policy in whose proofs the group is, and the group as a unit of them.
// Where it is not known what a node is or whether it has a meter, as when its agent is late,
// the group is what it was at the last look; without one it is no unit yet.
func (r *groupRound) tried(was *View, pull time.Duration) (policy string, unit proof.Unit) {
	policy, unit = planner.ProvingPolicy(r.seen.Plan.Nodes), r.unit(pull)
	for i := range r.seen.Sources {
		source := &r.seen.Sources[i]
		if source.Report != nil && !source.Choice.Unknown && source.Choice.LostSince.IsZero() {
			continue
		}
		if was == nil || was.policy == "" {
			return "", proof.Unit{}
		}
		unit.Class, unit.Meter, unit.Ready = was.unit.Class, was.unit.Meter, false
		unit.MeterLost = unit.MeterLost || !source.Choice.LostSince.IsZero()
	}
	return policy, unit
}

// unit is the group as something on which the lever is tried. pull is the time between two
// questions to an agent.
func (r *groupRound) unit(pull time.Duration) proof.Unit {
	plan := &r.seen.Plan
	nodes := make([]proofs.GroupNode, len(plan.Nodes))
	for i := range plan.Nodes {
		source := &r.seen.Sources[i]
		nodes[i] = proofs.GroupNode{
			Name: plan.Nodes[i].Name, Class: observe.ClassOf(source.Report, proofs.WorkloadGroup), Meter: trials.MeterOf(source.Choice, pull),
			MostWatts: trials.MostWatts(source.Report, source.Choice), Untried: plan.Nodes[i].Untried,
		}
	}
	steerable := r.refusal == nil && !r.contested && r.seen.TakenBy == ""
	return proofs.GroupUnit(r.seen.Routing.Profile.String(), &r.plan, nodes, steerable, r.saving)
}

// Units are the groups that are tried by a policy's proofs, in the order of their names.
func (t *Views) Units(policy string) []proof.Unit {
	var units []proof.Unit
	for _, view := range t.All() {
		if view.policy == policy && policy != "" {
			units = append(units, view.unit)
		}
	}
	slices.SortFunc(units, func(x, y proof.Unit) int { return strings.Compare(x.Name, y.Name) })
	return units
}

// Replan has a group planned anew, by the name of its unit. It may block until the context
// ends.
func (t *Views) Replan(ctx context.Context, unit string) {
	namespace, name, _ := strings.Cut(unit, "/")
	watch.Send(ctx, t.again, &v1alpha1.VMNetworkProfile{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}})
}

// Complete reports whether all groups were looked at, as they are not for a moment after a
// change of leader.
func (t *Views) Complete(ctx context.Context, reader client.Reader) bool {
	var profiles v1alpha1.VMNetworkProfileList
	if err := reader.List(ctx, &profiles, client.UnsafeDisableDeepCopy); err != nil {
		return false // it will be asked again
	}
	_, awaited := Summarize(profiles.Items, t.All())
	return !awaited
}
