package controllers

import (
	"context"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/observe/blocks"
	"github.com/joulevirt/joulevirt/internal/planner"
	"github.com/joulevirt/joulevirt/internal/planner/traffic"
	"github.com/joulevirt/joulevirt/internal/verify"
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

// workloadGroup is the word for what VMs of a group do, in the class that their effects are
// pooled over.
const workloadGroup = "Group"

// provingPolicy is that in whose proofs a group is tried and booked: of all that govern the
// members' nodes the first by name, as a group must not be tried twice. Empty: none does.
func provingPolicy(nodes []planner.GroupNode) string {
	name := ""
	for i := range nodes {
		if policy := nodes[i].Policy; policy != nil && (name == "" || policy.Name < name) {
			name = policy.Name
		}
	}
	return name
}

// stand gives a group what is known of the lever by trials. A lever that proofs know nothing
// of, though they know the group, was not heard of yet.
func (r *TrafficGroupReconciler) stand(group *planner.Group, profile types.NamespacedName) {
	if r.Proofs == nil {
		return
	}
	stands, known := r.Proofs.Of(provingPolicy(group.Nodes), profile.String())
	at := slices.IndexFunc(stands, func(p model.Proof) bool { return p.Lever == model.LeverTrafficShare })
	if group.ProofsAwaited = !known || at < 0; !group.ProofsAwaited {
		group.Proof = &stands[at]
	}
}

// note tells proofs what was done of the group's schedule.
func (r *TrafficGroupReconciler) note(round *groupRound, memory *groupMemory) {
	memory.noteSwitch(round)
	if r.Proofs == nil {
		return
	}
	sight := blocks.GroupSight{Done: memory.done}
	if stands := round.stands; stands != nil && stands.Use {
		sight.Schedule = stands.Schedule
	}
	for i := range round.seen.Plan.Nodes {
		sight.Nodes = append(sight.Nodes, round.seen.Plan.Nodes[i].Name)
	}
	r.Proofs.Group(provingPolicy(round.seen.Plan.Nodes), round.seen.Routing.Profile.String(), sight, r.Clock.Now())
}

// noteSwitch remembers since when the shares are as the schedule has them. That a member
// comes or fails later in a block changes nothing: it is left to chance, like all that VMs
// do.
func (m *groupMemory) noteSwitch(round *groupRound) {
	s := round.plan.Schedule
	if s == nil || !s.IsValid() || round.refusal != nil || round.contested {
		m.done = nil
		return
	}
	on := !round.plan.Off
	same := m.done != nil && m.done.Seed == s.Seed && m.done.Start.Equal(s.Start) && m.done.On == on
	released := round.plan.Action == planner.GroupBalance && round.seen.Plan.Granularity == traffic.Equal
	if !same && !round.state.Settled && !released {
		m.done = nil
		return
	}
	done := model.Switch{Lever: s.Lever, Seed: s.Seed, Start: s.Start, Block: s.At(round.at).Block, On: on, Since: round.at}
	if same {
		done.Since = m.done.Since
	}
	m.done = &done
}

// tried returns the policy in whose proofs the group is, and the group as a unit of them.
// Where it is not known what a node is or whether it has a meter, as when its agent is late,
// the group is what it was at the last look; without one it is no unit yet.
func (r *groupRound) tried(was *groupSight, pull time.Duration) (policy string, unit proof.Unit) {
	policy, unit = provingPolicy(r.seen.Plan.Nodes), r.unit(pull)
	for i := range r.seen.Sources {
		source := &r.seen.Sources[i]
		if source.Report != nil && !source.Choice.Unknown {
			continue
		}
		if was == nil || was.policy == "" {
			return "", proof.Unit{}
		}
		unit.Class, unit.Meter, unit.Ready = was.unit.Class, was.unit.Meter, false
	}
	return policy, unit
}

// unit is the group as something on which the lever is tried. pull is the time between two
// questions to an agent.
func (r *groupRound) unit(pull time.Duration) proof.Unit {
	plan := &r.seen.Plan
	u := proof.Unit{Name: r.seen.Routing.Profile.String(), Approved: len(plan.Nodes) > 0}
	for i := range plan.Nodes {
		node, source := &plan.Nodes[i], &r.seen.Sources[i]
		class, meter := classOf(source.Report, workloadGroup), meterOf(source.Choice, pull)
		if i == 0 {
			u.Class, u.Meter = class, meter
		}
		if u.Class != class {
			u.Class = verify.Class{} // It stands alone.
		}
		u.Meter = slower(u.Meter, meter)
		u.Nodes = append(u.Nodes, node.Name)
		u.MostWatts += mostWatts(source.Report, source.Choice)
		u.Approved = u.Approved && (node.Untried || r.plan.Mode == model.ModeRecommend)
	}
	slices.Sort(u.Nodes)
	if r.plan.Schedule != nil {
		u.Has = []model.Schedule{*r.plan.Schedule}
	}
	acts := r.plan.Action == planner.GroupSteer || r.plan.Action == planner.GroupBalance
	if !acts || r.refusal != nil || r.contested || r.seen.TakenBy != "" {
		return u
	}
	if r.saving != nil && r.saving.Watts > 0 {
		u.Candidates = []proof.Candidate{{Lever: model.LeverTrafficShare, Watts: r.saving.Watts}}
	}
	u.Ready = !r.plan.Held && (r.plan.Mode == model.ModeEnforce || r.plan.Approved)
	return u
}

// slower is the slowest that two meters tell together. Where one is missing, there is none.
func slower(x, y verify.Meter) verify.Meter {
	if x == (verify.Meter{}) || y == (verify.Meter{}) {
		return verify.Meter{}
	}
	return verify.Meter{Interval: max(x.Interval, y.Interval), Freshness: max(x.Freshness, y.Freshness), Noise: max(x.Noise, y.Noise)}
}

// units are the groups that are tried by a policy's proofs, in the order of their names.
func (t *trafficSights) units(policy string) []proof.Unit {
	var units []proof.Unit
	for _, sight := range t.all() {
		if sight.policy == policy && policy != "" {
			units = append(units, sight.unit)
		}
	}
	slices.SortFunc(units, func(x, y proof.Unit) int { return strings.Compare(x.Name, y.Name) })
	return units
}

// replan has a group planned anew, by the name of its unit. It may block until the context
// ends.
func (t *trafficSights) replan(ctx context.Context, unit string) {
	namespace, name, _ := strings.Cut(unit, "/")
	send(ctx, t.again, &v1alpha1.VMNetworkProfile{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}})
}

// complete tells whether all groups were looked at, as they are not for a moment after a
// change of leader.
func (t *trafficSights) complete(ctx context.Context, reader client.Reader) bool {
	var profiles v1alpha1.VMNetworkProfileList
	if err := reader.List(ctx, &profiles, client.UnsafeDisableDeepCopy); err != nil {
		return false // it will be asked again
	}
	_, awaited := viewGroups(profiles.Items, t.all())
	return !awaited
}
