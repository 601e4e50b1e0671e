package planner

import (
	"slices"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/planner/pools"
)

// deniesSlice says why the lever must leave a VM alone, or is empty. What the profile
// prefers of affinity does not matter to it: a slice takes no CPU from anybody.
func (w *work) deniesSlice(vm model.VM) model.Reason {
	switch {
	case !w.node.Policy.Allows(model.LeverSlice):
		return model.ReasonLeverNotAllowed
	case !vm.NamespaceSelected:
		return model.ReasonNamespaceNotSelected
	case w.optedOut(&vm, model.LeverSlice):
		return model.ReasonOptedOut
	case w.withdrawal(vm.PodUID, model.LeverSlice) != nil:
		return model.ReasonGuardWithdrawn
	case vm.Dedicated || dedicatedOnNode(w.node.Rates, vm.PodUID):
		return model.ReasonDedicatedCPUs
	case w.node.Reported && !w.node.Slices:
		return model.ReasonSlicesUnsupported
	}
	return ""
}

// tellsSlice tells whether the plan has a word about the lever: when it is allowed.
func (w *work) tellsSlice() bool { return w.node.Policy.Allows(model.LeverSlice) }

// keepSlice carries a VM's slice over, or says why there is none.
func (w *work) keepSlice(i int, otherwise model.Reason) {
	vm := &w.VMs[i]
	vm.Slice = w.kept[i].slice
	w.explainSlice(i, otherwise)
}

// explainSlice says what the lever does for a VM, or why it does nothing.
func (w *work) explainSlice(i int, otherwise model.Reason) {
	vm := &w.VMs[i]
	switch {
	case vm.Slice > 0 && vm.Slice <= pools.NetworkSlice:
		otherwise = model.ReasonShortSlice
	case vm.Slice > 0:
		otherwise = model.ReasonLongSlice
	}
	vm.Explain(because(model.LeverSlice, otherwise))
}

// slice gives the threads of each VM the slice of its pool, where VMs of both pools
// run. A VM of which the agent saw no threads stays as it is, and counts.
func (w *work) slice() {
	has := func(pool model.Pool) bool {
		return slices.ContainsFunc(w.slicing, func(i int) bool { return w.VMs[i].Pool == pool })
	}
	both := has(model.PoolNetwork) && has(model.PoolCompute)
	if w.bounded() {
		both = slices.ContainsFunc(w.full.VMs, func(vm model.VMPlan) bool { return vm.Slice > 0 })
	}
	for _, i := range w.slicing {
		vm := &w.VMs[i]
		if w.isLeft(i) {
			w.keepSlice(i, w.waits)
			continue
		}
		rates := findRates(w.node.Rates, vm.PodUID)
		if rates == nil || len(rates.VCPUs) == 0 {
			w.keepSlice(i, model.ReasonNotRunning)
			continue
		}
		if both {
			vm.Slice = pools.SliceOf(vm.Pool)
		}
		w.explainSlice(i, model.ReasonNoOtherPool)
	}
}
