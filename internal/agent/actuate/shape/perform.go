package shape

import (
	"errors"
	"fmt"
	"maps"

	"github.com/joulevirt/joulevirt/internal/agent/discover"
	"github.com/joulevirt/joulevirt/internal/agent/journal"
	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/model"
)

// task is the work on one VM.
type task struct {
	vm       discover.VM
	want     *model.Shaping
	memory   *memory
	decision decision
	changed  int
	gone     bool
	failures []error
}

// perform writes the journal with all that is to be shaped, then changes, and
// writes what is left. Without a journal nothing new is shaped.
func (a *Actuator) perform(tasks []*task) error {
	intended := maps.Clone(a.ours)
	for _, t := range tasks {
		for _, c := range t.decision.changes {
			if c.action == apply {
				k := key{t.vm.Process, c.uplink}
				intended[k] = journal.Uplink{PodUID: t.vm.PodUID, Process: k.process, Name: k.uplink}
			}
		}
	}
	saveErr := a.save(intended)
	for _, t := range tasks {
		for _, c := range t.decision.changes {
			if c.action == apply && saveErr != nil {
				t.failures = append(t.failures, fmt.Errorf("not shaped without a journal: %w", saveErr))
				continue
			}
			a.do(t, c)
		}
		if t.memory != nil {
			a.readBack(t)
		}
	}
	if saveErr != nil {
		return saveErr
	}
	return a.save(a.ours)
}

func (a *Actuator) do(t *task, c change) {
	k := key{t.vm.Process, c.uplink}
	var err error
	switch c.action {
	case keep:
		err = a.turns.failure(k)
	case forget:
		a.turns.remove(k)
		delete(a.ours, k)
		return
	case apply:
		a.ours[k] = journal.Uplink{PodUID: t.vm.PodUID, Process: k.process, Name: k.uplink}
		// Until it is read back nothing is known to be applied: what a failure left
		// half done is nobody else's work.
		delete(t.memory.applied, k.uplink)
		if t.want.Turn == nil {
			a.turns.remove(k) // or the gate would be held once more after it was opened
		}
		if err = a.host.Shape(k.process, k.uplink, *t.want); errors.Is(err, host.ErrForeign) {
			// Somebody was faster. What may be left of the agent's goes in the next
			// round.
			a.turns.remove(k)
			t.decision.outcome, t.decision.message = Foreign, err.Error()
			return
		}
		t.changed++
	case unshape, tidy:
		a.turns.remove(k)
		if err = a.host.Unshape(k.process, k.uplink); err == nil {
			delete(a.ours, k)
			if c.action == unshape {
				t.changed++
			}
		}
	}
	switch {
	case errors.Is(err, host.ErrGone):
		a.turns.remove(k)
		delete(a.ours, k)
		t.gone = true
	case err != nil:
		t.failures = append(t.failures, err)
	}
}

// readBack reads what was shaped, remembers what is as it was to be, and has
// turns begin there.
func (a *Actuator) readBack(t *task) {
	wrote := map[string]bool{}
	for _, c := range t.decision.changes {
		if c.action == apply {
			wrote[c.uplink] = true
		}
	}
	if len(wrote) == 0 || len(t.failures) > 0 || t.gone || t.decision.outcome != Applied {
		return
	}
	uplinks, err := a.host.Uplinks(t.vm.Process)
	if err != nil {
		t.gone = errors.Is(err, host.ErrGone)
		t.failures = append(t.failures, err)
		return
	}
	for _, uplink := range uplinks {
		if !wrote[uplink.Name] {
			continue
		}
		if !readsAs(uplink, *t.want) {
			t.failures = append(t.failures, fmt.Errorf("%s was shaped and reads back %s, ceiling %d bit/s, turns %v",
				uplink.Name, uplink.Queue, int64(uplink.Ceiling), uplink.Turns))
			continue
		}
		if t.memory.applied == nil {
			t.memory.applied = map[string]model.Shaping{}
		}
		t.memory.applied[uplink.Name] = copyOf(*t.want)
		a.turns.set(key{t.vm.Process, uplink.Name}, t.want.Turn)
	}
}

func copyOf(s model.Shaping) model.Shaping {
	if s.Turn != nil {
		turn := *s.Turn
		s.Turn = &turn
	}
	return s
}

// result says what became of a VM.
func (t *task) result() Result {
	r := Result{
		PodUID: t.vm.PodUID, Namespace: t.vm.Namespace, Name: t.vm.Name,
		Outcome: t.decision.outcome, Message: t.decision.message, Changed: t.changed,
	}
	switch {
	case t.gone:
		r.Outcome, r.Message = Gone, "the VM ended"
	case len(t.failures) > 0:
		r.Outcome, r.Message = Failed, t.failures[0].Error()
	}
	return r
}
