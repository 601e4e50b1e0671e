// Package leverstate tells what became of a lever for a VM, from the plan of its node and
// what the node's agent said of it. Statuses and the CLI tell the same.
package leverstate

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
)

// State is what became of a lever for one VM.
type State struct {
	State           v1alpha1.LeverState
	Reason, Message string
}

// Plan is a NodePlan that is asked about many of its VMs. Its index is
// made when it is first asked: a status that has VMs on few nodes asks few of a
// thousand plans. It is not safe for concurrent use.
type Plan struct {
	*v1alpha1.NodePlan
	planned map[types.UID]*v1alpha1.VMPlan
	// applied is what the agent said.
	applied map[appliedKey]*v1alpha1.VMApplied
}

// appliedKey is a lever of the VM of a launcher pod.
type appliedKey struct {
	podUID types.UID
	lever  v1alpha1.Lever
}

// PlannedFor returns what is planned for the VM of a launcher pod, or nil.
func (p *Plan) PlannedFor(podUID types.UID) *v1alpha1.VMPlan {
	p.index()
	return p.planned[podUID]
}

// AppliedTo returns what the agent said of a lever of the VM of a launcher pod, or nil.
func (p *Plan) AppliedTo(podUID types.UID, lever v1alpha1.Lever) *v1alpha1.VMApplied {
	p.index()
	return p.applied[appliedKey{podUID, lever}]
}

func (p *Plan) index() {
	if p.planned != nil {
		return
	}
	p.planned = make(map[types.UID]*v1alpha1.VMPlan, len(p.Spec.VMs))
	for i := range p.Spec.VMs {
		p.planned[p.Spec.VMs[i].PodUID] = &p.Spec.VMs[i]
	}
	p.applied = make(map[appliedKey]*v1alpha1.VMApplied, len(p.Status.VMs))
	for i := range p.Status.VMs {
		applied := &p.Status.VMs[i]
		p.applied[appliedKey{applied.PodUID, applied.Lever}] = applied
	}
}

// IsApplied reports whether the node's agent has applied all of the plan as it is now.
func IsApplied(plan *v1alpha1.NodePlan) bool {
	return plan.Status.ObservedGeneration == plan.Generation && meta.IsStatusConditionTrue(plan.Status.Conditions, v1alpha1.ConditionApplied)
}

// Levers are those that plans of nodes hold, in the order in which they are reported.
func Levers() []v1alpha1.Lever {
	return []v1alpha1.Lever{v1alpha1.LeverAffinity, v1alpha1.LeverSlice, v1alpha1.LeverBuffering, v1alpha1.LeverShaping}
}

// Of returns what tells the state of a lever, or nil for a lever that
// no plan of a node holds.
func Of(lever v1alpha1.Lever) func(*Plan, types.UID) State {
	switch lever {
	case v1alpha1.LeverAffinity:
		return affinityState
	case v1alpha1.LeverSlice:
		return sliceState
	case v1alpha1.LeverShaping:
		return shapingState
	case v1alpha1.LeverBuffering:
		return bufferingState
	default:
		return nil
	}
}

// affinityState tells what became of lever Affinity for the VM of a launcher
// pod, see nodeLever.state.
func affinityState(plan *Plan, podUID types.UID) State {
	lever := nodeLever{v1alpha1.LeverAffinity, func(vm *v1alpha1.VMPlan) bool { return vm.Affinity != nil }}
	return lever.state(plan, podUID)
}

// sliceState tells the same of lever Slice.
func sliceState(plan *Plan, podUID types.UID) State {
	lever := nodeLever{v1alpha1.LeverSlice, func(vm *v1alpha1.VMPlan) bool { return vm.SliceMicroseconds != nil }}
	return lever.state(plan, podUID)
}

// shapingState tells the same of lever Shaping.
func shapingState(plan *Plan, podUID types.UID) State {
	lever := nodeLever{v1alpha1.LeverShaping, func(vm *v1alpha1.VMPlan) bool { return vm.Shaping != nil }}
	return lever.state(plan, podUID)
}

// bufferingState tells what became of lever Buffering for the VM of a launcher pod, see
// nodeLever.state. Of one that is in force the message says which halves are.
func bufferingState(plan *Plan, podUID types.UID) State {
	lever := nodeLever{v1alpha1.LeverBuffering, func(vm *v1alpha1.VMPlan) bool { return vm.Buffering != nil }}
	out := lever.state(plan, podUID)
	if out.State != v1alpha1.LeverInForce {
		return out
	}
	if back := plan.applied[appliedKey{podUID, v1alpha1.LeverBuffering}].Buffering; back != nil {
		out.Message = bufferingHalves(plan.planned[podUID].Buffering, back)
	}
	if planned := plan.planned[podUID].Buffering; planned.WindowMicroseconds == nil {
		if why := lever.withoutAction(plan.planned[podUID]); why.Message != "" {
			out.Message = why.Message
		}
	}
	return out
}

// bufferingHalves says for how long packets of both directions are held.
func bufferingHalves(planned *v1alpha1.BufferingAction, back *v1alpha1.BufferingReadBack) string {
	towards, from := "packets towards the VM are held only during floods", "those that it sends are not held: "
	switch {
	case back.WindowMicroseconds > 0:
		towards = fmt.Sprintf("packets towards the VM are held for up to %dus while they come fast", back.WindowMicroseconds)
	case planned.WindowMicroseconds != nil:
		towards += ", as its guest tools tolerate no delay"
	}
	switch back.Transmit {
	case v1alpha1.BufferingHalfInForce:
		from = "those that it sends are held by its guest tools"
	case v1alpha1.BufferingHalfGuestDeclines:
		from += "its guest tools tolerate no delay"
	default:
		from += "its guest tools were not heard of"
	}
	return towards + "; " + from
}

// nodeLever is a lever that NodePlans hold and agents apply.
type nodeLever struct {
	name v1alpha1.Lever
	// acts reports whether the plan has an action of the lever for a VM.
	acts func(*v1alpha1.VMPlan) bool
}

// state tells what became of the lever for the VM of a launcher pod, from the
// plan of its node and what the agent said of it. A nil plan means that the
// node has none.
func (l nodeLever) state(plan *Plan, podUID types.UID) State {
	if plan == nil {
		return State{v1alpha1.LeverBlocked, v1alpha1.ReasonNoPolicy, "no EnergyPolicy governs the VM's node: nothing is changed there"}
	}
	plan.index()
	vm := plan.planned[podUID]
	if vm == nil {
		return State{v1alpha1.LeverPending, v1alpha1.ReasonAwaitingPlan, "the plan of the VM's node does not name it yet"}
	}
	if !l.acts(vm) {
		return l.withoutAction(vm)
	}
	if state := withheld(&plan.Spec); state.State != "" {
		return state
	}
	if !plan.Spec.Apply {
		return State{v1alpha1.LeverRecommended, v1alpha1.ReasonAwaitingApproval, "approve revision " + plan.Spec.Revision + " in spec.approvals of EnergyPolicy " + plan.Spec.Policy}
	}
	// What an agent said of an older plan still holds while it says that the
	// lever is in force: plans change for other VMs too.
	applied := plan.applied[appliedKey{podUID, l.name}]
	if applied != nil && (plan.Status.ObservedGeneration == plan.Generation || applied.State == v1alpha1.LeverInForce) {
		return State{applied.State, applied.Reason, applied.Message}
	}
	return State{v1alpha1.LeverPending, v1alpha1.ReasonAwaitingAgent, "the agent of the VM's node has not acted on the plan yet"}
}

// withheld tells why a plan that was approved is not acted on. The state is empty when
// that is not so.
func withheld(spec *v1alpha1.NodePlanSpec) State {
	out := State{Reason: spec.Reason, Message: spec.Message}
	switch {
	case spec.Apply:
		return State{}
	case spec.Reason == v1alpha1.ReasonPaused || spec.Reason == v1alpha1.ReasonInvalidSchedule:
		out.State = v1alpha1.LeverBlocked
	case spec.Reason == v1alpha1.ReasonOutsideChangeWindow || spec.Reason == v1alpha1.ReasonInFreeze || spec.Reason == v1alpha1.ReasonChangeBudgetNodes:
		out.State = v1alpha1.LeverPending
	default:
		return State{}
	}
	return out
}

// withoutAction reads the state from the reason that the plan gives.
func (l nodeLever) withoutAction(vm *v1alpha1.VMPlan) State {
	out := State{State: v1alpha1.LeverBlocked, Reason: v1alpha1.ReasonNothingToDo}
	for _, reason := range vm.Reasons {
		if reason.Lever == l.name {
			out.Reason, out.Message = reason.Reason, reason.Message
		}
	}
	switch out.Reason {
	case v1alpha1.ReasonNothingToDo, v1alpha1.ReasonCoreWouldBeHot, v1alpha1.ReasonNoSaving, v1alpha1.ReasonNothingToSeparate,
		v1alpha1.ReasonFewPackets, v1alpha1.ReasonHurts, v1alpha1.ReasonRejectedByTrial, v1alpha1.ReasonWouldWait,
		v1alpha1.ReasonSiblingsTaken, v1alpha1.ReasonNoOtherPool, v1alpha1.ReasonNothingToShape, v1alpha1.ReasonSendsLittle, v1alpha1.ReasonNoOtherSender, v1alpha1.ReasonNoRoom:
		out.State = v1alpha1.LeverIdle
	case v1alpha1.ReasonAwaitingApproval, v1alpha1.ReasonNotRunning, v1alpha1.ReasonAwaitingMeter, v1alpha1.ReasonLearning,
		v1alpha1.ReasonOutsideChangeWindow, v1alpha1.ReasonInFreeze, v1alpha1.ReasonChangeBudgetNodes,
		v1alpha1.ReasonAwaitingTrial, v1alpha1.ReasonTrialUndecided, v1alpha1.ReasonAwaitingProof:
		out.State = v1alpha1.LeverPending
	}
	return out
}
