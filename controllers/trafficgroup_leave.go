package controllers

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/planner/traffic"
	"github.com/joulevirt/joulevirt/internal/routing"
)

// endurance is how long a Service that cannot be steered any more keeps VMs on
// standby: what is refused for a moment must not move traffic.
const endurance = time.Minute

// marked tells whether pods of members carry the mark of the group's profile: by
// it a new leader knows what it has to give back, whatever the status says.
func marked(group *routing.Group) bool {
	for i := range group.Members {
		for _, pod := range group.Members[i].Pods {
			if pod.Profile == group.Profile.Name {
				return true
			}
		}
	}
	return false
}

func (m *groupMemory) noteRefusal(round *groupRound, now time.Time) {
	switch {
	case round.refusal == nil || round.state.Shares != nil:
		m.refusedAt = time.Time{}
	case m.refusedAt.IsZero():
		m.refusedAt = now
	}
}

// leave leaves the traffic of a group that cannot be steered as it is. VMs of a
// Service that were put on standby are given back when they are needed, as nobody
// would replace those that fail, or when it cannot be steered for long. A route that
// got rules of somebody else keeps no Service that it does not name.
func (r *TrafficGroupReconciler) leave(ctx context.Context, round *groupRound, memory *groupMemory) error {
	lasts := !memory.refusedAt.IsZero() && !r.Clock.Now().Before(memory.refusedAt.Add(endurance))
	if round.seen.Plan.Granularity != traffic.Equal {
		if lasts && round.refusal != nil && round.refusal.Reason == v1alpha1.ReasonForeignRules {
			return r.release(ctx, round.seen.Routing)
		}
		return nil
	}
	if lasts || tooFewServe(&round.seen.Routing) {
		return r.giveBack(ctx, round, memory)
	}
	return nil
}

// tooFewServe tells whether fewer ready members are active than have to be, when
// others are ready.
func tooFewServe(group *routing.Group) bool {
	ready, active := 0, 0
	for i := range group.Members {
		m := &group.Members[i]
		if !m.Ready() {
			continue
		}
		ready++
		for _, pod := range m.Pods {
			if pod.Ready && pod.Serving == v1alpha1.ServingActive {
				active++
				break
			}
		}
	}
	return active < min(ready, max(1, int(group.Target.MinActive)))
}

// isContested tells whether somebody else changed the shares back twice: since
// then, and until the profile changes, they are left alone. It is asked before
// they would be written once more.
func (r *TrafficGroupReconciler) isContested(round *groupRound, memory *groupMemory) bool {
	profile := round.seen.Profile
	if said := contestedCondition(profile.Status.Traffic, memory); said != nil && said.ObservedGeneration == profile.Generation {
		round.contested = true
		return true
	}
	counted := memory.reverted
	if memory.revertedFor != profile.Generation || r.Clock.Since(memory.revertedAt) > patience {
		counted = 0
	}
	round.contested, round.contestedBy = round.state.Reverted && counted+1 >= mostReversions, round.state.RevertedBy
	return round.contested
}

// countReversion counts what was written anew: what stands is seen in each round.
// What stands from before the profile is of a generation does not count for it.
func (m *groupMemory) countReversion(reverted bool, generation int64, now time.Time) {
	switch {
	case m.revertedFor != generation:
		m.reverted, m.revertedFor = 0, generation
	case !reverted:
	case now.Sub(m.revertedAt) > patience:
		m.reverted, m.revertedAt = 1, now
	default:
		m.reverted, m.revertedAt = m.reverted+1, now
	}
}

// contestedCondition is the newest that was said. Nil: nothing, or no.
func contestedCondition(status *v1alpha1.TrafficStatus, memory *groupMemory) *metav1.Condition {
	if memory.written != nil {
		status = memory.written
	}
	if status == nil {
		return nil
	}
	said := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionWeightsContested)
	if said == nil || said.Status != metav1.ConditionTrue {
		return nil
	}
	return said
}
