package planner

import (
	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/planner/turns"
	"github.com/joulevirt/joulevirt/internal/units"
)

// allowedShaping leaves of a shaping what the profile still allows: a bound that
// is not tighter than its ceiling, and turns that keep its maxDelay.
func allowedShaping(vm model.VM, was model.Shaping) model.Shaping {
	if vm.Ceiling == 0 || was.Ceiling < vm.Ceiling {
		was.Ceiling = 0
	}
	if was.Turn != nil && (!vm.Defers() || !turns.Allowed(*was.Turn, vm.MaxDelay)) {
		was.Turn = nil
	}
	return was
}

// shapesLess returns whether a shaping bounds nothing that another does not.
func shapesLess(is, was model.Shaping) bool {
	if is.Ceiling > 0 && is.Ceiling != was.Ceiling {
		return false
	}
	return is.Turn == nil || was.Turn != nil && *is.Turn == *was.Turn
}

// keepShaping carries a VM's shaping over. otherwise says why nothing else is
// done.
func (w *work) keepShaping(i int, otherwise string) {
	w.VMs[i].Shaping = w.kept[i].shaping
	w.explainShaping(i, otherwise)
}

// explainShaping says what the lever does for a VM. noTurn says why there is no
// turn, where there is none.
func (w *work) explainShaping(i int, noTurn string) {
	vm := &w.VMs[i]
	why := because(v1alpha1.LeverShaping, noTurn)
	switch {
	case vm.Shaping.Turn != nil:
		why = because(v1alpha1.LeverShaping, v1alpha1.ReasonTakesTurns)
	case vm.Shaping.Ceiling > 0:
		why = because(v1alpha1.LeverShaping, v1alpha1.ReasonCeiling)
		if w.vms[i].Defers() {
			why.Message = "takes no turns: " + noTurn
		}
	}
	vm.Explain(why)
}

// shapeTraffic bounds and holds what VMs send. VMs of which the agent says nothing stay
// as they are, and the others take their turns around theirs.
func (w *work) shapeTraffic() {
	var deferring []turns.VM
	var positions []int
	for _, i := range w.shaping {
		vm, rates := &w.vms[i], w.node.Rates.VM(w.VMs[i].PodUID)
		w.keepShaping(i, v1alpha1.ReasonNotRunning)
		if rates == nil && w.kept[i].shaping.Turn == nil {
			continue
		}
		if rates != nil {
			w.VMs[i].Shaping.Ceiling = vm.Ceiling
			w.explainShaping(i, v1alpha1.ReasonNothingToShape)
		}
		if vm.Defers() {
			positions = append(positions, i)
			deferring = append(deferring, turns.VM{
				PodUID: vm.PodUID, Sent: sent(rates), Ceiling: vm.Ceiling,
				MaxDelay: vm.MaxDelay, Current: w.kept[i].shaping.Turn,
			})
		}
	}
	for at, decision := range turns.Plan(deferring) {
		i := positions[at]
		w.VMs[i].Shaping.Turn = decision.Turn
		w.explainShaping(i, decision.Reason)
	}
}

// sent is what a VM sends on average. Nil: not known.
func sent(rates *model.VMRates) *units.BitsPerSecond {
	if rates == nil || rates.Sent == nil {
		return nil
	}
	return &rates.Sent.BitsPerSecond
}
