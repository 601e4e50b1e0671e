package group

import (
	"math"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/observe"
	"github.com/joulevirt/joulevirt/internal/observe/guards"
	"github.com/joulevirt/joulevirt/internal/planner"
)

// GroupGuards say what lever TrafficShare is withdrawn from a group for, as
// "namespace/name" of its profile, given what its status remembers. guards.Store has them.
type GroupGuards interface {
	OfGroup(group string, held []model.Withdrawal) []model.Withdrawal
}

// groupMember is the VM of a launcher pod as one of a group.
type groupMember struct {
	// group is "namespace/name" of the profile. Empty: it is of none.
	group string
	share guards.Share
}

// withdrawn asks what is withdrawn of the group, or remembered of it.
func (r *Reconciler) withdrawn(round *groupRound, memory *groupMemory) []model.Withdrawal {
	if r.Guards == nil {
		return nil
	}
	said := round.seen.Profile.Status.Traffic
	if memory.written != nil {
		said = memory.written // the cache may not have it yet
	}
	return r.Guards.OfGroup(round.seen.Routing.Profile.String(), observe.GroupWithdrawn(said))
}

// withdrawal is the group's. Nil: none is remembered.
func (r *groupRound) withdrawal() *model.Withdrawal {
	if len(r.withdrawn) == 0 {
		return nil
	}
	return &r.withdrawn[0]
}

// reportWithdrawn counts and tells, once, that the lever was withdrawn. It reports whether it did.
func (r *Reconciler) reportWithdrawn(round *groupRound, was *v1alpha1.TrafficStatus, now time.Time) bool {
	w := round.withdrawal()
	if w == nil || !w.Lasts(now) || was != nil && was.Withdrawn != nil && was.Withdrawn.Time.Unix() == w.Time.Unix() {
		return false
	}
	kind := corev1.EventTypeNormal // nothing speaks against the lever yet
	if w.Count > 0 {
		kind = corev1.EventTypeWarning
		r.Metrics.GuardBreaches.WithLabelValues(string(w.Sign), string(w.Lever)).Inc()
	}
	group := round.seen.Profile.Spec.Group
	r.Recorder.Eventf(round.seen.Profile, nil, kind, v1alpha1.ReasonGuardWithdrawn, "Withdraw", "lever %s of %s %s: %s", w.Lever, group.Kind, group.Name, w.Words())
	return true
}

// members are the launcher pods of the group, and how their shares compare.
func (r *groupRound) members() map[string]groupMember {
	shares := map[string]guards.Share{}
	for i := range r.seen.Plan.Members {
		shares[r.seen.Plan.Members[i].Name] = r.share(&r.seen.Plan.Members[i])
	}
	of := map[string]groupMember{}
	for i := range r.seen.Routing.Members {
		m := &r.seen.Routing.Members[i]
		for j := range m.Pods {
			of[string(m.Pods[j].UID)] = groupMember{r.seen.Routing.Profile.String(), shares[m.Name]}
		}
	}
	return of
}

// share reports how what a member gets of new traffic compares with an even share.
func (r *groupRound) share(m *planner.GroupMember) guards.Share {
	const same = 1e-6
	if !m.Ready || r.refusal != nil || r.contested {
		return guards.ShareUnknown
	}
	switch {
	case r.plan.Action == planner.GroupSteer && !r.plan.Off:
		switch above := r.inForce(m.Name) - 1/float64(r.readyMembers()); {
		case math.Abs(above) < same:
			return guards.ShareEven
		case above > 0:
			return guards.ShareMore
		default:
			return guards.ShareLess
		}
	case r.plan.Action == planner.GroupLeave, r.moving():
		return guards.ShareUnknown
	default:
		return guards.ShareEven
	}
}
