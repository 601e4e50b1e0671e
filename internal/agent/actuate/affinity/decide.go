package affinity

import (
	"fmt"

	"github.com/joulevirt/joulevirt/internal/agent/discover"
	"github.com/joulevirt/joulevirt/internal/agent/journal"
	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/units"
)

// contestedAfter is how often something else may change an affinity back
// before it is left to it.
const contestedAfter = 2

// memory is what the actuator remembers of a VM from round to round.
type memory struct {
	// cpuset of the last round.
	cpuset units.CPUSet
	// changedBack counts how often something else changed a thread.
	changedBack map[host.TaskID]int
	// contested is true when the VM was yielded.
	contested bool
}

// decision is what to do for one VM, and what can be said about it before it
// is done.
type decision struct {
	outcome Outcome
	message string
	changes []change
}

// decide compares a VM as it is with what is wanted and with the journal's
// entries for its process. want is nil for a VM without pins. It changes
// nothing but the memory.
func decide(vm *VM, want *Pins, entries map[host.TaskID]journal.Entry, m *memory, now uint64) decision {
	d := decision{outcome: Undone}
	switch {
	case want == nil:
		m.contested = false
		clear(m.changedBack)
	case vm.Dedicated:
		d.outcome, want = Dedicated, nil
	case m.contested:
		d.outcome, want = Contested, nil
	default:
		d.outcome, d.message = feasible(vm, want)
		if d.outcome == NoAllowedCore {
			want = nil
		}
	}
	if want != nil && m.noteForeign(vm, want, entries) {
		d.outcome, want = Contested, nil
	}
	if d.outcome == Contested {
		d.message = "something else changed the affinity back twice: left to it until the VM leaves the plan"
	}
	m.cpuset = vm.Cpuset
	for _, thread := range vm.Threads {
		if c, needed := decideThread(vm, thread, want, entries, now); needed {
			d.changes = append(d.changes, c)
		}
	}
	return d
}

// feasible tells whether every pin has a CPU and every pinned vCPU a thread.
func feasible(vm *VM, want *Pins) (Outcome, string) {
	if vm.Cpuset.IsEmpty() {
		return NoAllowedCore, "the container's cpuset could not be read"
	}
	present := map[int]bool{}
	for _, thread := range vm.Threads {
		if thread.Role.Kind == discover.VCPU {
			present[thread.Role.VCPU] = true
		}
		cpus := want.of(thread.Role)
		if !cpus.IsEmpty() && cpus.Intersection(vm.Cpuset).IsEmpty() {
			return NoAllowedCore, fmt.Sprintf("CPUs %.64s of the plan are not in the container's cpuset %.64s", cpus, vm.Cpuset)
		}
	}
	for vcpu := range want.VCPUs {
		if !present[vcpu] {
			return Incomplete, fmt.Sprintf("vCPU %d has no thread", vcpu)
		}
	}
	return Applied, ""
}

// noteForeign counts the threads that something else changed since the last
// round, and tells whether the VM is to be yielded. A change of the cpuset is
// the kubelet's, whose kernel may reset affinities with it: not counted.
func (m *memory) noteForeign(vm *VM, want *Pins, entries map[host.TaskID]journal.Entry) bool {
	if !m.cpuset.Equal(vm.Cpuset) {
		return false
	}
	for _, thread := range vm.Threads {
		entry, ours := entries[thread.ID]
		if !ours || entry.Undone || want.of(thread.Role).IsEmpty() || thread.CPUs.Equal(expected(entry.Ours, vm.Cpuset)) {
			continue
		}
		m.changedBack[thread.ID]++
		if m.changedBack[thread.ID] >= contestedAfter {
			m.contested = true
		}
	}
	return m.contested
}

// expected is the affinity that the kernel shows for a thread that was bound:
// what of it is in the cpuset, or all of the cpuset when nothing is.
func expected(bound, cpuset units.CPUSet) units.CPUSet {
	if in := bound.Intersection(cpuset); !in.IsEmpty() {
		return in
	}
	return cpuset
}

func decideThread(vm *VM, thread Thread, want *Pins, entries map[host.TaskID]journal.Entry, now uint64) (change, bool) {
	entry, ours := entries[thread.ID]
	inherited := !ours && inherits(vm, thread, entries)
	target := want.of(thread.Role).Intersection(vm.Cpuset)
	switch {
	case !target.IsEmpty() && ours && !entry.Undone:
		if thread.CPUs.Equal(target) && entry.Ours.Equal(target) {
			return change{}, false
		}
		if !entry.Ours.Equal(target) {
			entry.Previous, entry.Ours = entry.Ours, target
		}
		return change{action: pin, thread: thread.ID, entry: entry}, true
	case !target.IsEmpty():
		entry = journal.Entry{PodUID: vm.PodUID, Process: vm.Process, Thread: thread.ID, Ours: target, Since: now}
		if !inherited && !thread.CPUs.Equal(vm.Cpuset) {
			entry.Original.CPUs = thread.CPUs
		}
		return change{action: pin, thread: thread.ID, entry: entry}, true
	case ours:
		return change{action: undo(vm, thread, entry), thread: thread.ID, entry: entry}, true
	case inherited:
		return change{action: release, thread: thread.ID}, true
	default:
		return change{}, false
	}
}

// undo tells how an entry's thread gets back to what it was.
func undo(vm *VM, thread Thread, entry journal.Entry) action {
	switch {
	case entry.Undone:
		return forget
	case given(entry, thread.CPUs, vm.Cpuset) || vm.Cpuset.IsEmpty():
		return restore
	case thread.CPUs.Equal(vm.Cpuset) && entry.Original.Unrestricted():
		// Widened by the kernel or by somebody, and still bound in the kernel's
		// memory, perhaps: only writing lifts that for certain.
		return restore
	default:
		return forget // somebody else's affinity now
	}
}

// inherits tells whether a thread has an affinity that the agent gave to
// another thread of the process before this one was created: a new thread
// starts with its creator's.
func inherits(vm *VM, thread Thread, entries map[host.TaskID]journal.Entry) bool {
	if thread.CPUs.Equal(vm.Cpuset) {
		return false
	}
	for _, entry := range entries {
		if thread.ID.Start < entry.Since {
			continue
		}
		if given(entry, thread.CPUs, vm.Cpuset) {
			return true
		}
	}
	return false
}

// given tells whether an affinity is one that the agent gave to the thread of
// an entry: the last one, or the one before, which it still has when the agent
// was killed between the journal's write and its own.
func given(entry journal.Entry, cpus, cpuset units.CPUSet) bool {
	return cpus.Equal(expected(entry.Ours, cpuset)) ||
		!entry.Previous.IsEmpty() && cpus.Equal(expected(entry.Previous, cpuset))
}
