package agent

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/agent/actuate"
	"github.com/joulevirt/joulevirt/internal/agent/publish"
)

// Reasons of the agent's conditions that the API names nowhere else.
const (
	reasonManagerStale = "ManagerStale"
	reasonAgentEnded   = "AgentEnded"
	reasonNotApplied   = "NotToBeApplied"
	reasonBadPlan      = "BadPlan"
	reasonSwitchedOff  = "SwitchedOff"
	reasonAgentStarted = "AgentStarted"
)

const (
	trialMessage   = "a trial switches the lever on and off"
	messageUnknown = "no process of the VM is known on the node"
	// settleTime is how long a lever has been on before the status shows again what is read
	// back of it: the declaration of a guest takes declarationTime to count.
	settleTime = 2 * declarationTime
)

// outcome is what a status is made of.
type outcome struct {
	orders  *orders
	applied applied
	// err is a failure of the round as a whole, such as of the journal.
	err error
	// stale is true when the manager's Lease is out of date, renewed then.
	stale   bool
	renewed time.Time
	// ended is true when the agent ends and has reverted everything.
	ended bool
	// held is the number of VMs of which something is changed, by the journal.
	held int
}

// planStatus says what became of a plan. previous is the status so far.
func planStatus(plan *v1alpha1.NodePlan, previous *v1alpha1.NodePlanStatus, o outcome, now time.Time) v1alpha1.NodePlanStatus {
	status := v1alpha1.NodePlanStatus{ObservedGeneration: plan.Generation}
	if plan.Spec.Apply && !o.stale && !o.ended {
		for i := range plan.Spec.VMs {
			status.VMs = append(status.VMs, vmApplied(&plan.Spec.VMs[i], o.orders, &o.applied)...)
		}
		o.orders.keepTrialStatus(status.VMs, previous, plan.Generation)
	}
	inForce := map[types.UID]bool{}
	for i := range status.VMs {
		if status.VMs[i].State == v1alpha1.LeverInForce {
			inForce[status.VMs[i].PodUID] = true
		}
	}
	status.VMsInForce = int32(len(inForce))
	if len(status.VMs) == 0 {
		// Nothing is wanted: what is left could not be reverted.
		status.VMsInForce = int32(o.held)
	}
	condition := appliedCondition(plan, o, status.VMs)
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
	case len(vms) == 0 && o.held > 0:
		return no(v1alpha1.ReasonApplyFailed, fmt.Sprintf("%d VMs are not reverted: tried again each round; %s", o.held, o.firstFailure()))
	case o.ended:
		return no(reasonAgentEnded, "the node's agent ended and reverted everything: the next one applies the plan again")
	case o.stale && o.renewed.IsZero():
		return no(reasonManagerStale, "the manager's Lease was never seen: everything was reverted; start the manager")
	case o.stale:
		return no(reasonManagerStale, fmt.Sprintf("the manager renewed its Lease last at %s: everything was reverted; start the manager",
			o.renewed.UTC().Format(time.RFC3339)))
	case !plan.Spec.Apply && plan.Spec.Mode == v1alpha1.ModeRecommend:
		return no(v1alpha1.ReasonAwaitingApproval, "the plan is a recommendation: nothing is changed")
	case !plan.Spec.Apply:
		return no(reasonNotApplied, "the plan is not to be applied: nothing is changed")
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

// firstFailure says why a lever of some VM failed.
func (o *outcome) firstFailure() string {
	first := "the agent's log says why"
	var of vmLever
	for key, r := range o.applied.results {
		if r.Outcome == actuate.Failed && (of == vmLever{} || key.podUID < of.podUID || key.podUID == of.podUID && key.lever < of.lever) {
			of, first = key, fmt.Sprintf("%s of %s/%s: %s", key.lever, r.Namespace, r.Name, r.Message)
		}
	}
	return first
}

// vmApplied says what became of each lever that the plan has for a VM, in the order of their
// names.
func vmApplied(vm *v1alpha1.VMPlan, o *orders, done *applied) []v1alpha1.VMApplied {
	uid := string(vm.PodUID)
	var entries []v1alpha1.VMApplied
	for _, planned := range []struct {
		lever v1alpha1.Lever
		is    bool
	}{
		{v1alpha1.LeverAffinity, vm.Affinity != nil},
		{v1alpha1.LeverBuffering, vm.Buffering != nil},
		{v1alpha1.LeverShaping, vm.Shaping != nil},
		{v1alpha1.LeverSlice, vm.SliceMicroseconds != nil},
	} {
		if !planned.is {
			continue
		}
		key := vmLever{uid, planned.lever}
		result, known := done.results[key]
		if !known {
			result = &actuate.Result{}
		}
		one := v1alpha1.VMApplied{VMReference: vm.VMReference, LeverReason: v1alpha1.LeverReason{Lever: planned.lever}}
		one.State, one.Reason, one.Message = leverState(planned.lever, result, known)
		if result.Outcome == actuate.Undone && o.waits(uid, planned.lever) && !o.isSwitchedOff(planned.lever) {
			one.State, one.Reason = v1alpha1.LeverPending, reasonAgentStarted
			one.Message = fmt.Sprintf("the node's agent has just started: levers begin to act on VMs at %s", o.begins.UTC().Format(time.RFC3339))
		}
		if why, refused := o.refused[key]; refused {
			one.State, one.Reason, one.Message = v1alpha1.LeverFailed, reasonBadPlan, why
		}
		// A lever that could not be reverted stays Failed.
		if why, tripped := o.tripped[key]; tripped && result.Outcome != actuate.Failed {
			one.State, one.Reason, one.Message = v1alpha1.LeverBlocked, v1alpha1.ReasonGuardTripped, why
		}
		one.Message = publish.CutMessage(one.Message)
		addReadBack(&one, uid, done)
		entries = append(entries, one)
	}
	return entries
}

// addReadBack adds what was read back of a lever.
func addReadBack(one *v1alpha1.VMApplied, podUID string, done *applied) {
	switch {
	case one.Lever == v1alpha1.LeverAffinity && one.State != v1alpha1.LeverBlocked:
		one.VCPUs = done.vcpus[podUID]
	case one.State != v1alpha1.LeverInForce:
	case one.Lever == v1alpha1.LeverBuffering:
		if back, known := done.buffering[podUID]; known {
			one.Buffering = &back
		}
	}
}

// leverState says what became of one lever of a VM.
func leverState(lever v1alpha1.Lever, r *actuate.Result, known bool) (state v1alpha1.LeverState, reason, message string) {
	if !known {
		return v1alpha1.LeverPending, v1alpha1.ReasonNotRunning, messageUnknown
	}
	switch r.Outcome {
	case actuate.Applied:
		return v1alpha1.LeverInForce, v1alpha1.ReasonApplied, ""
	case actuate.Undone:
		return v1alpha1.LeverIdle, v1alpha1.ReasonNothingToDo, "the plan changes nothing of the VM by this lever"
	case actuate.Gone:
		return v1alpha1.LeverIdle, v1alpha1.ReasonVMGone, r.Message
	case actuate.Incomplete:
		return v1alpha1.LeverPending, v1alpha1.ReasonNotRunning, r.Message
	case actuate.Dedicated:
		return v1alpha1.LeverBlocked, v1alpha1.ReasonDedicatedCPUs, "KubeVirt pins the VM itself"
	case actuate.NoAllowedCore:
		return v1alpha1.LeverFailed, v1alpha1.ReasonNoAllowedCore, r.Message
	case actuate.Foreign:
		return v1alpha1.LeverBlocked, v1alpha1.ReasonForeignQueue, r.Message
	case actuate.Contested:
		return v1alpha1.LeverBlocked, v1alpha1.ReasonContested, r.Message
	case actuate.NoDevice, actuate.Unsupported:
		return v1alpha1.LeverBlocked, unsupportedReason(lever, r.Outcome), r.Message
	default:
		return v1alpha1.LeverFailed, v1alpha1.ReasonApplyFailed, r.Message
	}
}

func unsupportedReason(lever v1alpha1.Lever, outcome actuate.Outcome) string {
	switch {
	case lever == v1alpha1.LeverShaping:
		return v1alpha1.ReasonShapingUnsupported
	case lever == v1alpha1.LeverBuffering && outcome == actuate.NoDevice:
		return v1alpha1.ReasonNoTap
	case lever == v1alpha1.LeverBuffering:
		return v1alpha1.ReasonBufferingUnsupported
	default:
		return v1alpha1.ReasonSlicesUnsupported
	}
}

// keepTrialStatus makes the entries of levers that are on a schedule the same whether the
// lever is on or off now: what was read back when it was on last. With hundreds of nodes, each
// switch would else be hundreds of writes; which slot it is shows in the rates.
func (o *orders) keepTrialStatus(entries []v1alpha1.VMApplied, previous *v1alpha1.NodePlanStatus, generation int64) {
	if len(o.switched) == 0 {
		return
	}
	before := map[vmLever]*v1alpha1.VMApplied{}
	for i := range previous.VMs {
		one := &previous.VMs[i]
		before[vmLever{string(one.PodUID), one.Lever}] = one
	}
	for i := range entries {
		one := &entries[i]
		lever, is := o.switched[one.Lever]
		if !is {
			continue
		}
		was := before[vmLever{string(one.PodUID), one.Lever}]
		stands := was != nil && previous.ObservedGeneration == generation
		wasInForce := was != nil && was.State == v1alpha1.LeverInForce
		switch {
		case !lever.on && isOff(one):
			if wasInForce || stands && !endsWhileOff(was) {
				*one = *was.DeepCopy()
			} else {
				why := v1alpha1.LeverReason{Lever: one.Lever, Reason: reasonSwitchedOff, Message: trialMessage + ": it is off, and has not been in force since"}
				*one = v1alpha1.VMApplied{VMReference: one.VMReference, LeverReason: why, State: v1alpha1.LeverIdle}
			}
		case lever.on && !lever.steady && one.State == v1alpha1.LeverInForce && stands && wasInForce:
			*one = *was.DeepCopy()
		}
		if one.State == v1alpha1.LeverInForce {
			one.Message = trialMessage
		}
	}
}

// endsWhileOff reports whether an entry says what may end while the lever is off.
func endsWhileOff(one *v1alpha1.VMApplied) bool {
	return one.Reason == v1alpha1.ReasonGuardTripped || one.Reason == reasonAgentStarted || one.Message == messageUnknown
}

// isOff reports whether an entry says no more than that nothing is ordered.
func isOff(one *v1alpha1.VMApplied) bool {
	return one.State == v1alpha1.LeverInForce || one.State == v1alpha1.LeverIdle && one.Reason == v1alpha1.ReasonNothingToDo
}
