package affinity

import (
	"errors"
	"fmt"
	"maps"

	"github.com/joulevirt/joulevirt/internal/agent/discover"
	"github.com/joulevirt/joulevirt/internal/agent/journal"
	"github.com/joulevirt/joulevirt/internal/host"
)

// Store keeps the entries on disk. journal.Journal is one.
type Store interface {
	Save(entries []journal.Entry) error
}

// Actuator binds threads. It is used by one goroutine at a time.
type Actuator struct {
	host    host.Host
	store   Store
	entries map[host.TaskID]journal.Entry
	// saved is what the store holds; nil when that is not known.
	saved    []journal.Entry
	memories map[host.TaskID]*memory
}

// New returns an Actuator that takes over what an earlier agent had bound.
func New(h host.Host, store Store, entries []journal.Entry) *Actuator {
	a := &Actuator{
		host:     h,
		store:    store,
		entries:  map[host.TaskID]journal.Entry{},
		memories: map[host.TaskID]*memory{},
	}
	for _, entry := range entries {
		a.entries[entry.Thread] = entry
	}
	return a
}

// Pinned counts the pods of which some thread is bound now.
func (a *Actuator) Pinned() int {
	pods := map[string]bool{}
	for _, entry := range a.entries {
		if !entry.Undone {
			pods[entry.PodUID] = true
		}
	}
	return len(pods)
}

// Apply makes the VMs' affinities what the plan wants, by pod UID, and lifts
// every binding of the agent that it does not want, also of processes that are
// not among the VMs. Called again without a change it writes nothing. The
// results are those of the VMs, in their order. The error is the journal's, and
// then nothing new was bound, or that of a process which is not among the VMs
// and could not be put back.
func (a *Actuator) Apply(vms []VM, plan map[string]Pins) ([]Result, error) {
	now, err := a.host.Uptime()
	if err != nil {
		return nil, err
	}
	byProcess := a.byProcess()
	tasks := make([]*task, 0, len(vms))
	for i := range vms {
		vm := &vms[i]
		var want *Pins
		if pins, planned := plan[vm.PodUID]; planned {
			want = &pins
		}
		entries := byProcess[vm.Process]
		delete(byProcess, vm.Process)
		if vm.Unread != nil {
			tasks = append(tasks, &task{vm: vm, decision: decision{outcome: Failed, message: vm.Unread.Error()}})
			continue
		}
		tasks = append(tasks, &task{vm: vm, decision: decide(vm, want, entries, a.memory(vm.Process), now)})
		a.forgetEnded(entries, vm)
	}
	known := len(tasks)
	for process, entries := range byProcess {
		vm := a.observe(process, entries)
		tasks = append(tasks, &task{vm: vm, decision: decide(vm, nil, entries, a.memory(process), now)})
		a.forgetEnded(entries, vm)
	}
	failures := []error{a.perform(tasks)}
	a.forgetMemories(vms)
	results := make([]Result, 0, known)
	for _, t := range tasks[:known] {
		results = append(results, a.result(t))
	}
	for _, t := range tasks[known:] {
		if len(t.failures) > 0 {
			failures = append(failures, fmt.Errorf("undo the pins of process %d of pod %.64s: %w",
				t.vm.Process.PID, t.vm.PodUID, errors.Join(t.failures...)))
		}
	}
	return results, errors.Join(failures...)
}

// Restore lifts every binding of the agent. Called again it does nothing.
func (a *Actuator) Restore() error {
	// The second pass finds the threads that were created during the first.
	const passes = 3
	var err error
	for pass := 0; pass < passes && len(a.entries) > 0; pass++ {
		if _, err = a.host.Processes(); err != nil {
			return err
		}
		// What fails for one process is no reason to leave the others bound.
		_, err = a.Apply(nil, nil)
	}
	if len(a.entries) > 0 {
		return errors.Join(fmt.Errorf("%d threads are still bound: run the agent's restore command again", len(a.entries)), err)
	}
	return err
}

func (a *Actuator) byProcess() map[host.TaskID]map[host.TaskID]journal.Entry {
	grouped := map[host.TaskID]map[host.TaskID]journal.Entry{}
	for id, entry := range a.entries {
		if grouped[entry.Process] == nil {
			grouped[entry.Process] = map[host.TaskID]journal.Entry{}
		}
		grouped[entry.Process][id] = entry
	}
	return grouped
}

// observe looks at a process that is no known VM and has entries: one that was
// bound by an earlier agent, or whose VMI is not to be seen any more.
func (a *Actuator) observe(process host.TaskID, entries map[host.TaskID]journal.Entry) *VM {
	vm := &VM{VM: discover.VM{Process: process}}
	for _, entry := range entries {
		vm.PodUID = entry.PodUID
	}
	// Without the cpuset the entries alone decide.
	vm.Cpuset, _ = a.host.Cpuset(process)
	if sample, err := a.host.Sample(process); err == nil {
		vm.Threads = Threads(sample)
		return vm
	}
	for id := range entries {
		if cpus, err := a.host.Affinity(id); err == nil {
			vm.Threads = append(vm.Threads, Thread{ID: id, CPUs: cpus})
		}
	}
	return vm
}

// Threads are the threads of a process that could be read.
func Threads(sample host.ProcessSample) []Thread {
	threads := make([]Thread, 0, len(sample.Threads))
	for _, s := range sample.Threads {
		if !s.CPUs.IsEmpty() {
			threads = append(threads, Thread{ID: s.ID, Role: discover.RoleOf(s.Thread), CPUs: s.CPUs})
		}
	}
	return threads
}

// Assume takes every thread of the VMs that does not run on its whole cpuset
// for one that the agent bound, and returns them. It is for an agent that lost
// its journal: KubeVirt restricts no thread of a VM without dedicated CPUs.
func (a *Actuator) Assume(vms []VM) []host.TaskID {
	var assumed []host.TaskID
	for i := range vms {
		vm := &vms[i]
		if vm.Dedicated || vm.Cpuset.IsEmpty() {
			continue
		}
		for _, thread := range vm.Threads {
			if _, known := a.entries[thread.ID]; known || thread.CPUs.Equal(vm.Cpuset) {
				continue
			}
			a.entries[thread.ID] = journal.Entry{
				PodUID: vm.PodUID, Process: vm.Process, Thread: thread.ID,
				Ours: thread.CPUs, Since: thread.ID.Start,
			}
			assumed = append(assumed, thread.ID)
		}
	}
	return assumed
}

func (a *Actuator) memory(process host.TaskID) *memory {
	m, found := a.memories[process]
	if !found {
		m = &memory{changedBack: map[host.TaskID]int{}}
		a.memories[process] = m
	}
	return m
}

func (a *Actuator) forgetMemories(vms []VM) {
	present := map[host.TaskID]bool{}
	for i := range vms {
		present[vms[i].Process] = true
	}
	maps.DeleteFunc(a.memories, func(process host.TaskID, _ *memory) bool { return !present[process] })
}
