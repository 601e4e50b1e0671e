// Package affinity decides on which CPUs the threads of VMs run, by the power that is
// predicted of it: each vCPU on exactly one physical core, all threads on a part of the
// cores, or anywhere. A mask never cuts a core in two, because a vCPU and a stranger on
// sibling threads slow each other down.
//
// VMs without pins are placed one after the other, the busiest first, each where it costs
// least; then each is placed once more, beside all others. On all but large nodes this starts
// several times, in other orders, and the best result stays. VMs with pins keep them unless a
// limit is broken or a change clearly pays. The tests compare the result with the best of all
// placements on small nodes.
package affinity

import (
	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// Node is what the placement needs to know of a node.
type Node struct {
	Topology model.Topology
	// Excluded CPUs take no pins, nor do their siblings.
	Excluded units.CPUSet
	// CPUs is the measured use of each logical CPU.
	CPUs []model.CPURates
	// MaxCoreUtilization is the predicted use per sibling CPU above which a core is hot:
	// from 0 to 1.
	MaxCoreUtilization units.Cores
	// Sharing says whose vCPUs may be bound to the siblings of one core.
	Sharing v1alpha1.SiblingSharing
	// Costs are what plans are weighed by.
	Costs model.PowerCosts
	// Settled nodes change pins in force by choice only where cores are crowded.
	Settled bool
	// Slices is true where the threads of Network VMs have short slices, and those of Compute
	// VMs long ones: the former go first.
	Slices bool
}

// VM is a VM whose threads are to be placed.
type VM struct {
	// Namespace of the VM: its tenant.
	Namespace string
	Rates     *model.VMRates
	// Preference of the VM's profile.
	Preference v1alpha1.AffinityPreference
	// Within are the CPUs of the VM's pool, to which it is confined whatever it prefers.
	// Empty: pools share their cores, and nothing confines the VM.
	Within units.CPUSet
	// Network VMs are placed near the node's network cards, where that costs nothing.
	Network bool
	// Compute VMs have long slices, on a node that has them.
	Compute bool
	// Alone VMs are bound only to cores with no more vCPUs than CPUs, and only where all of
	// their vCPUs could be busy.
	Alone bool
	// MaxWait is the share of a CPU that a vCPU may wait for one, by the VM's service level.
	// 0: the most that is planned for any VM.
	MaxWait units.Cores
	// Fixed VMs keep their pins, or lose them where a limit is broken; they get no others.
	Fixed bool
	// Current pins, which stay when too little is gained by changing them.
	Current []model.Pin
	// Separated is true of pins that keep all vCPUs on one part of the node. The part of a small
	// pool is a single core, to which a vCPU is not pinned.
	Separated bool
	// CurrentThreads are the CPUs of the other threads now.
	CurrentThreads model.ThreadCPUs
}

// Decision is what becomes of a VM: pins for all its vCPUs, or none and the reason.
type Decision struct {
	Pins    []model.Pin
	Threads model.ThreadCPUs
	Reason  string
}

// Placement is what becomes of a node's VMs, in the order given, and the dynamic power that
// is predicted of the node as it is and with it.
type Placement struct {
	Decisions     []Decision
	Before, After units.Watts
}

// Place decides for each VM, in the order given.
func Place(in Node, vms []VM) Placement {
	n := newNode(in)
	return n.place(vms, n.unmanaged(vms), in.Settled).placement()
}

// Potential predicts what binding could save: Before is the dynamic power with no thread
// bound, After with all placed anew. What is bound now does not matter: a VM that is bound
// is assumed to use what it would unbound.
func Potential(in Node, vms []VM) Placement {
	n := newNode(in)
	now, unbound := make([]VM, len(vms)), make([]VM, len(vms))
	for i := range vms {
		now[i], unbound[i] = vms[i], n.unbound(vms[i])
		if n.modeOf(vms[i].Rates) == floating {
			now[i].CurrentThreads = model.ThreadCPUs{}
		}
	}
	return n.place(unbound, n.unmanaged(now), false).placement()
}

func (n *node) place(vms []VM, unmanaged []float64, settled bool) *state {
	s := newState(n, vms, unmanaged)
	s.bindCurrent()
	s.before = s.watts()
	s.releaseBroken(func(v *vm) { v.free = !v.fixed })
	s.placeFree()
	s.releaseBroken(func(v *vm) { v.denied = true })
	s.improve(settled)
	return s
}

func (s *state) placement() Placement {
	return Placement{Decisions: s.decisions(), Before: s.before, After: s.watts()}
}

// unbound is a VM as it would be if it ran anywhere. How its vCPUs are bound is read from
// their threads: a plan says what should be, and not what is in the off blocks of a trial.
func (n *node) unbound(in VM) VM {
	remains := units.Cores(n.prices.remains(n.modeOf(in.Rates)))
	rates := *in.Rates
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
	in.Rates, in.Current, in.CurrentThreads, in.Alone, in.Fixed = &rates, nil, model.ThreadCPUs{}, false, false
	return in
}

// modeOf returns how a VM's vCPUs are bound now.
func (n *node) modeOf(rates *model.VMRates) mode {
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
