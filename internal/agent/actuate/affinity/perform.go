package affinity

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/joulevirt/joulevirt/internal/agent/discover"
	"github.com/joulevirt/joulevirt/internal/agent/journal"
	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/units"
)

// task is the work on one VM in one round.
type task struct {
	vm       *VM
	decision decision
	// failures of its changes; a thread that ended is none.
	failures []error
	gone     bool
	changed  int
}

// perform journals what will be bound, makes the changes, and journals what
// became of them.
func (a *Actuator) perform(tasks []*task) error {
	intended := maps.Clone(a.entries)
	for _, t := range tasks {
		for _, c := range t.decision.changes {
			if c.action == pin {
				intended[c.thread] = c.entry
			}
		}
	}
	saveErr := a.save(intended)
	for _, t := range tasks {
		for _, c := range t.decision.changes {
			if c.action == pin && saveErr != nil {
				t.failures = append(t.failures, saveErr)
				continue
			}
			a.do(t, c)
		}
		if t.gone {
			_, err := a.host.Affinity(t.vm.Process)
			t.gone = errors.Is(err, host.ErrGone)
		}
	}
	return errors.Join(saveErr, a.save(a.entries))
}

// save writes the entries unless the store has them.
func (a *Actuator) save(entries map[host.TaskID]journal.Entry) error {
	sorted := slices.SortedFunc(maps.Values(entries), func(x, y journal.Entry) int {
		return cmp.Or(cmp.Compare(x.Thread.PID, y.Thread.PID), cmp.Compare(x.Thread.TID, y.Thread.TID))
	})
	if a.saved != nil && slices.EqualFunc(a.saved, sorted, journal.Entry.Equal) {
		return nil
	}
	if err := a.store.Save(sorted); err != nil {
		a.saved = nil
		return err
	}
	// Never nil: an empty store is known to be empty.
	a.saved = append(make([]journal.Entry, 0, len(sorted)), sorted...)
	return nil
}

func (a *Actuator) do(t *task, c change) {
	var err error
	switch c.action {
	case forget:
		delete(a.entries, c.thread)
		return
	case pin:
		err = a.pin(c)
	case restore:
		if err = a.putBack(c.thread, c.entry.Original, t.vm.Cpuset); err == nil {
			c.entry.Undone = true
			a.entries[c.thread] = c.entry
		}
	case release:
		err = a.putBack(c.thread, journal.Original{}, t.vm.Cpuset)
	}
	switch {
	case errors.Is(err, host.ErrGone):
		delete(a.entries, c.thread)
		t.gone = true
	case err != nil:
		t.failures = append(t.failures, err)
	default:
		t.changed++
	}
}

// pin writes and reads back. What was written stays in the entries also when
// another value is read back, so that it is undone.
func (a *Actuator) pin(c change) error {
	if err := a.host.SetAffinity(c.thread, c.entry.Ours); err != nil {
		return err
	}
	a.entries[c.thread] = c.entry
	got, err := a.host.Affinity(c.thread)
	if err != nil {
		return err
	}
	if !got.Equal(c.entry.Ours) {
		return fmt.Errorf("thread %d was bound to CPUs %.64s and reads back %.64s", c.thread.TID, c.entry.Ours, got)
	}
	return nil
}

// putBack writes an original affinity and reads it back. An affinity that the
// cpuset no longer has any CPU of cannot be had: such a thread becomes
// unrestricted, as the kernel would have made it.
func (a *Actuator) putBack(thread host.TaskID, original journal.Original, cpuset units.CPUSet) error {
	want := original.CPUs
	possible := original.CPUs
	if !cpuset.IsEmpty() {
		possible = original.CPUs.Intersection(cpuset)
	}
	if original.Unrestricted() || possible.IsEmpty() {
		want, possible = units.CPUSet{}, cpuset
	}
	var err error
	if want.IsEmpty() {
		err = a.host.ClearAffinity(thread)
	} else {
		err = a.host.SetAffinity(thread, want)
	}
	if err != nil {
		return err
	}
	got, err := a.host.Affinity(thread)
	if err != nil {
		return err
	}
	if !possible.IsEmpty() && !got.Equal(possible) {
		return fmt.Errorf("thread %d was to get back CPUs %.64s and reads back %.64s", thread.TID, possible, got)
	}
	return nil
}

// forgetEnded drops the entries of threads that are not in view any more and
// have ended.
func (a *Actuator) forgetEnded(entries map[host.TaskID]journal.Entry, vm *VM) {
	present := map[host.TaskID]bool{}
	for _, thread := range vm.Threads {
		present[thread.ID] = true
	}
	for id := range entries {
		if present[id] {
			continue
		}
		if _, err := a.host.Affinity(id); errors.Is(err, host.ErrGone) {
			delete(a.entries, id)
		}
	}
}

// result says what became of a VM.
func (a *Actuator) result(t *task) Result {
	r := Result{
		PodUID: t.vm.PodUID, Namespace: t.vm.Namespace, Name: t.vm.Name,
		Outcome: t.decision.outcome, Message: t.decision.message, Changed: t.changed,
	}
	switch {
	case t.gone:
		r.Outcome, r.Message = Gone, "the VM ended"
		return r
	case len(t.failures) > 0:
		r.Outcome, r.Message = Failed, t.failures[0].Error()
		return r
	}
	for _, thread := range t.vm.Threads {
		entry, ours := a.entries[thread.ID]
		if !ours || entry.Undone || thread.Role.Kind != discover.VCPU {
			continue
		}
		if r.VCPUs == nil {
			r.VCPUs = map[int]units.CPUSet{}
		}
		r.VCPUs[thread.Role.VCPU] = entry.Ours
	}
	return r
}
