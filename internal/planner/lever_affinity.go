package planner

import (
	"slices"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/planner/affinity"
	"github.com/joulevirt/joulevirt/internal/units"
)

// deniesAffinity says why the lever must leave a VM alone, or is empty.
func (w *work) deniesAffinity(vm model.VM) model.Reason {
	switch {
	case !w.node.Policy.Allows(model.LeverAffinity):
		return model.ReasonLeverNotAllowed
	case !vm.NamespaceSelected:
		return model.ReasonNamespaceNotSelected
	case w.optedOut(&vm, model.LeverAffinity):
		return model.ReasonOptedOut
	case w.withdrawal(vm.PodUID, model.LeverAffinity) != nil:
		return model.ReasonGuardWithdrawn
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

// excluded returns the CPUs that no VM is bound to.
func excluded(node model.Node) units.CPUSet {
	return node.Policy.Reserved.Union(node.Topology.Taken())
}

// allowedBindings leaves of the CPUs that a VM's threads are bound to those that are
// inside what the policy, the node and the container leave to it, as far as these are
// known now: pins all or none, and nothing beside no pins.
func allowedBindings(node model.Node, vm model.VMPlan) ([]model.Pin, model.ThreadCPUs) {
	taken, rates := excluded(node), findRates(node.Rates, vm.PodUID)
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

// bindsLess tells whether threads are bound to nothing that they were not bound to.
func bindsLess(is, was model.ThreadCPUs) bool {
	less := func(is, was units.CPUSet) bool { return is.IsEmpty() || is.Equal(was) }
	return less(is.Emulator, was.Emulator) && less(is.IOThreads, was.IOThreads) && less(is.Vhost, was.Vhost)
}

// keepPins carries a VM's pins over, or says why there are none.
func (w *work) keepPins(i int, otherwise model.Reason) {
	vm := &w.VMs[i]
	if vm.Pins = w.kept[i].pins; len(vm.Pins) > 0 {
		vm.Threads, otherwise = w.kept[i].threads, w.kept[i].binding
	}
	vm.Explain(because(model.LeverAffinity, otherwise))
}

// isWary tells whether a VM may be bound only where it would be well with all of its
// vCPUs busy. The plan in force is all that is remembered: that the VM is not bound, for
// heat or because it is no saving, and not what it did before. VMs whose load comes in
// bursts would be bound between any two, and let go of in each. One that is kept on its
// pool's cores because there is no room for pins is treated alike.
func (w *work) isWary(i int) bool {
	kept := &w.kept[i]
	// Whom an owner wishes bound was not left so by choice: that is a new wish.
	wished := w.vms[i].Affinity != model.AffinityAuto
	wary := kept.unbound == model.ReasonCoreWouldBeHot || (kept.unbound == model.ReasonNoSaving && !wished)
	if len(kept.pins) > 0 {
		wary = kept.binding == model.ReasonSeparated && !w.within(w.VMs[i].Pool).IsEmpty()
	}
	return wary && !w.node.Review
}

// place chooses the cores of all VMs that the lever may act on.
func (w *work) place() {
	var vms []affinity.VM
	var placed []int
	for _, i := range w.affinity {
		rates := findRates(w.node.Rates, w.VMs[i].PodUID)
		if w.isLeft(i) && len(w.kept[i].pins) == 0 {
			w.keepPins(i, w.waits)
			continue
		}
		if rates == nil || len(rates.VCPUs) == 0 {
			// The agent saw no threads in its last round, which a restart of the
			// agent can cause: pins in force stay until the pod goes.
			w.keepPins(i, model.ReasonNotRunning)
			continue
		}
		placed = append(placed, i)
		vms = append(vms, w.placed(i, rates))
	}
	placement := affinity.Place(w.cores(), vms)
	for at, i := range placed {
		decision := placement.Decisions[at]
		if w.isLeft(i) {
			if len(decision.Pins) == 0 {
				w.kept[i].pins, w.kept[i].threads = nil, model.ThreadCPUs{}
			}
			w.keepPins(i, model.ReasonCoreWouldBeHot)
			continue
		}
		if vms[at].Wary && decision.Reason == model.ReasonNoSaving {
			decision.Reason = w.kept[i].unbound // which it was left unbound for, and still is
		}
		w.VMs[i].Pins, w.VMs[i].Threads = decision.Pins, decision.Threads
		w.VMs[i].Explain(because(model.LeverAffinity, decision.Reason))
	}
}

// placed is a VM as affinity sees it.
func (w *work) placed(i int, rates *model.VMRates) affinity.VM {
	return affinity.VM{
		Namespace: w.vms[i].Namespace, Rates: rates, Preference: w.vms[i].Affinity,
		Within: w.within(w.VMs[i].Pool), Network: w.VMs[i].Pool == model.PoolNetwork,
		Wary: w.isWary(i), Stays: w.isLeft(i), Waited: hasWaited(w.node.Rates, rates.PodUID),
		MostWait: w.vms[i].MaxSteal,
		Current:  w.kept[i].pins, CurrentThreads: w.kept[i].threads,
	}
}

// hasWaited tells whether the agent's guard let go of a VM because it waited where it was
// bound, as long as the agent remembers that: it forgets a trip each hour.
func hasWaited(rates *model.NodeRates, podUID string) bool {
	return slices.ContainsFunc(rates.Trips, func(t model.Trip) bool {
		return t.PodUID == podUID && t.Lever == model.LeverAffinity && t.Symptom == model.SymptomRunDelay
	})
}

// cores are the node as affinity sees it.
func (w *work) cores() affinity.Node {
	return affinity.Node{
		Topology: w.node.Topology, Excluded: excluded(w.node), CPUs: w.node.Rates.CPUs,
		MaxCoreUtilization: w.node.Policy.MaxCoreUtilization, Sharing: w.node.Policy.Sharing, Costs: w.node.Costs,
		Settled: !w.node.Review,
	}
}
