package agent

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/agent/publish"
)

// Reasons of the agent's conditions that the API names nowhere else.
const (
	reasonManagerStale = "ManagerStale"
	reasonAgentEnded   = "AgentEnded"
	reasonNotApplied   = "NotToBeApplied"
	reasonNotSupported = "NotSupported"
	reasonBadPlan      = "BadPlan"
)

// outcome is what a status is made of.
type outcome struct {
	orders  orders
	applied applied
	// err is a failure of the round as a whole, such as of the journal.
	err error
	// stale is true when the manager's Lease is out of date, renewed then.
	stale   bool
	renewed time.Time
	// ended is true when the agent ends and has put everything back.
	ended bool
}

// planStatus says what became of a plan. previous is the status so far.
func planStatus(plan *v1alpha1.NodePlan, previous *v1alpha1.NodePlanStatus, o outcome, now time.Time) v1alpha1.NodePlanStatus {
	status := v1alpha1.NodePlanStatus{
		ObservedGeneration: plan.Generation,
		AppliedRevision:    previous.AppliedRevision,
	}
	byPod := o.applied.byPod()
	if plan.Spec.Apply && !o.stale && !o.ended {
		for i := range plan.Spec.VMs {
			vm := &plan.Spec.VMs[i]
			status.VMs = append(status.VMs, vmApplied(vm, o.orders, byPod[string(vm.PodUID)])...)
		}
	}
	o.orders.tellTrials(status.VMs, previous, plan.Generation)
	inForce := map[types.UID]bool{}
	for i := range status.VMs {
		if status.VMs[i].State == v1alpha1.LeverInForce {
			inForce[status.VMs[i].PodUID] = true
		}
	}
	status.VMsInForce = int32(len(inForce))
	condition := appliedCondition(plan, o, status.VMs)
	if condition.Status == metav1.ConditionTrue {
		status.AppliedRevision = plan.Spec.Revision
	}
	condition.ObservedGeneration = plan.Generation
	condition.LastTransitionTime = metav1.NewTime(now.Truncate(time.Second))
	for _, c := range previous.Conditions {
		status.Conditions = append(status.Conditions, *c.DeepCopy())
	}
	meta.SetStatusCondition(&status.Conditions, condition)
	return status
}

// appliedCondition is the condition Applied.
func appliedCondition(plan *v1alpha1.NodePlan, o outcome, vms []v1alpha1.VMApplied) metav1.Condition {
	no := func(reason, message string) metav1.Condition {
		return metav1.Condition{Type: v1alpha1.ConditionApplied, Status: metav1.ConditionFalse, Reason: reason, Message: publish.CutMessage(message)}
	}
	switch {
	case o.err != nil:
		return no(v1alpha1.ReasonApplyFailed, o.err.Error())
	case o.ended:
		return no(reasonAgentEnded, "the node's agent ended and put everything back: the next one applies the plan again")
	case o.stale && o.renewed.IsZero():
		return no(reasonManagerStale, "the manager's Lease was never seen: everything was put back; start the manager")
	case o.stale:
		return no(reasonManagerStale, fmt.Sprintf("the manager renewed its Lease last at %s: everything was put back; start the manager",
			o.renewed.UTC().Format(time.RFC3339)))
	case !plan.Spec.Apply && plan.Spec.Mode == v1alpha1.ModeRecommend:
		return no(v1alpha1.ReasonAwaitingApproval, "the plan is a recommendation: nothing is changed")
	case !plan.Spec.Apply:
		return no(reasonNotApplied, "the plan is not to be applied: nothing is changed")
	case o.orders.badTrial != "":
		return no(reasonBadPlan, o.orders.badTrial)
	}
	for _, state := range []v1alpha1.LeverState{v1alpha1.LeverFailed, v1alpha1.LeverPending} {
		count, first := 0, -1
		for i := range vms {
			if vms[i].State != state {
				continue
			}
			if count++; first < 0 {
				first = i
			}
		}
		if count > 0 {
			vm := &vms[first]
			return no(vm.Reason, fmt.Sprintf("%d of %d actions not in force, such as %s of %s/%s: %s",
				count, len(vms), vm.Lever, vm.Namespace, vm.Name, vm.Message))
		}
	}
	return metav1.Condition{
		Type: v1alpha1.ConditionApplied, Status: metav1.ConditionTrue,
		Reason: v1alpha1.ReasonApplied, Message: "every action was read back, or is left out with its reason",
	}
}
