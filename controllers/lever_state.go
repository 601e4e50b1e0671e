package controllers

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
)

// leverState is what became of a lever for one VM.
type leverState struct {
	State           v1alpha1.LeverState
	Reason, Message string
}

// affinityState tells what became of the affinity lever for the VM of a
// launcher pod, from the plan of its node and what the agent said of it. A nil
// plan means that the node has none.
func affinityState(plan *v1alpha1.NodePlan, podUID types.UID) leverState {
	if plan == nil {
		return leverState{v1alpha1.LeverBlocked, v1alpha1.ReasonNoPolicy, "no EnergyPolicy governs the VM's node: nothing is changed there"}
	}
	vm := findVMPlan(plan, podUID)
	if vm == nil {
		return leverState{v1alpha1.LeverPending, v1alpha1.ReasonAwaitingPlan, "the plan of the VM's node does not name it yet"}
	}
	if vm.Affinity == nil {
		return withoutPins(vm)
	}
	if !plan.Spec.Apply {
		return leverState{v1alpha1.LeverRecommended, v1alpha1.ReasonAwaitingApproval, "approve revision " + plan.Spec.Revision + " in spec.approvals of EnergyPolicy " + plan.Spec.Policy}
	}
	for i := range plan.Status.VMs {
		applied := &plan.Status.VMs[i]
		if applied.PodUID != podUID || applied.Lever != v1alpha1.LeverAffinity {
			continue
		}
		// What an agent said of an older plan still holds while it says that the
		// lever is in force: plans change for other VMs too.
		if plan.Status.ObservedGeneration == plan.Generation || applied.State == v1alpha1.LeverInForce {
			return leverState{applied.State, applied.Reason, applied.Message}
		}
	}
	return leverState{v1alpha1.LeverPending, v1alpha1.ReasonAwaitingAgent, "the agent of the VM's node has not acted on the plan yet"}
}

func findVMPlan(plan *v1alpha1.NodePlan, podUID types.UID) *v1alpha1.VMPlan {
	for i := range plan.Spec.VMs {
		if plan.Spec.VMs[i].PodUID == podUID {
			return &plan.Spec.VMs[i]
		}
	}
	return nil
}

// withoutPins reads the state from the reason that the plan gives.
func withoutPins(vm *v1alpha1.VMPlan) leverState {
	out := leverState{State: v1alpha1.LeverBlocked, Reason: v1alpha1.ReasonNothingToDo}
	for _, reason := range vm.Reasons {
		if reason.Lever == v1alpha1.LeverAffinity {
			out.Reason, out.Message = reason.Reason, reason.Message
		}
	}
	switch out.Reason {
	case v1alpha1.ReasonNothingToDo, v1alpha1.ReasonCoreWouldBeHot:
		out.State = v1alpha1.LeverIdle
	case v1alpha1.ReasonAwaitingApproval, v1alpha1.ReasonNotRunning:
		out.State = v1alpha1.LeverPending
	}
	return out
}
