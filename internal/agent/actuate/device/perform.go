package device

import (
	"errors"
	"fmt"
	"maps"

	"github.com/joulevirt/joulevirt/internal/agent/actuate"
	"github.com/joulevirt/joulevirt/internal/host"
)

// perform writes the journal with all that is to be done, then changes, and writes what
// is left. Without a journal nothing new is done.
func (a *Actuator[V]) perform(tasks []*task[V]) error {
	intended := maps.Clone(a.ours)
	for _, t := range tasks {
		for _, c := range t.decision.changes {
			if c.action == apply {
				k := Key{t.vm.Process, c.name}
				intended[k] = k.entry(t.vm.PodUID)
			}
		}
	}
	saveErr := a.saveAll(intended)
	for _, t := range tasks {
		for _, c := range t.decision.changes {
			if c.action == apply && saveErr != nil {
				t.failures = append(t.failures, fmt.Errorf("not %s without a journal: %w", a.lever.Done, saveErr))
				continue
			}
			a.do(t, c)
		}
		if t.memory != nil {
			a.readBack(t)
		}
		if err := a.keeper.failure(); err != nil && t.decision.outcome == actuate.Applied {
			t.failures = append(t.failures, err)
		}
	}
	a.keeper.setDevices(a.lever.Devices, len(a.ours))
	if saveErr != nil {
		return saveErr
	}
	return a.saveAll(a.ours)
}

func (a *Actuator[V]) do(t *task[V], c change) {
	k := Key{t.vm.Process, c.name}
	var err error
	switch c.action {
	case forget:
		delete(a.ours, k)
	case apply:
		err = a.set(t, k)
	case undo:
		if t.memory != nil {
			delete(t.memory.applied, k.Name) // or its absence would be somebody else's doing
		}
		if err = a.lever.Unset(k.Process, k.Name); err == nil {
			delete(a.ours, k)
			t.changed++
		}
	}
	switch {
	case errors.Is(err, host.ErrGone):
		delete(a.ours, k)
		t.gone = true
	case err != nil:
		t.failures = append(t.failures, err)
	}
}

// set does what is wanted to a device. What the host would not do for a reason that
// lasts is an outcome and no failure.
func (a *Actuator[V]) set(t *task[V], k Key) error {
	_, wasOurs := a.ours[k]
	a.ours[k] = k.entry(t.vm.PodUID)
	// Until it is read back nothing is known to be applied: what a failure left half
	// done is nobody else's work.
	delete(t.memory.applied, k.Name)
	err := a.lever.Set(k.Process, k.Name, *t.want)
	switch {
	case errors.Is(err, host.ErrForeign):
		// Somebody was faster. What may be left of the agent's goes in the next round.
		t.decision.outcome, t.decision.message = actuate.Foreign, err.Error()
		return nil
	case errors.Is(err, host.ErrUnsupported):
		if !wasOurs {
			delete(a.ours, k)
		}
		t.decision.outcome, t.decision.message = actuate.Unsupported, err.Error()
		t.memory.refused, t.memory.retry = err.Error(), t.now+retryAfter
		return nil
	}
	t.changed++
	return err
}

// readBack reads what was done, and remembers what is as it was to be.
func (a *Actuator[V]) readBack(t *task[V]) {
	wrote := map[string]bool{}
	for _, c := range t.decision.changes {
		if c.action == apply {
			wrote[c.name] = true
		}
	}
	if len(wrote) == 0 || len(t.failures) > 0 || t.gone || t.decision.outcome != actuate.Applied {
		return
	}
	devices, err := a.lever.List(t.vm.Process)
	if err != nil {
		t.gone = errors.Is(err, host.ErrGone)
		t.failures = append(t.failures, err)
		return
	}
	for _, d := range devices {
		if !wrote[d.Name] {
			continue
		}
		if !inForce(d) {
			t.failures = append(t.failures, fmt.Errorf("%s was %s and reads back as %s, complete %v", d.Name, a.lever.Done, d.Queue, d.Complete))
			continue
		}
		if t.memory.applied == nil {
			t.memory.applied = map[string]done[V]{}
		}
		t.memory.applied[d.Name] = done[V]{*t.want, d.Index}
	}
}
