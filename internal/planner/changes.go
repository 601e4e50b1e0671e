package planner

import (
	"slices"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/planner/buffering"
)

// Changes reports whether a plan of the node does something for a VM that is not in force. What
// it undoes does not count.
func Changes(node model.Node, plan model.Plan) bool {
	return plan.Apply && slices.ContainsFunc(plan.VMs, func(vm model.VMPlan) bool {
		var was model.VMPlan
		if inForceNow(&node) {
			was, _ = node.Current.VM(vm.PodUID)
		}
		return adds(&vm, &was)
	})
}

// TakesBack reports whether a plan ends something that is in force on the node.
func TakesBack(node model.Node, plan model.Plan) bool {
	if !inForceNow(&node) {
		return false
	}
	for i := range node.Current.VMs {
		var is model.VMPlan
		if plan.Apply {
			is, _ = plan.VM(node.Current.VMs[i].PodUID)
		}
		if adds(&node.Current.VMs[i], &is) {
			return true
		}
	}
	return false
}

// adds returns whether a plan does something for a VM that another does not.
func adds(vm, was *model.VMPlan) bool {
	return len(vm.Pins) > 0 && !samePins(vm.Pins, was.Pins) || !bindsLess(vm.Threads, was.Threads) ||
		vm.Slice > 0 && vm.Slice != was.Slice || !shapesLess(vm.Shaping, was.Shaping) ||
		!buffering.HoldsLess(vm.Buffering, was.Buffering)
}

// actsBy returns whether a plan does something for a VM by a lever.
func actsBy(vm *model.VMPlan, lever v1alpha1.Lever) bool {
	switch lever {
	case v1alpha1.LeverAffinity:
		return len(vm.Pins) > 0
	case v1alpha1.LeverSlice:
		return vm.Slice > 0
	case v1alpha1.LeverShaping:
		return !vm.Shaping.IsZero()
	case v1alpha1.LeverBuffering:
		return !vm.Buffering.IsZero()
	}
	return false
}

// unpinHot removes the pins of VMs in mode Enforce whose cores became too hot while budgets hold
// the plan: that may be a time of other loads, and longer than a core may be hot.
func (w *work) unpinHot() {
	switch w.permission.Reason {
	case v1alpha1.ReasonOutsideChangeWindow, v1alpha1.ReasonInFreeze, v1alpha1.ReasonInvalidSchedule, v1alpha1.ReasonChangeBudgetNodes:
	default:
		return
	}
	if w.permission.Recommend {
		return
	}
	w.fixed = true
	w.placeVMs()
	if !w.hasPins() {
		w.Pools = model.PoolCores{}
	}
}

// repeatVerdicts explains levers that would not have helped a VM when the plan was made last in the
// same words: what holds the plan is not what keeps these levers away, and later plans depend on
// why a VM was left alone.
func (w *work) repeatVerdicts() {
	current := w.node.Current
	if !w.permission.Hold || current == nil || current.Policy != w.Policy {
		return
	}
	for i := range w.VMs {
		was, known := current.VM(w.VMs[i].PodUID)
		if !known {
			continue
		}
		for _, why := range w.VMs[i].Reasons {
			said := was.Reason(why.Lever)
			idle := w.isAwaiting() && said.Reason != "" && !actsBy(&was, why.Lever)
			if why.Reason == w.permission.Reason && (idle || isVerdict(said.Reason)) {
				w.VMs[i].Explain(said)
			}
		}
	}
}

// isVerdict returns whether a reason says that a lever would not help.
func isVerdict(reason string) bool {
	switch reason {
	case v1alpha1.ReasonNothingToDo, v1alpha1.ReasonCoreWouldBeHot, v1alpha1.ReasonWouldWait, v1alpha1.ReasonNoSaving,
		v1alpha1.ReasonNothingToSeparate, v1alpha1.ReasonSiblingsTaken, v1alpha1.ReasonNoOtherPool, v1alpha1.ReasonSendsLittle,
		v1alpha1.ReasonNoOtherSender, v1alpha1.ReasonNoRoom, v1alpha1.ReasonFewPackets, v1alpha1.ReasonHurts:
		return true
	}
	return false
}
