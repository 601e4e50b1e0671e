package thread

import (
	"errors"
	"fmt"
	"slices"

	"github.com/joulevirt/joulevirt/internal/agent/actuate"
	"github.com/joulevirt/joulevirt/internal/agent/journal"
	"github.com/joulevirt/joulevirt/internal/host"
)

// task is the work on one VM in one round.
type task[V journal.Value[V]] struct {
	vm       *VM[V]
	decision decision[V]
	// failures of its changes; a thread that ended is none.
	failures []error
	gone     bool
	changed  int
}

// perform journals what will be given, makes the changes, and journals what
// became of them. What was inherited is lifted first: until the entries change, all
// who read the journal know it for the agent's.
func (a *Actuator[V]) perform(tasks []*task[V]) error {
	needed := slices.ContainsFunc(tasks, func(t *task[V]) bool { return len(t.decision.changes) > 0 })
	// Without a change to make, entries went with their threads, or were assumed.
	if !needed && a.saved != nil && !a.table.changed {
		return nil
	}
	a.each(tasks, func(t *task[V], c change[V]) {
		if c.action == release {
			a.do(t, c)
		}
	})
	intended := entries[V]{}
	a.each(tasks, func(_ *task[V], c change[V]) {
		if c.action == give {
			intended[c.thread] = c.entry
		}
	})
	saveErr := a.write(a.table.sorted(intended))
	a.each(tasks, func(t *task[V], c change[V]) {
		switch {
		case c.action == release:
		case c.action == give && saveErr != nil:
			t.failures = append(t.failures, saveErr)
		default:
			a.do(t, c)
		}
	})
	for _, t := range tasks {
		if t.gone {
			_, err := a.rules.Get(t.vm.Process)
			t.gone = errors.Is(err, host.ErrGone)
		}
	}
	err := a.write(a.table.sorted(nil))
	a.table.changed = err != nil
	return errors.Join(saveErr, err)
}

func (a *Actuator[V]) each(tasks []*task[V], do func(*task[V], change[V])) {
	for _, t := range tasks {
		for _, c := range t.decision.changes {
			do(t, c)
		}
	}
}

// write saves the entries, which are sorted, unless that was done.
func (a *Actuator[V]) write(sorted []journal.Record[V]) error {
	if a.saved != nil && slices.EqualFunc(a.saved, sorted, journal.Record[V].Equal) {
		return nil
	}
	if err := a.save(sorted); err != nil {
		a.saved = nil
		return err
	}
	a.saved = sorted // never nil: an empty store is known to be empty
	return nil
}

func (a *Actuator[V]) do(t *task[V], c change[V]) {
	var err error
	switch c.action {
	case forget:
		a.table.remove(c.entry.Process, c.thread)
		return
	case give:
		err = a.give(c)
	case restore:
		if err = a.restore(t.vm, c.thread, c.entry.Original); err == nil {
			c.entry.Undone = true
			a.table.put(c.entry)
		}
	case release:
		var standard V
		if err = a.restore(t.vm, c.thread, standard); err != nil {
			a.table.put(c.entry)
		}
	}
	switch {
	case errors.Is(err, host.ErrGone):
		a.table.remove(c.entry.Process, c.thread)
		t.gone = true
	case err != nil:
		t.failures = append(t.failures, err)
	default:
		t.changed++
	}
}

// give writes and reads back. What was written stays in the entries also when
// another value is read back, so that it is undone.
func (a *Actuator[V]) give(c change[V]) error {
	if err := a.rules.Set(c.thread, c.entry.Ours); err != nil {
		if _, known := a.Entry(c.entry.Process, c.thread); !known && !isZero(c.entry.Previous) {
			// It still has what it inherited.
			c.entry.Ours = c.entry.Previous
			a.table.put(c.entry)
		}
		return err
	}
	a.table.put(c.entry)
	got, err := a.rules.Get(c.thread)
	if err != nil {
		return err
	}
	if !got.Equal(c.entry.Ours) {
		return fmt.Errorf("thread %d was given %s %.64v and reads back %.64v", c.thread.TID, a.rules.Name(), c.entry.Ours, got)
	}
	return nil
}

// restore writes an original value and reads it back. One that cannot be had any
// more, such as CPUs that have left the cpuset, becomes the default, as the kernel
// would have made it.
func (a *Actuator[V]) restore(vm *VM[V], thread host.TaskID, value V) error {
	_, known := a.rules.Default(vm)
	if known && isZero(a.rules.Fit(vm, value)) {
		var none V
		value = none
	}
	if err := a.rules.Set(thread, value); err != nil {
		return err
	}
	got, err := a.rules.Get(thread)
	if err != nil {
		return err
	}
	if want := a.rules.shown(vm, value); known && !got.Equal(want) {
		return fmt.Errorf("thread %d was restored to %s %.64v and reads back %.64v", thread.TID, a.rules.Name(), want, got)
	}
	return nil
}

// forgetEnded drops the entries of threads that were not read any more and have
// ended. One that has no such attribute now may have it again, with our value: the kernel
// keeps the slice of a thread that is real-time for a while.
func (a *Actuator[V]) forgetEnded(known entries[V], vm *VM[V]) {
	in := 0
	for i := range vm.Threads {
		if _, ours := known[vm.Threads[i].ID]; ours {
			in++
		}
	}
	if in == len(known) {
		return
	}
	present := make(map[host.TaskID]bool, len(vm.Threads))
	for i := range vm.Threads {
		present[vm.Threads[i].ID] = true
	}
	for id := range known {
		if present[id] {
			continue
		}
		if _, err := a.rules.Get(id); errors.Is(err, host.ErrGone) {
			a.table.remove(vm.Process, id)
		}
	}
}

// result says what became of a VM.
func (a *Actuator[V]) result(t *task[V]) Result[V] {
	r := Result[V]{Result: actuate.Result{
		VM: t.vm.VM, Outcome: t.decision.outcome, Message: t.decision.message, Changed: t.changed,
	}}
	switch {
	case t.gone:
		r.Outcome, r.Message = actuate.Gone, "the VM ended"
		return r
	case len(t.failures) > 0:
		r.Outcome, r.Message = outcomeOf(t.failures[0])
		return r
	}
	known := a.table.processes[t.vm.Process]
	if len(known) > 0 {
		r.Held = make([]Thread[V], 0, len(known))
	}
	for _, thread := range t.vm.Threads {
		if entry, ours := known[thread.ID]; ours && !entry.Undone {
			r.Held = append(r.Held, Thread[V]{ID: thread.ID, Role: thread.Role, Value: entry.Ours})
		}
	}
	return r
}

func outcomeOf(failure error) (actuate.Outcome, string) {
	if errors.Is(failure, host.ErrUnsupported) {
		return actuate.Unsupported, failure.Error()
	}
	return actuate.Failed, failure.Error()
}
