// Package affinity decides where the threads of VMs run, by the power that is
// predicted of it: each vCPU on exactly one physical core, all threads on a part of
// the cores, or anywhere. A mask never cuts a core in two, because a vCPU and a
// stranger on sibling threads slow each other down.
//
// It is a packing problem, which is hard to solve exactly. VMs without pins are
// placed one after the other, each where it costs least, and then some are taken out
// and placed again as long as that pays. VMs with pins keep them unless a change
// clearly pays. The tests compare it with an exact solver on small nodes.
package affinity

import (
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
	// MaxCoreUtilization is the predicted use per sibling CPU above which a
	// core is hot: from 0 to 1.
	MaxCoreUtilization units.Cores
	// Sharing says whose vCPUs may be bound to the siblings of one core.
	Sharing model.SiblingSharing
	// Costs are what plans are weighed by.
	Costs model.PowerCosts
	// Settled nodes' pins change by choice only against crowding, and for no less than
	// it costs.
	Settled bool
}

// VM is a VM whose threads are to be placed.
type VM struct {
	// Namespace of the VM: its tenant.
	Namespace string
	Rates     *model.VMRates
	// Preference of the VM's profile: Auto, Separated or Pinned. Shared VMs are not
	// given: what they use is unmanaged load.
	Preference model.AffinityPreference
	// Within are the CPUs of the VM's pool, to which it is confined whatever it
	// prefers. Empty: pools share their cores, and nothing confines the VM.
	Within units.CPUSet
	// Network VMs are placed near the node's network cards, where that costs nothing.
	Network bool
	// Wary VMs were left unbound, or unpinned, before: they are bound only where that
	// would be well with all of their vCPUs busy.
	Wary bool
	// MostWait is the share of a CPU that a vCPU may wait for one, by the VM's service level.
	// 0: the most that is planned for any.
	MostWait units.Cores
	// Waited VMs have waited for CPUs that they shared while others idled: as long as that is
	// remembered they are bound only where they need not, one vCPU to a CPU.
	Waited bool
	// Stays VMs are changed by nothing but heat: they keep their pins, or lose them where
	// a limit is broken.
	Stays bool
	// Current pins, which are kept when too little is gained by changing them.
	Current []model.Pin
	// CurrentThreads are the CPUs of the other threads now.
	CurrentThreads model.ThreadCPUs
}

// Decision is what becomes of a VM: pins for all its vCPUs, or none and the
// reason.
type Decision struct {
	Pins    []model.Pin
	Threads model.ThreadCPUs
	Reason  model.Reason
}

// Placement is what becomes of a node's VMs, in the order given, and the dynamic
// power that is predicted of the node as it is and with it.
type Placement struct {
	Decisions     []Decision
	Before, After units.Watts
}

// Place decides for each VM, in the order given. Pins in force stay as long as they
// are allowed and make no core hot; those of a few VMs a round change where that
// clearly pays. VMs without pins never cost another VM its own.
func Place(node Node, vms []VM) Placement {
	s := newState(newNode(node), node.CPUs, vms)
	s.bindCurrent()
	before := s.watts()
	s.mend()
	s.admit()
	s.improve(node.Settled)
	return Placement{Decisions: s.decisions(), Before: before, After: s.watts()}
}
