package thread

import (
	"errors"
	"fmt"
	"maps"

	"github.com/joulevirt/joulevirt/internal/agent/discover"
	"github.com/joulevirt/joulevirt/internal/agent/journal"
	"github.com/joulevirt/joulevirt/internal/host"
)

// Actuator changes an attribute of threads. It is used by one goroutine at a time.
type Actuator[V journal.Value[V]] struct {
	host  host.Host
	rules rules[V]
	// save keeps the entries on disk.
	save    func(entries []journal.Record[V]) error
	entries entries[V]
	// saved is what is on disk; nil when that is not known.
	saved    []journal.Record[V]
	memories map[host.TaskID]*memory
}

// New returns an Actuator that takes over what an earlier agent had changed. save
// keeps the entries on disk: what it was given is there when it returns nil.
func New[V journal.Value[V]](
	h host.Host, attribute Attribute[V], save func([]journal.Record[V]) error, records []journal.Record[V],
) *Actuator[V] {
	a := &Actuator[V]{
		host:     h,
		rules:    rules[V]{attribute},
		save:     save,
		entries:  entries[V]{},
		memories: map[host.TaskID]*memory{},
	}
	for _, record := range records {
		a.entries[record.Thread] = record
	}
	return a
}

// Held counts what is changed now: the pods of which some thread is, and the threads.
func (a *Actuator[V]) Held() (pods, threads int) {
	seen := map[string]bool{}
	for _, entry := range a.entries {
		if !entry.Undone {
			threads++
			seen[entry.PodUID] = true
		}
	}
	return len(seen), threads
}

// Entry returns what the agent knows of a thread that it changed.
func (a *Actuator[V]) Entry(thread host.TaskID) (journal.Record[V], bool) {
	entry, ours := a.entries[thread]
	return entry, ours
}

// Touched tells for each process whether some thread of it was changed, or was put
// back in the round before.
func (a *Actuator[V]) Touched() map[host.TaskID]bool {
	touched := map[host.TaskID]bool{}
	for _, entry := range a.entries {
		touched[entry.Process] = true
	}
	return touched
}

// Apply gives the VMs' threads what the plan wants, by pod UID, and puts back
// whatever of the agent's it does not want, also of processes that are
// not among the VMs. Called again without a change it writes nothing. The
// results are those of the VMs, in their order. The error is the journal's, and
// then nothing new was given, or that of a process which is not among the VMs
// and could not be put back.
func (a *Actuator[V]) Apply(vms []VM[V], plan func(podUID string) Wanted[V]) ([]Result[V], error) {
	now, err := a.host.Uptime()
	if err != nil {
		return nil, err
	}
	byProcess := a.byProcess()
	tasks := make([]*task[V], 0, len(vms))
	for i := range vms {
		vm := &vms[i]
		known := byProcess[vm.Process]
		delete(byProcess, vm.Process)
		if vm.Unread != nil {
			outcome, message := outcomeOf(vm.Unread)
			tasks = append(tasks, &task[V]{vm: vm, decision: decision[V]{outcome: outcome, message: message}})
			continue
		}
		tasks = append(tasks, &task[V]{vm: vm, decision: a.rules.decide(vm, plan(vm.PodUID), known, a.memory(vm.Process), now)})
		a.forgetEnded(known, vm)
	}
	planned := len(tasks)
	for process, known := range byProcess {
		vm := a.observe(process, known)
		tasks = append(tasks, &task[V]{vm: vm, decision: a.rules.decide(vm, nil, known, a.memory(process), now)})
		a.forgetEnded(known, vm)
	}
	failures := []error{a.perform(tasks)}
	a.forgetMemories(vms)
	results := make([]Result[V], 0, planned)
	for _, t := range tasks[:planned] {
		a.memory(t.vm.Process).failed = len(t.failures) > 0
		results = append(results, a.result(t))
	}
	for _, t := range tasks[planned:] {
		if len(t.failures) > 0 {
			failures = append(failures, fmt.Errorf("put back the %s of process %d of pod %.64s: %w",
				a.rules.Name(), t.vm.Process.PID, t.vm.PodUID, errors.Join(t.failures...)))
		}
	}
	return results, errors.Join(failures...)
}

// Restore puts back all that the agent changed. Called again it does nothing.
func (a *Actuator[V]) Restore() error {
	// The second pass finds the threads that were created during the first.
	const passes = 3
	var err error
	for pass := 0; pass < passes && len(a.entries) > 0; pass++ {
		if _, err = a.host.Processes(); err != nil {
			return err
		}
		// What fails for one process is no reason to leave the others changed.
		_, err = a.Apply(nil, nil)
	}
	if len(a.entries) > 0 {
		return errors.Join(fmt.Errorf("%d threads still have the agent's %s: run the agent's restore command again",
			len(a.entries), a.rules.Name()), err)
	}
	return err
}

func (a *Actuator[V]) byProcess() map[host.TaskID]entries[V] {
	grouped := map[host.TaskID]entries[V]{}
	for id, entry := range a.entries {
		if grouped[entry.Process] == nil {
			grouped[entry.Process] = entries[V]{}
		}
		grouped[entry.Process][id] = entry
	}
	return grouped
}

// observe looks at a process that is no known VM and has entries: one that was
// changed by an earlier agent, or whose VMI is not to be seen any more.
func (a *Actuator[V]) observe(process host.TaskID, known entries[V]) *VM[V] {
	vm := &VM[V]{VM: discover.VM{Process: process}}
	for _, entry := range known {
		vm.PodUID = entry.PodUID
	}
	// Without the cpuset the entries alone decide.
	vm.Cpuset, _ = a.host.Cpuset(process)
	if sample, err := a.host.Sample(process); err == nil {
		vm.Threads = a.rules.Threads(&sample)
		return vm
	}
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
			if _, known := a.entries[thread.ID]; known || a.rules.hasDefault(vm, thread) {
				continue
			}
			a.entries[thread.ID] = journal.Record[V]{
				PodUID: vm.PodUID, Process: vm.Process, Thread: thread.ID,
				Ours: thread.Value, Since: thread.ID.Start,
			}
			assumed = append(assumed, thread.ID)
		}
	}
	return assumed
}

func (a *Actuator[V]) memory(process host.TaskID) *memory {
	m, found := a.memories[process]
	if !found {
		m = &memory{changedBack: map[host.TaskID]int{}}
		a.memories[process] = m
	}
	return m
}

func (a *Actuator[V]) forgetMemories(vms []VM[V]) {
	present := map[host.TaskID]bool{}
	for i := range vms {
		present[vms[i].Process] = true
	}
	maps.DeleteFunc(a.memories, func(process host.TaskID, _ *memory) bool { return !present[process] })
}
