// Package affinity binds threads of VMs to CPUs and lifts the bindings again, in the
// way of package thread.
//
// A thread that could run on its whole cpuset gets the mask of all CPUs back: writing
// its old mask back would keep it there for ever, also when the cpuset grows.
package affinity

import (
	"cmp"
	"fmt"

	"github.com/joulevirt/joulevirt/internal/agent/actuate"
	"github.com/joulevirt/joulevirt/internal/agent/actuate/thread"
	"github.com/joulevirt/joulevirt/internal/agent/discover"
	"github.com/joulevirt/joulevirt/internal/agent/journal"
	"github.com/joulevirt/joulevirt/internal/agent/sample"
	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

type (
	// Thread is a thread of a VM, with the CPUs that it may run on.
	Thread = thread.Thread[units.CPUSet]
	// Result is what became of one VM.
	Result = thread.Result[units.CPUSet]
)

// Pins are the CPUs that a VM's threads are to be bound to. An empty set leaves
// the threads unrestricted. The zero value binds nothing: all is undone as without
// pins, but foreign changes stay counted.
type Pins struct {
	VCPUs   []model.Pin
	Threads model.ThreadCPUs
}

// IsZero reports whether nothing is bound.
func (p Pins) IsZero() bool { return len(p.VCPUs) == 0 && p.Threads.IsZero() }

// Of implements thread.Wanted.
func (p Pins) Of(role discover.Role) units.CPUSet {
	switch role.Kind {
	case discover.VCPU:
		for i := range p.VCPUs {
			if p.VCPUs[i].VCPU == role.VCPU {
				return p.VCPUs[i].CPUs
			}
		}
	case discover.Emulator:
		return p.Threads.Emulator
	case discover.IOThread:
		return p.Threads.IOThreads
	case discover.Vhost:
		return p.Threads.Vhost
	}
	return units.CPUSet{}
}

// Feasible implements thread.Wanted: it checks that every pin has a CPU and every
// pinned vCPU a thread.
func (p Pins) Feasible(vm *thread.VM[units.CPUSet]) (actuate.Outcome, string) {
	if p.IsZero() {
		return actuate.Undone, ""
	}
	if vm.Cpuset.IsEmpty() {
		return actuate.NoAllowedCore, "the container's cpuset could not be read"
	}
	present := map[int]bool{}
	for _, one := range vm.Threads {
		if one.Role.Kind == discover.VCPU {
			present[one.Role.VCPU] = true
		}
		cpus := p.Of(one.Role)
		if !cpus.IsEmpty() && cpus.Intersection(vm.Cpuset).IsEmpty() {
			return actuate.NoAllowedCore, fmt.Sprintf("CPUs %.64s of the plan are not in the container's cpuset %.64s", cpus, vm.Cpuset)
		}
	}
	for i := range p.VCPUs {
		if vcpu := p.VCPUs[i].VCPU; !present[vcpu] {
			return actuate.Incomplete, fmt.Sprintf("vCPU %d has no thread", vcpu)
		}
	}
	return actuate.Applied, ""
}

// Actuator binds threads. It is used by one goroutine at a time.
type Actuator struct {
	*thread.Actuator[units.CPUSet]
}

// New returns an Actuator that takes over what an earlier agent had bound. save writes the
// entries to disk.
func New(h host.Host, save func([]journal.Entry) error, entries []journal.Entry) *Actuator {
	return &Actuator{thread.New(h, affinity{h}, save, entries)}
}

// Apply makes the VMs' affinities what the plan wants, by pod UID, and lifts every
// other binding of the agent: see thread.Actuator.
func (a *Actuator) Apply(vms []sample.VM, plan func(podUID string) (pins Pins, planned bool)) ([]Result, error) {
	concerns := func(vm *sample.VM) bool {
		_, planned := plan(vm.PodUID)
		return planned || a.Touched(vm.Process)
	}
	return a.Actuator.Apply(threadsOf(vms, concerns), func(podUID string) thread.Wanted[units.CPUSet] {
		if pins, planned := plan(podUID); planned {
			return pins
		}
		return nil
	})
}

// Assume takes every bound thread of the VMs for one that the agent bound: see
// thread.Actuator.
func (a *Actuator) Assume(vms []sample.VM) []host.TaskID {
	return a.Actuator.Assume(threadsOf(vms, func(*sample.VM) bool { return true }))
}

// threadsOf returns the VMs, with the threads of those that the actuator concerns.
func threadsOf(vms []sample.VM, concerns func(*sample.VM) bool) []thread.VM[units.CPUSet] {
	out := make([]thread.VM[units.CPUSet], 0, len(vms))
	for i := range vms {
		vm := &vms[i]
		one := thread.VM[units.CPUSet]{VM: vm.VM, Cpuset: vm.Sample.Cpuset, Unread: cmp.Or(vm.Unread, vm.Sample.CpusetErr)}
		if concerns(vm) {
			one.Threads = affinity{}.Threads(&vm.Sample)
		}
		out = append(out, one)
	}
	return out
}

// affinity is a thread's attribute.
type affinity struct{ host host.Host }

var _ thread.Attribute[units.CPUSet] = affinity{}

func (affinity) Name() string { return "affinity" }

func (a affinity) Get(id host.TaskID) (units.CPUSet, error) { return a.host.Affinity(id) }

func (a affinity) Set(id host.TaskID, cpus units.CPUSet) error {
	if cpus.IsEmpty() {
		return a.host.ClearAffinity(id)
	}
	return a.host.SetAffinity(id, cpus)
}

// Threads are the threads of a process, and the kernel's workers for it, whose
// affinity could be read.
func (affinity) Threads(sample *host.ProcessSample) []Thread {
	threads := make([]Thread, 0, len(sample.Threads)+len(sample.Workers))
	for _, group := range [][]host.ThreadSample{sample.Threads, sample.Workers} {
		for i := range group {
			if s := &group[i]; !s.CPUs.IsEmpty() {
				threads = append(threads, Thread{ID: s.ID, Role: discover.RoleOf(s.Thread), Value: s.CPUs})
			}
		}
	}
	return threads
}

// Fit is what of a mask the cpuset has: the kernel uses no other CPUs.
func (affinity) Fit(vm *thread.VM[units.CPUSet], cpus units.CPUSet) units.CPUSet {
	return cpus.Intersection(vm.Cpuset)
}

// Default is the whole cpuset.
func (affinity) Default(vm *thread.VM[units.CPUSet]) (units.CPUSet, bool) {
	return vm.Cpuset, !vm.Cpuset.IsEmpty()
}

// Uniform is false: a vCPU that inherited its own mask from a thread that is unbound
// later would be taken for bound by somebody else.
func (affinity) Uniform() bool { return false }
