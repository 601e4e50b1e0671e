package group

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/planner/traffic"
	"github.com/joulevirt/joulevirt/internal/routing"
)

// endurance is how long a Service that cannot be steered any more keeps VMs on
// standby: what is refused for a moment must not move traffic.
const endurance = time.Minute

// marked reports whether pods of members carry the mark of the group's profile: by
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
	switch {
	case m.refusedAt.IsZero() && len(round.seen.Plan.Members) > 0 && round.seen.TakenBy == "":
		m.idleSince = time.Time{}
	case m.idleSince.IsZero():
		m.idleSince = now
	}
}

// leave leaves the traffic of a group that cannot be steered as it is. VMs of a
// Service that were put on standby are given back when they are needed, as nobody
// would replace those that fail, or when it cannot be steered for long. A route with too
// many members spreads its traffic evenly over those that it names.
func (r *Reconciler) leave(ctx context.Context, round *groupRound, memory *groupMemory) error {
	lasts := !memory.refusedAt.IsZero() && !r.Clock.Now().Before(memory.refusedAt.Add(endurance))
	if round.seen.Plan.Granularity != traffic.Equal {
		if lasts && round.refusal != nil && round.refusal.Reason == v1alpha1.ReasonTooManyMembers {
			return r.release(ctx, round.seen.Routing)
		}
		return nil
	}
	if lasts || tooFewServe(&round.seen.Routing) {
		return r.giveBack(ctx, round, memory)
	}
	return nil
}

// tooFewServe reports whether fewer ready members are active than have to be, when
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

// isContested reports whether somebody else changed the shares back twice: since
// then, and until the profile changes, they are left alone. It is asked before
// they would be written once more.
func (r *Reconciler) isContested(round *groupRound, memory *groupMemory) bool {
	generation, status := round.seen.Profile.Generation, round.seen.Profile.Status.Traffic
	if status != nil && status.Reason == v1alpha1.ReasonContested && status.ObservedGeneration == generation && memory.contestedFor == 0 {
		memory.contestedFor, memory.contestedMessage = generation, status.Message // by an earlier manager
	}
	counted := memory.reverted
	if memory.revertedFor != generation || r.Clock.Since(memory.revertedAt) > patience {
		counted = 0
	}
	if memory.contestedFor != generation && round.state.Reverted && counted+1 >= mostReversions {
		memory.contestedFor = generation
		memory.contestedMessage = fmt.Sprintf("%s changed the shares back %d times: they are left alone until the profile's spec changes; let one of the two steer",
			cmp.Or(round.state.RevertedBy, "somebody else"), mostReversions)
	}
	round.contested, round.contestedMessage = memory.contestedFor == generation, memory.contestedMessage
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
