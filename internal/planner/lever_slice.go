package planner

import (
	"slices"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/planner/pools"
	"github.com/joulevirt/joulevirt/internal/units"
)

// keepSlice carries a VM's slice over, or says why there is none.
func (w *work) keepSlice(i int, otherwise string) {
	vm := &w.VMs[i]
	vm.Slice = w.kept[i].slice
	w.explainSlice(i, otherwise)
}

// explainSlice says what the lever does for a VM, or why it does nothing.
func (w *work) explainSlice(i int, otherwise string) {
	vm := &w.VMs[i]
	switch {
	case vm.Slice > 0 && vm.Slice <= pools.NetworkSlice:
		otherwise = v1alpha1.ReasonShortSlice
	case vm.Slice > 0:
		otherwise = v1alpha1.ReasonLongSlice
	}
	vm.Explain(because(v1alpha1.LeverSlice, otherwise))
}

// setSlices gives the threads of each VM the slice of its pool, where VMs of both pools
// run: on cores that a network VM may run on, everybody has its short one. A VM of which the agent
// saw no threads stays as it is, and counts.
func (w *work) setSlices() {
	has := func(pool v1alpha1.Pool) bool {
		return slices.ContainsFunc(w.slicing, func(i int) bool { return w.VMs[i].Pool == pool })
	}
	both := has(v1alpha1.PoolNetwork) && has(v1alpha1.PoolCompute)
	var network units.CPUSet
	for _, i := range w.slicing {
		if w.VMs[i].Pool == v1alpha1.PoolNetwork {
			network = network.Union(w.cpusOf(i))
		}
	}
	for _, i := range w.slicing {
		vm := &w.VMs[i]
		rates := w.node.Rates.VM(vm.PodUID)
		if rates == nil || len(rates.VCPUs) == 0 {
			w.keepSlice(i, v1alpha1.ReasonNotRunning)
			continue
		}
		if both {
			vm.Slice = pools.SliceOf(vm.Pool, !w.cpusOf(i).Intersection(network).IsEmpty())
		}
		w.explainSlice(i, v1alpha1.ReasonNoOtherPool)
	}
}

// cpusOf are the CPUs that the vCPUs of a VM may run on by the plan.
func (w *work) cpusOf(i int) units.CPUSet {
	var pinned units.CPUSet
	for _, pin := range w.VMs[i].Pins {
		pinned = pinned.Union(pin.CPUs)
	}
	if !pinned.IsEmpty() {
		return pinned
	}
	if rates := w.node.Rates.VM(w.vms[i].PodUID); rates != nil && !rates.AllowedCPUs.IsEmpty() {
		return rates.AllowedCPUs
	}
	return w.node.Topology.Online()
}
