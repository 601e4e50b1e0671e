package affinity

import (
	"github.com/joulevirt/joulevirt/internal/agent/discover"
	"github.com/joulevirt/joulevirt/internal/agent/journal"
	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/units"
)

// Thread is a thread of a VM's process as it is now.
type Thread struct {
	ID   host.TaskID
	Role discover.Role
	// CPUs that it may run on.
	CPUs units.CPUSet
}

// VM is a VM's process as it is now.
type VM struct {
	discover.VM
	// Cpuset is the effective cpuset of the VM's container. Empty when it is
	// not known: then nothing is bound.
	Cpuset  units.CPUSet
	Threads []Thread
	// Unread says why the VM, which runs, could not be looked at in this round:
	// it is left as it is. Nil when it was looked at.
	Unread error
}

// Pins are the CPUs that a VM's threads are to be bound to. An empty set leaves
// the threads unrestricted.
type Pins struct {
	VCPUs                       map[int]units.CPUSet
	Emulator, IOThreads, Vhosts units.CPUSet
}

// of returns the CPUs of a thread; the empty set when it is to be unrestricted.
func (p *Pins) of(role discover.Role) units.CPUSet {
	if p == nil {
		return units.CPUSet{}
	}
	switch role.Kind {
	case discover.VCPU:
		return p.VCPUs[role.VCPU]
	case discover.Emulator:
		return p.Emulator
	case discover.IOThread:
		return p.IOThreads
	case discover.Vhost:
		return p.Vhosts
	default:
		return units.CPUSet{}
	}
}

// Outcome is what became of the pins of one VM.
type Outcome string

const (
	// Applied: every pin was read back.
	Applied Outcome = "Applied"
	// Undone: the VM has no pins, and none of the agent's are left.
	Undone Outcome = "Undone"
	// Dedicated: KubeVirt pins the VM; it is left alone.
	Dedicated Outcome = "Dedicated"
	// NoAllowedCore: a pin has no CPU in the container's cpuset. Nothing is
	// bound.
	NoAllowedCore Outcome = "NoAllowedCore"
	// Contested: something else changed the affinities back twice. They are
	// left to it until the VM leaves the plan.
	Contested Outcome = "Contested"
	// Incomplete: some vCPU of the plan has no thread; the others are bound.
	Incomplete Outcome = "Incomplete"
	// Failed: the kernel or the journal refused, or another value was read back.
	Failed Outcome = "Failed"
	// Gone: the VM ended meanwhile.
	Gone Outcome = "Gone"
)

// Result is what became of one VM.
type Result struct {
	PodUID          string
	Namespace, Name string
	Outcome         Outcome
	// Message says more, in words.
	Message string
	// VCPUs are the affinities read back, by vCPU, of those that are bound.
	VCPUs map[int]units.CPUSet
	// Changed counts the threads that were written to.
	Changed int
}

// action is what to do to one thread.
type action int

const (
	pin     action = iota
	restore        // put the original back
	release        // lift what a thread inherited
	forget         // nothing: what was ours is so no longer
)

// change is one thing to do. entry is what the journal holds once it is done.
type change struct {
	action action
	thread host.TaskID
	entry  journal.Entry
}
