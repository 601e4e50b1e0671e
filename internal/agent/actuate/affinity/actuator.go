package affinity

import (
	"github.com/joulevirt/joulevirt/internal/agent/actuate/thread"
	"github.com/joulevirt/joulevirt/internal/agent/discover"
	"github.com/joulevirt/joulevirt/internal/agent/journal"
	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/units"
)

// Store keeps the entries on disk. journal.Journal is one.
type Store interface {
	Save(entries []journal.Entry) error
}

// Actuator binds threads. It is used by one goroutine at a time.
type Actuator struct {
	*thread.Actuator[units.CPUSet]
}

// New returns an Actuator that takes over what an earlier agent had bound.
func New(h host.Host, store Store, entries []journal.Entry) *Actuator {
	return &Actuator{thread.New(h, affinity{h}, store.Save, entries)}
}

// Pinned counts the pods of which some thread is bound now.
func (a *Actuator) Pinned() int {
	pods, _ := a.Held()
	return pods
}

// Apply makes the VMs' affinities what the plan wants, by pod UID, and lifts every
// other binding of the agent: see thread.Actuator.
func (a *Actuator) Apply(vms []VM, plan map[string]Pins) ([]Result, error) {
	return a.Actuator.Apply(vms, func(podUID string) thread.Wanted[units.CPUSet] {
		if pins, planned := plan[podUID]; planned {
			return pins
		}
		return nil
	})
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

func (affinity) Threads(sample *host.ProcessSample) []Thread { return Threads(*sample) }

// Fit is what of a mask the cpuset has: the kernel uses no other CPUs.
func (affinity) Fit(vm *VM, cpus units.CPUSet) units.CPUSet { return cpus.Intersection(vm.Cpuset) }

// Default is the whole cpuset.
func (affinity) Default(vm *VM) (units.CPUSet, bool) { return vm.Cpuset, !vm.Cpuset.IsEmpty() }

// Uniform is false: a vCPU that inherited its own mask from a thread that is unbound
// later would be taken for bound by somebody else.
func (affinity) Uniform() bool { return false }

// Threads are the threads of a process, and the kernel's workers for it, whose
// affinity could be read.
func Threads(sample host.ProcessSample) []Thread {
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
