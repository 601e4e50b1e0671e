package planner

import (
	"slices"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/planner/affinity"
)

// deniesAffinity says why the lever must leave a VM alone, or is empty.
func (w *work) deniesAffinity(vm model.VM) model.Reason {
	switch {
	case !w.node.Policy.Allows(model.LeverAffinity):
		return model.ReasonLeverNotAllowed
	case !vm.NamespaceSelected:
		return model.ReasonNamespaceNotSelected
	case vm.Dedicated || dedicatedOnNode(w.node.Rates, vm.PodUID):
		return model.ReasonDedicatedCPUs
	case vm.Affinity == model.AffinityShared:
		return model.ReasonSharedPreferred
	}
	return ""
}

func dedicatedOnNode(rates *model.NodeRates, podUID string) bool {
	found := findRates(rates, podUID)
	return found != nil && found.Dedicated
}

func findRates(rates *model.NodeRates, podUID string) *model.VMRates {
	if rates == nil {
		return nil
	}
	for i := range rates.VMs {
		if rates.VMs[i].PodUID == podUID {
			return &rates.VMs[i]
		}
	}
	return nil
}

// pinsAllowed tells whether a VM's pins are inside what the policy, the kernel
// and the container leave to it, as far as these are known now.
func pinsAllowed(node model.Node, vm model.VMPlan) bool {
	excluded := node.Policy.Reserved.Union(node.Topology.Isolated)
	rates := findRates(node.Rates, vm.PodUID)
	return !slices.ContainsFunc(vm.Pins, func(pin model.Pin) bool {
		outside := rates != nil && !pin.CPUs.IsSubsetOf(rates.AllowedCPUs)
		return outside || !pin.CPUs.Intersection(excluded).IsEmpty()
	})
}

// keepPins carries a VM's pins over, or says why there are none.
func (w *work) keepPins(i int, otherwise model.Reason) {
	vm := &w.VMs[i]
	if vm.Pins = w.kept[i].pins; len(vm.Pins) > 0 {
		otherwise = model.ReasonPinned
	}
	vm.Explain(because(model.LeverAffinity, otherwise))
}

// place chooses the cores of all VMs that the lever may act on.
func (w *work) place() {
	var vms []affinity.VM
	var placed []int
	for _, i := range w.affinity {
		rates := findRates(w.node.Rates, w.VMs[i].PodUID)
		if rates != nil && len(rates.VCPUs) > 0 {
			vms, placed = append(vms, affinity.VM{Rates: rates, Current: w.kept[i].pins}), append(placed, i)
			continue
		}
		// The agent saw no threads in its last round, which a restart of the
		// agent can cause: pins in force stay until the pod goes.
		w.keepPins(i, model.ReasonNotRunning)
	}
	decisions := affinity.Place(affinity.Node{
		Topology:           w.node.Topology,
		Excluded:           w.node.Policy.Reserved.Union(w.node.Topology.Isolated),
		CPUs:               w.node.Rates.CPUs,
		MaxCoreUtilization: w.node.Policy.MaxCoreUtilization,
	}, vms).Decisions
	for at, i := range placed {
		w.VMs[i].Pins = decisions[at].Pins
		w.VMs[i].Explain(because(model.LeverAffinity, decisions[at].Reason))
	}
}
