package affinity

import (
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// Potential predicts what binding could save: Before is the dynamic power with no thread
// bound, After with all placed anew. What is bound now does not matter: who is bound is
// taken to use what it would unbound.
func Potential(node Node, vms []VM) Placement {
	n := newNode(node)
	now, free := make([]VM, len(vms)), make([]VM, len(vms))
	for i := range vms {
		now[i], free[i] = vms[i], n.unbound(vms[i])
		if n.boundAs(vms[i].Rates) == floating {
			now[i].CurrentThreads = model.ThreadCPUs{}
		}
	}
	s := newStateBeside(n, node.CPUs, free, n.unmanaged(now))
	s.bindCurrent()
	before := s.watts()
	s.mend()
	s.admit()
	s.improve(false)
	return Placement{Decisions: s.decisions(), Before: before, After: s.watts()}
}

// unbound is a VM as it would be if it ran anywhere. How its vCPUs are bound is read from
// their threads: a plan says what should be, and not in the off blocks of a trial.
func (n *node) unbound(vm VM) VM {
	bound := n.boundAs(vm.Rates)
	remains := units.Cores(n.prices.remains(bound))
	rates := *vm.Rates
	rates.VCPUs = append([]model.VCPURates(nil), rates.VCPUs...)
	threads := []*model.ThreadRates{&rates.Emulator, &rates.IOThreads, &rates.Vhost, &rates.Other}
	for i := range rates.VCPUs {
		rates.VCPUs[i].CPUs = rates.AllowedCPUs
		threads = append(threads, &rates.VCPUs[i].ThreadRates)
	}
	for _, t := range threads {
		t.RunCores /= remains
		t.SwitchesPerSecond /= units.PerSecond(remains)
	}
	vm.Rates, vm.Current, vm.CurrentThreads, vm.Wary, vm.Stays = &rates, nil, model.ThreadCPUs{}, false, false
	return vm
}

// boundAs tells how a VM's vCPUs are bound.
func (n *node) boundAs(rates *model.VMRates) mode {
	if len(rates.VCPUs) == 0 {
		return floating
	}
	bound := pinned
	for i := range rates.VCPUs {
		cpus := rates.VCPUs[i].CPUs
		if cpus.IsEmpty() || rates.AllowedCPUs.IsSubsetOf(cpus) {
			return floating
		}
		if n.coreOf(cpus) < 0 {
			bound = separated
		}
	}
	return bound
}
