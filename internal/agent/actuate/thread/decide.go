package thread

import (
	"fmt"
	"time"

	"github.com/joulevirt/joulevirt/internal/agent/actuate"
	"github.com/joulevirt/joulevirt/internal/agent/journal"
	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/units"
)

// memory is what the actuator remembers of a VM from round to round.
type memory struct {
	// cpuset of the last round.
	cpuset units.CPUSet
	// contests count how often something else changed a thread.
	contests map[host.TaskID]*actuate.Contest
	// failed is true when some change of the last round did not come about: what is
	// found now may be what was to be changed.
	failed bool
}

// decision is what to do for one VM, and what can be said about it before it
// is done.
type decision[V journal.Value[V]] struct {
	outcome actuate.Outcome
	message string
	changes []change[V]
}

// rules decide by an attribute's nature.
type rules[V journal.Value[V]] struct {
	Attribute[V]
}

// decide compares a VM as it is with what is wanted and with the journal's
// entries for its process. want is nil for a VM of which nothing is wanted. It changes
// nothing but the memory.
func (r rules[V]) decide(vm *VM[V], want Wanted[V], known entries[V], m *memory, now uint64) decision[V] {
	d := decision[V]{outcome: actuate.Undone}
	switch {
	case want == nil:
		clear(m.contests)
	case vm.Dedicated:
		d.outcome, want = actuate.Dedicated, nil
	case m.contested(now):
		d.outcome, want = actuate.Contested, nil
	default:
		d.outcome, d.message = want.Feasible(vm)
		if d.outcome == actuate.NoAllowedCore {
			want = nil
		}
	}
	if want != nil && r.countForeign(m, vm, want, known, now) {
		d.outcome, want = actuate.Contested, nil
	}
	if d.outcome == actuate.Contested {
		d.message = fmt.Sprintf("something else changed the %s back %d times within an hour: left to it", r.Name(), actuate.ContestLimit)
	}
	m.cpuset = vm.Cpuset
	for _, thread := range vm.Threads {
		if c, needed := r.decideThread(vm, thread, want, known, now); needed {
			d.changes = append(d.changes, c)
		}
	}
	return d
}

// contested reports whether the VM is left to whoever changes its threads. now is in ticks.
func (m *memory) contested(now uint64) bool {
	for _, c := range m.contests {
		if c.Lost(duration(now)) {
			return true
		}
	}
	return false
}

func duration(ticks uint64) time.Duration {
	return time.Duration(ticks) * (time.Second / host.TicksPerSecond)
}

// countForeign counts the threads that something else changed since the last
// round, and reports whether the VM is to be yielded. A change of the cpuset is
// the kubelet's, whose kernel may reset affinities with it: not counted.
func (r rules[V]) countForeign(m *memory, vm *VM[V], want Wanted[V], known entries[V], now uint64) bool {
	if m.failed || !m.cpuset.Equal(vm.Cpuset) {
		return false
	}
	for _, thread := range vm.Threads {
		entry, ours := known[thread.ID]
		if !ours || entry.Undone || isZero(want.Of(thread.Role)) || thread.Value.Equal(r.shown(vm, entry.Ours)) {
			continue
		}
		if m.contests[thread.ID] == nil {
			m.contests[thread.ID] = &actuate.Contest{}
		}
		m.contests[thread.ID].Add(duration(now))
	}
	return m.contested(now)
}

// shown is what the kernel shows for a thread that was given a value: what of it the
// VM can have, or the default when that is nothing.
func (r rules[V]) shown(vm *VM[V], given V) V {
	if fit := r.Fit(vm, given); !isZero(fit) {
		return fit
	}
	standard, _ := r.Default(vm)
	return standard
}

func (r rules[V]) decideThread(vm *VM[V], thread Thread[V], want Wanted[V], known entries[V], now uint64) (change[V], bool) {
	entry, ours := known[thread.ID]
	inherited := !ours && r.inherits(vm, thread, known)
	var target V
	if want != nil {
		target = r.Fit(vm, want.Of(thread.Role))
	}
	switch {
	case !isZero(target) && ours && !entry.Undone:
		if thread.Value.Equal(target) && entry.Ours.Equal(target) {
			return change[V]{}, false
		}
		if !entry.Ours.Equal(target) {
			// Unless it was never written: then the thread still has the one before.
			if thread.Value.Equal(r.shown(vm, entry.Ours)) {
				entry.Previous = entry.Ours
			}
			entry.Ours = target
		}
		return change[V]{action: give, thread: thread.ID, entry: entry}, true
	case !isZero(target) && inherited && r.Uniform() && thread.Value.Equal(target):
		return change[V]{}, false
	case !isZero(target):
		return change[V]{action: give, thread: thread.ID, entry: r.newEntry(vm, thread, target, inherited, entry, now)}, true
	case ours:
		return change[V]{action: r.undo(vm, thread, entry), thread: thread.ID, entry: entry}, true
	case inherited:
		entry = journal.Record[V]{PodUID: vm.PodUID, Process: vm.Process, Thread: thread.ID, Ours: thread.Value, Since: now}
		return change[V]{action: release, thread: thread.ID, entry: entry}, true
	default:
		return change[V]{}, false
	}
}

// newEntry is that of a thread that gets a value of the agent's for the first time, or
// again: undone is its entry of before, if any. What the thread has from the agent
// already, and what others may have inherited from it, stays known.
func (r rules[V]) newEntry(
	vm *VM[V], thread Thread[V], target V, inherited bool, undone journal.Record[V], now uint64,
) journal.Record[V] {
	entry := journal.Record[V]{PodUID: vm.PodUID, Process: vm.Process, Thread: thread.ID, Ours: target, Since: now}
	switch {
	case inherited:
		entry.Previous = thread.Value
	case !r.hasDefault(vm, thread):
		entry.Original = thread.Value
	}
	if undone.Undone {
		entry.Previous, entry.Since = undone.Ours, undone.Since
	}
	return entry
}

// undo decides how an entry's thread gets back to what it was.
func (r rules[V]) undo(vm *VM[V], thread Thread[V], entry journal.Record[V]) action {
	_, known := r.Default(vm)
	switch {
	case entry.Undone:
		return forget
	case r.given(vm, thread, entry) || !known:
		return restore
	case r.hasDefault(vm, thread) && isZero(entry.Original):
		// Reset by the kernel or by somebody, and still bound in the kernel's
		// memory, perhaps: only writing lifts that for certain.
		return restore
	default:
		return forget // somebody else's value now
	}
}

func (r rules[V]) hasDefault(vm *VM[V], thread Thread[V]) bool {
	standard, _ := r.Default(vm)
	return thread.Value.Equal(standard)
}

// inherits reports whether a thread has a value that the agent gave to another
// thread of the process before this one was created: a new thread starts with its
// creator's.
func (r rules[V]) inherits(vm *VM[V], thread Thread[V], known entries[V]) bool {
	if r.hasDefault(vm, thread) {
		return false
	}
	for _, entry := range known {
		if thread.ID.Start < entry.Since {
			continue
		}
		if r.given(vm, thread, entry) {
			return true
		}
	}
	return false
}

// given reports whether a thread has the value that the agent gave to the thread of
// an entry: the last one, or the one before, which it still has when the agent
// was killed between the journal's write and its own.
func (r rules[V]) given(vm *VM[V], thread Thread[V], entry journal.Record[V]) bool {
	return thread.Value.Equal(r.shown(vm, entry.Ours)) ||
		!isZero(entry.Previous) && thread.Value.Equal(r.shown(vm, entry.Previous))
}

func isZero[V journal.Value[V]](value V) bool {
	var none V
	return value.Equal(none)
}
