package thread

import (
	"errors"
	"fmt"
	"maps"

	"github.com/joulevirt/joulevirt/internal/agent/actuate"
	"github.com/joulevirt/joulevirt/internal/agent/discover"
	"github.com/joulevirt/joulevirt/internal/agent/journal"
	"github.com/joulevirt/joulevirt/internal/host"
)

// Actuator changes an attribute of threads. It is used by one goroutine at a time.
type Actuator[V journal.Value[V]] struct {
	host  host.Host
	rules rules[V]
	// save keeps the entries on disk.
	save  func(entries []journal.Record[V]) error
	table table[V]
	// saved is what is on disk; nil when that is not known.
	saved    []journal.Record[V]
	memories map[host.TaskID]*memory
}

// New returns an Actuator that takes over what an earlier agent had changed. save
// keeps the entries on disk: what it was given is there when it returns nil.
func New[V journal.Value[V]](
	h host.Host, attribute Attribute[V], save func([]journal.Record[V]) error, records []journal.Record[V],
) *Actuator[V] {
	return &Actuator[V]{
		host:     h,
		rules:    rules[V]{attribute},
		save:     save,
		table:    newTable(records),
		memories: map[host.TaskID]*memory{},
	}
}

// Pods are the pods of which some thread is changed now.
func (a *Actuator[V]) Pods() map[string]bool {
	pods := make(map[string]bool, len(a.table.processes))
	for _, of := range a.table.processes {
		for _, entry := range of {
			if !entry.Undone {
				pods[entry.PodUID] = true
				break
			}
		}
	}
	return pods
}

// Entry returns what the agent knows of a thread of a process that it changed.
func (a *Actuator[V]) Entry(process, thread host.TaskID) (journal.Record[V], bool) {
	entry, ours := a.table.processes[process][thread]
	return entry, ours
}

// Touched reports whether some thread of a process was changed, or was reverted in the
// round before.
func (a *Actuator[V]) Touched(process host.TaskID) bool { return len(a.table.processes[process]) > 0 }

// Apply gives the VMs' threads what the plan wants, by pod UID, and reverts
// whatever of the agent's it does not want, also of processes that are
// not among the VMs. Called again without a change it writes nothing. The
// results are those of the VMs, in their order. The error is the journal's, and
// then nothing new was given, or that of a process which is not among the VMs
// and could not be reverted.
func (a *Actuator[V]) Apply(vms []VM[V], plan func(podUID string) Wanted[V]) ([]Result[V], error) {
	now, err := a.host.Uptime()
	if err != nil {
		return nil, err
	}
	tasks := make([]*task[V], 0, len(vms))
	for i := range vms {
		vm := &vms[i]
		known := a.table.processes[vm.Process]
		if vm.Unread != nil {
			outcome, message := outcomeOf(vm.Unread)
			tasks = append(tasks, &task[V]{vm: vm, decision: decision[V]{outcome: outcome, message: message}})
			continue
		}
		tasks = append(tasks, &task[V]{vm: vm, decision: a.rules.decide(vm, plan(vm.PodUID), known, a.memory(vm.Process), now)})
		a.forgetEnded(known, vm)
	}
	planned := len(tasks)
	present := processesOf(vms)
	for process, known := range a.table.processes {
		if present[process] {
			continue
		}
		vm := a.observe(process, known)
		tasks = append(tasks, &task[V]{vm: vm, decision: a.rules.decide(vm, nil, known, a.memory(process), now)})
		a.forgetEnded(known, vm)
	}
	failures := []error{a.perform(tasks)}
	maps.DeleteFunc(a.memories, func(process host.TaskID, _ *memory) bool { return !present[process] })
	results := make([]Result[V], 0, planned)
	for _, t := range tasks[:planned] {
		a.memory(t.vm.Process).failed = len(t.failures) > 0
		results = append(results, a.result(t))
	}
	for _, t := range tasks[planned:] {
		if len(t.failures) > 0 {
			failures = append(failures, fmt.Errorf("revert the %s of process %d of pod %.64s: %w",
				a.rules.Name(), t.vm.Process.PID, t.vm.PodUID, errors.Join(t.failures...)))
		}
	}
	return results, errors.Join(failures...)
}

// Restore reverts all that the agent changed. Called again it does nothing.
func (a *Actuator[V]) Restore() error {
	// The second pass finds the threads that were created during the first.
	const passes = 3
	var err error
	for pass := 0; pass < passes && a.table.count > 0; pass++ {
		if _, err = a.host.Processes(); err != nil {
			return err
		}
		// What fails for one process is no reason to leave the others changed.
		_, err = a.Apply(nil, nil)
	}
	if a.table.count > 0 {
		return errors.Join(fmt.Errorf("%d threads still have the agent's %s: run the agent's restore command again",
			a.table.count, a.rules.Name()), err)
	}
	return err
}

// observe reads a process that is no known VM and has entries: one that was
// changed by an earlier agent, or whose VMI is gone.
func (a *Actuator[V]) observe(process host.TaskID, known entries[V]) *VM[V] {
	vm := &VM[V]{VM: discover.VM{Process: process}}
	for _, entry := range known {
		vm.PodUID = entry.PodUID
	}
	if sample, err := a.host.Sample(process); err == nil {
		vm.Cpuset, vm.Threads = sample.Cpuset, a.rules.Threads(&sample)
		return vm
	}
	// Without the cpuset the entries alone decide.
	for id := range known {
		if value, err := a.rules.Get(id); err == nil {
			vm.Threads = append(vm.Threads, Thread[V]{ID: id, Value: value})
		}
	}
	return vm
}

// Assume takes every thread of the VMs that has not the kernel's default for one
// that the agent changed, and returns them. It is for an agent that lost
// its journal: KubeVirt changes no thread of a VM without dedicated CPUs.
func (a *Actuator[V]) Assume(vms []VM[V]) []host.TaskID {
	var assumed []host.TaskID
	for i := range vms {
		vm := &vms[i]
		if _, known := a.rules.Default(vm); vm.Dedicated || !known {
			continue
		}
		for _, thread := range vm.Threads {
			if _, known := a.Entry(vm.Process, thread.ID); known || a.rules.hasDefault(vm, thread) {
				continue
			}
			a.table.put(journal.Record[V]{
				PodUID: vm.PodUID, Process: vm.Process, Thread: thread.ID,
				Ours: thread.Value, Since: thread.ID.Start,
			})
			assumed = append(assumed, thread.ID)
		}
	}
	return assumed
}

func (a *Actuator[V]) memory(process host.TaskID) *memory {
	m, found := a.memories[process]
	if !found {
		m = &memory{contests: map[host.TaskID]*actuate.Contest{}}
		a.memories[process] = m
	}
	return m
}

func processesOf[V journal.Value[V]](vms []VM[V]) map[host.TaskID]bool {
	present := make(map[host.TaskID]bool, len(vms))
	for i := range vms {
		present[vms[i].Process] = true
	}
	return present
}
