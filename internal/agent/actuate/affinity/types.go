package affinity

import (
	"fmt"

	"github.com/joulevirt/joulevirt/internal/agent/actuate/thread"
	"github.com/joulevirt/joulevirt/internal/agent/discover"
	"github.com/joulevirt/joulevirt/internal/units"
)

type (
	// VM is a VM's process as it is now.
	VM = thread.VM[units.CPUSet]
	// Thread is one of its threads, with the CPUs that it may run on.
	Thread = thread.Thread[units.CPUSet]
	// Result is what became of one VM.
	Result = thread.Result[units.CPUSet]
)

// Pins are the CPUs that a VM's threads are to be bound to. An empty set leaves
// the threads unrestricted. The zero value binds nothing: all is undone as without
// pins, but for what is remembered of who contests them.
type Pins struct {
	VCPUs                       map[int]units.CPUSet
	Emulator, IOThreads, Vhosts units.CPUSet
}

func (p Pins) isZero() bool {
	return len(p.VCPUs) == 0 && p.Emulator.IsEmpty() && p.IOThreads.IsEmpty() && p.Vhosts.IsEmpty()
}

// Of implements thread.Wanted.
func (p Pins) Of(role discover.Role) units.CPUSet {
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

// Feasible implements thread.Wanted: it tells whether every pin has a CPU and every
// pinned vCPU a thread.
func (p Pins) Feasible(vm *VM) (thread.Outcome, string) {
	if p.isZero() {
		return thread.Undone, ""
	}
	if vm.Cpuset.IsEmpty() {
		return thread.NoAllowedCore, "the container's cpuset could not be read"
	}
	present := map[int]bool{}
	for _, one := range vm.Threads {
		if one.Role.Kind == discover.VCPU {
			present[one.Role.VCPU] = true
		}
		cpus := p.Of(one.Role)
		if !cpus.IsEmpty() && cpus.Intersection(vm.Cpuset).IsEmpty() {
			return thread.NoAllowedCore, fmt.Sprintf("CPUs %.64s of the plan are not in the container's cpuset %.64s", cpus, vm.Cpuset)
		}
	}
	for vcpu := range p.VCPUs {
		if !present[vcpu] {
			return thread.Incomplete, fmt.Sprintf("vCPU %d has no thread", vcpu)
		}
	}
	return thread.Applied, ""
}

// VCPUs are the affinities read back, by vCPU, of those that are bound.
func VCPUs(result *Result) map[int]units.CPUSet {
	vcpus := map[int]units.CPUSet{}
	for _, held := range result.Held {
		if held.Role.Kind == discover.VCPU {
			vcpus[held.Role.VCPU] = held.Value
		}
	}
	return vcpus
}
