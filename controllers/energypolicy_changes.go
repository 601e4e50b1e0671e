package controllers

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
	"github.com/joulevirt/joulevirt/internal/observe"
)

// paused tells whether the policy is.
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

// changesAllowed tells whether something new may be done now.
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
		Reason: string(times.Hold.Reason), Message: cut(times.Hold.Message, maxConditionMessage),
	}
}

// mostNamed is how many approvals a message names.
const mostNamed = 3

// approvalsMatched tells whether each approval is of a recommendation that stands. Of the
// others it tells apart those that a recommendation was found to replace.
func approvalsMatched(policy *v1alpha1.EnergyPolicy, view policyView) metav1.Condition {
	standing := maps.Clone(view.groupRevisions)
	if standing == nil {
		standing = map[string]bool{}
	}
	replaced := map[string]*v1alpha1.NodePlan{}
	for _, node := range slices.Sorted(maps.Keys(view.plans)) {
		plan := view.plans[node].NodePlan
		if plan.Spec.Policy != policy.Name {
			continue
		}
		standing[plan.Spec.Revision] = true
		// What the agent applied last may have been replaced twice since.
		for _, revision := range []string{plan.Spec.ReplacedRevision, plan.Status.AppliedRevision} {
			if revision != "" && replaced[revision] == nil {
				replaced[revision] = plan
			}
		}
	}
	var expired, unknown []string
	for _, approval := range policy.Spec.Approvals {
		plan := replaced[approval]
		switch {
		case standing[approval]:
		case plan != nil:
			expired = append(expired, fmt.Sprintf("%s was replaced by %s on node %s", approval, plan.Spec.Revision, plan.Name))
		default:
			unknown = append(unknown, approval)
		}
	}
	condition := metav1.Condition{
		Type: v1alpha1.ConditionApprovalsMatched, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonApprovalUnmatched,
	}
	switch {
	case len(expired)+len(unknown) == 0:
		condition.Status, condition.Reason = metav1.ConditionTrue, v1alpha1.ReasonAllMatched
		condition.Message = "each of spec.approvals is the revision of a recommendation that stands"
		return condition
	case len(unknown) == 0:
		condition.Reason = v1alpha1.ReasonApprovalExpired
	}
	var words []string
	if len(expired) > 0 {
		words = append(words, fmt.Sprintf("%d of spec.approvals are of recommendations that expired or do not fit any more: %s: read what is recommended now, and approve that", len(expired), someOf(expired)))
	}
	if len(unknown) > 0 {
		words = append(words, fmt.Sprintf("%d of spec.approvals match no recommendation of the policy's nodes and groups: %s: compare with the revisions of NodePlans, and remove them", len(unknown), someOf(unknown)))
	}
	condition.Message = cut(strings.Join(words, "; "), maxConditionMessage)
	return condition
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
	setConditions(&status.Conditions, []metav1.Condition{approvalsMatched(policy, view)}, policy.Generation, view.now)
}

// tellPause makes an Event of a pause that begins or ends.
func (r *EnergyPolicyReconciler) tellPause(policy *v1alpha1.EnergyPolicy, was []metav1.Condition) {
	before := meta.IsStatusConditionTrue(was, v1alpha1.ConditionPaused)
	switch {
	case policy.Spec.Paused == before:
	case policy.Spec.Paused:
		r.Recorder.Eventf(policy, nil, corev1.EventTypeNormal, v1alpha1.ReasonPaused, "Pause",
			"everything that the policy does on %d nodes is undone", policy.Status.Nodes.Governed)
	default:
		r.Recorder.Eventf(policy, nil, corev1.EventTypeNormal, v1alpha1.ReasonResumed, "Resume",
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
