package planner

import (
	"slices"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/planner/affinity"
	"github.com/joulevirt/joulevirt/internal/units"
)

// excluded returns the CPUs that no VM is bound to.
func excluded(node model.Node) units.CPUSet {
	return node.Policy.Reserved.Union(node.Topology.Taken)
}

// allowedBindings leaves of the CPUs that a VM's threads are bound to those that are
// inside what the policy, the node and the container leave to it, as far as these are
// known now: pins all or none, and nothing beside no pins.
func allowedBindings(node model.Node, vm model.VMPlan) ([]model.Pin, model.ThreadCPUs) {
	taken, rates := excluded(node), node.Rates.VM(vm.PodUID)
	allowed := func(cpus units.CPUSet) bool {
		inside := rates == nil || cpus.IsSubsetOf(rates.AllowedCPUs)
		return inside && cpus.Intersection(taken).IsEmpty()
	}
	if slices.ContainsFunc(vm.Pins, func(pin model.Pin) bool { return !allowed(pin.CPUs) }) || len(vm.Pins) == 0 {
		return nil, model.ThreadCPUs{}
	}
	threads := vm.Threads
	for _, cpus := range []*units.CPUSet{&threads.Emulator, &threads.IOThreads, &threads.Vhost} {
		if !allowed(*cpus) {
			*cpus = units.CPUSet{}
		}
	}
	return vm.Pins, threads
}

// bindsLess returns whether threads are bound to nothing that they were not bound to.
func bindsLess(is, was model.ThreadCPUs) bool {
	less := func(is, was units.CPUSet) bool { return is.IsEmpty() || is.Equal(was) }
	return less(is.Emulator, was.Emulator) && less(is.IOThreads, was.IOThreads) && less(is.Vhost, was.Vhost)
}

// keepPins carries a VM's pins over, or says why there are none.
func (w *work) keepPins(i int, otherwise string) {
	vm := &w.VMs[i]
	if vm.Pins = w.kept[i].pins; len(vm.Pins) > 0 {
		vm.Threads, otherwise = w.kept[i].threads, w.kept[i].binding
	}
	vm.Explain(because(v1alpha1.LeverAffinity, otherwise))
}

// wasUnbound reports whether a VM was left unbound for heat or because it is no saving, or kept
// on its pool's cores because there was no room for pins: it is bound only where it would be
// well with all of its vCPUs busy. VMs whose load comes in bursts would be bound between any
// two, and released in each.
func (w *work) wasUnbound(i int) bool {
	if w.node.Review {
		return false
	}
	kept := &w.kept[i]
	if len(kept.pins) > 0 {
		return kept.binding == v1alpha1.ReasonSeparated && !w.poolCPUs(w.VMs[i].Pool).IsEmpty()
	}
	// A VM whose owner wishes it bound was not left so by choice: that is a new wish.
	wished := w.vms[i].Affinity != v1alpha1.AffinityAuto
	return kept.unbound == v1alpha1.ReasonCoreWouldBeHot || (kept.unbound == v1alpha1.ReasonNoSaving && !wished)
}

// hasWaited reports whether the agent's guard released a VM because it waited where it was
// bound, as long as the agent remembers that: it forgets a trip each hour.
func (w *work) hasWaited(i int) bool {
	return slices.ContainsFunc(w.node.Rates.Trips, func(t model.Trip) bool {
		return t.PodUID == w.VMs[i].PodUID && t.Lever == v1alpha1.LeverAffinity && t.Symptom == model.SymptomRunDelay
	})
}

// placeVMs chooses the cores of all VMs that the lever may act on.
func (w *work) placeVMs() {
	var vms []affinity.VM
	var placed []int
	for _, i := range w.affinity {
		rates := w.node.Rates.VM(w.VMs[i].PodUID)
		if rates == nil || len(rates.VCPUs) == 0 {
			// The agent saw no threads in its last round, which a restart of the
			// agent can cause: pins in force stay until the pod goes.
			w.keepPins(i, v1alpha1.ReasonNotRunning)
			continue
		}
		placed, vms = append(placed, i), append(vms, w.affinityVM(i, rates))
	}
	placement := affinity.Place(w.affinityNode(), vms)
	for at, i := range placed {
		decision := placement.Decisions[at]
		if w.fixed {
			otherwise := w.permission.Reason
			if kept := &w.kept[i]; len(kept.pins) > 0 && len(decision.Pins) == 0 {
				kept.pins, kept.threads, otherwise = nil, model.ThreadCPUs{}, v1alpha1.ReasonCoreWouldBeHot
			}
			w.keepPins(i, otherwise)
			continue
		}
		w.VMs[i].Pins, w.VMs[i].Threads = decision.Pins, decision.Threads
		w.VMs[i].Explain(because(v1alpha1.LeverAffinity, w.reasonOf(i, decision.Reason)))
	}
}

// reasonOf returns why a VM is bound, or not: one that waited is unbound for that, and one that
// was left unbound still is for the same reason.
func (w *work) reasonOf(i int, reason string) string {
	unbound := reason == v1alpha1.ReasonNoSaving || reason == v1alpha1.ReasonCoreWouldBeHot
	switch {
	case unbound && w.hasWaited(i):
		return v1alpha1.ReasonWouldWait
	case reason == v1alpha1.ReasonNoSaving && w.wasUnbound(i):
		return w.kept[i].unbound
	default:
		return reason
	}
}

// affinityVM is a VM as affinity sees it.
func (w *work) affinityVM(i int, rates *model.VMRates) affinity.VM {
	return affinity.VM{
		Namespace: w.vms[i].Namespace, Rates: rates, Preference: w.vms[i].Affinity,
		Within: w.poolCPUs(w.VMs[i].Pool), Network: w.VMs[i].Pool == v1alpha1.PoolNetwork,
		Compute: w.VMs[i].Pool == v1alpha1.PoolCompute,
		Alone:   w.wasUnbound(i) || w.hasWaited(i), Fixed: w.fixed, MaxWait: w.vms[i].MaxSteal,
		Current: w.kept[i].pins, CurrentThreads: w.kept[i].threads, Separated: w.kept[i].binding == v1alpha1.ReasonSeparated,
	}
}

// affinityNode are the node as affinity sees it.
func (w *work) affinityNode() affinity.Node {
	return affinity.Node{
		Topology: w.node.Topology, Excluded: excluded(w.node), CPUs: w.node.Rates.CPUs,
		MaxCoreUtilization: w.node.Policy.MaxCoreUtilization, Sharing: w.node.Policy.Sharing, Costs: w.node.Costs,
		Settled: !w.node.Review, Slices: w.node.Slices && len(w.slicing) > 0,
	}
}
