package planner

import (
	"slices"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
)

// inSlot is where the group is in the schedule that switches it.
type inSlot struct {
	// schedule is nil when none switches it.
	schedule *model.Schedule
	model.Moment
}

// slotAt finds a time in the schedule of the group's proof or, while that is not known, in
// the one before. A schedule that cannot be followed has the lever off, which is what there
// would be without the product.
func (g *Group) slotAt(now time.Time) inSlot {
	var schedule *model.Schedule
	switch {
	case g.ProofsAwaited && g.Last != nil:
		schedule = g.Last.Schedule
	case !g.ProofsAwaited && g.Proof != nil && g.Proof.Use:
		schedule = g.Proof.Schedule
	}
	switch {
	case schedule == nil:
		return inSlot{}
	case !schedule.IsValid():
		return inSlot{schedule: schedule}
	}
	return inSlot{schedule, schedule.At(now)}
}

// isOff returns whether the schedule has the lever off.
func (s *inSlot) isOff() bool { return s.schedule != nil && !s.On }

// atOnce returns whether shares come into force in one step: in the wash-out of a slot, or
// what is judged of it would be a mixture, and where nothing was in force, for then the
// schedule begins.
func (s *inSlot) atOnce(last *GroupPlan) bool {
	return s.schedule != nil && (s.Washing || !last.steering())
}

// resume has members carry what they carried when the lever was on last: what they have
// between is the schedule's doing.
func (g *groupState) resume() {
	if g.slot.schedule == nil || !g.last.Off || !g.last.steering() {
		return
	}
	g.Members = slices.Clone(g.Members)
	for i := range g.Members {
		g.Members[i].Share = g.last.Shares[g.Members[i].Name]
	}
}

// prove has a plan follow what is known of the lever by trials, and by the manager's guard. A
// lever that the guard took away goes on with its schedule: what slots are judged by is how
// they were drawn.
func (g *groupState) prove(plan *GroupPlan, held bool) {
	goesOn := g.Withdrawn != nil && g.last.Schedule != nil
	scheduled := plan.Action == GroupSteer || plan.Action == GroupBalance && !plan.Recommend && (!held || goesOn)
	if g.slot.schedule != nil && scheduled {
		plan.Schedule, plan.Washing = g.slot.schedule, g.slot.Washing
	}
	if g.Withdrawn != nil && plan.Schedule != nil {
		plan.Off = g.slot.isOff()
	}
	if plan.Action != GroupSteer {
		g.reportRejected(plan)
		return
	}
	switch {
	case g.Withdrawn != nil:
		g.withhold(plan, v1alpha1.ReasonGuardWithdrawn, g.Withdrawn.Words())
	case g.ProofsAwaited && !g.last.steering():
		g.withhold(plan, v1alpha1.ReasonAwaitingProof, "it is not known yet what experiments showed of the lever: nothing new is done until then")
	case g.Proof != nil && !g.ProofsAwaited && !g.Proof.Use:
		g.withhold(plan, stanceReason(g.Proof.Stance), g.Proof.Message)
	case g.slot.schedule != nil:
		plan.Off = g.slot.isOff()
		if !g.ProofsAwaited && !held {
			plan.Message = g.Proof.Message // the same in on and off slots
		}
	}
}

// reportRejected reports for a group that is balanced by its plan that its lever was rejected, too:
// what the trial cost teaches the plan that uneven shares save nothing, and the verdict, which
// lasts for its cool-down whatever is planned, would no longer be reported.
func (g *groupState) reportRejected(plan *GroupPlan) {
	switch {
	case plan.Reason != v1alpha1.ReasonBalanced && plan.Reason != v1alpha1.ReasonCurvesLinear:
	case g.ProofsAwaited && g.last.Reason == v1alpha1.ReasonRejectedByTrial:
		plan.Reason, plan.Message = g.last.Reason, g.last.Message
	case !g.ProofsAwaited && g.Proof != nil && !g.Proof.Use && g.Proof.Stance == model.StanceRejected:
		plan.Reason, plan.Message = v1alpha1.ReasonRejectedByTrial, g.Proof.Message
	}
}

// withhold gives all ready members the same instead of what the lever would do. A
// recommendation stays what it is.
func (g *groupState) withhold(plan *GroupPlan, reason string, message string) {
	plan.finish(GroupBalance, reason, message)
	plan.Withheld, plan.Shares, g.reasons = true, nil, nil
	if !plan.Recommend {
		plan.Goals, plan.Revision, plan.Approved = Parts{}, "", false
	}
}
