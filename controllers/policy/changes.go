package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/controllers/statuses"
	"github.com/joulevirt/joulevirt/internal/observe"
)

// paused reports whether the policy is.
func paused(policy *v1alpha1.EnergyPolicy) metav1.Condition {
	if !policy.Spec.Paused {
		return metav1.Condition{
			Type: v1alpha1.ConditionPaused, Status: metav1.ConditionFalse,
			Reason: v1alpha1.ReasonNotPaused, Message: "spec.paused is not set",
		}
	}
	return metav1.Condition{
		Type: v1alpha1.ConditionPaused, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonPaused,
		Message: "everything that the policy does is undone, and nothing is done until spec.paused is false",
	}
}

// changesAllowed reports whether something new may be done now.
func changesAllowed(policy *v1alpha1.EnergyPolicy, times observe.ChangeTimes) metav1.Condition {
	if policy.Spec.Paused {
		return metav1.Condition{
			Type: v1alpha1.ConditionChangesAllowed, Status: metav1.ConditionFalse,
			Reason: v1alpha1.ReasonPaused, Message: "the policy is paused, whatever its windows and freezes say",
		}
	}
	if times.Hold.Reason == "" {
		return metav1.Condition{
			Type: v1alpha1.ConditionChangesAllowed, Status: metav1.ConditionTrue,
			Reason: v1alpha1.ReasonChangesAllowed, Message: "spec.budgets.windows and spec.budgets.freezes let new things be done now",
		}
	}
	return metav1.Condition{
		Type: v1alpha1.ConditionChangesAllowed, Status: metav1.ConditionFalse,
		Reason: times.Hold.Reason, Message: times.Hold.Message,
	}
}

// mostNamed is how many approvals a message names.
const mostNamed = 3

// approvalsMatched reports whether each approval is the revision of a current recommendation.
func approvalsMatched(policy *v1alpha1.EnergyPolicy, view policyView) metav1.Condition {
	current := maps.Clone(view.groupRevisions)
	if current == nil {
		current = map[string]bool{}
	}
	for _, plan := range view.plans {
		if plan.Spec.Policy == policy.Name {
			current[plan.Spec.Revision] = true
		}
	}
	for i := range view.moves {
		if plan := &view.moves[i]; plan.Name == policy.Name && plan.Spec.Revision != "" {
			current[plan.Spec.Revision] = true
		}
	}
	unmatched := slices.DeleteFunc(slices.Clone(policy.Spec.Approvals), func(approval string) bool { return current[approval] })
	if len(unmatched) == 0 {
		return metav1.Condition{
			Type: v1alpha1.ConditionApprovalsMatched, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAllMatched,
			Message: "each of spec.approvals is the revision of a current recommendation",
		}
	}
	return metav1.Condition{
		Type: v1alpha1.ConditionApprovalsMatched, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonApprovalUnmatched,
		Message: fmt.Sprintf("%d of spec.approvals are of no current recommendation of the policy's nodes, groups and moves, because it expired, was replaced, "+
			"or never was: %s: compare with the revisions of NodePlans and the PlacementPlan, approve those, and remove these", len(unmatched), someOf(unmatched)),
	}
}

// someOf names the first of several.
func someOf(names []string) string {
	text := strings.Join(names[:min(len(names), mostNamed)], ", ")
	if more := len(names) - mostNamed; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// setApprovals sets the condition of a policy that approves something, and removes that of
// one that does not, or needs no approvals: its plans change all the time, and match none.
func setApprovals(status *v1alpha1.EnergyPolicyStatus, policy *v1alpha1.EnergyPolicy, view policyView) {
	if len(policy.Spec.Approvals) == 0 || policy.Spec.Mode != v1alpha1.ModeRecommend {
		meta.RemoveStatusCondition(&status.Conditions, v1alpha1.ConditionApprovalsMatched)
		return
	}
	statuses.SetConditions(&status.Conditions, []metav1.Condition{approvalsMatched(policy, view)}, policy.Generation, view.now)
}

// reportPause makes an Event of a pause that begins or ends.
func (r *Reconciler) reportPause(policy *v1alpha1.EnergyPolicy, was []metav1.Condition) {
	before := meta.IsStatusConditionTrue(was, v1alpha1.ConditionPaused)
	switch {
	case policy.Spec.Paused == before:
	case policy.Spec.Paused:
		r.Recorder.Eventf(policy, nil, corev1.EventTypeNormal, v1alpha1.ReasonPaused, "Pause",
			"everything that the policy does on %d nodes is undone", policy.Status.Nodes.Governed)
	default:
		r.Recorder.Eventf(policy, nil, corev1.EventTypeNormal, v1alpha1.ReasonNotPaused, "Resume",
			"the policy acts again on %d nodes, in mode %s", policy.Status.Nodes.Governed, policy.Spec.Mode)
	}
}

// recheck is how long until the status may say something else though nothing changes.
func recheck(times observe.ChangeTimes, now time.Time) time.Duration {
	if times.Again.IsZero() {
		return policyRecheck
	}
	return min(policyRecheck, max(time.Second, times.Again.Sub(now)))
}
