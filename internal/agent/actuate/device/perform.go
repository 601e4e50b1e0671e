package device

import (
	"errors"
	"fmt"
	"maps"

	"github.com/joulevirt/joulevirt/internal/host"
)

// perform writes the journal with all that is to be done, then changes, and writes what
// is left. Without a journal nothing new is done.
func (a *Actuator[D, V]) perform(tasks []*task[V]) error {
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
				t.failures = append(t.failures, fmt.Errorf("not %s without a journal: %w", a.words.Done, saveErr))
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
	return a.saveAll(a.ours)
}

func (a *Actuator[D, V]) do(t *task[V], c change) {
	k := Key{t.vm.Process, c.name}
	var err error
	switch c.action {
	case keep:
		err = a.lever.Failure(k)
	case forget:
		a.lever.End(k)
		delete(a.ours, k)
	case apply:
		err = a.set(t, k)
	case undo, tidy:
		a.lever.End(k)
		if t.memory != nil {
			delete(t.memory.applied, k.Name) // or its absence would be somebody else's doing
		}
		if err = a.lever.Unset(k); err == nil {
			delete(a.ours, k)
			if c.action == undo {
				t.changed++
			}
		}
	}
	switch {
	case errors.Is(err, host.ErrGone):
		a.lever.End(k)
		delete(a.ours, k)
		t.gone = true
	case err != nil:
		t.failures = append(t.failures, err)
	}
}

// set does what is wanted to a device. What the host would not do for a reason that
// lasts is an outcome and no failure.
func (a *Actuator[D, V]) set(t *task[V], k Key) error {
	_, wasOurs := a.ours[k]
	a.ours[k] = k.entry(t.vm.PodUID)
	// Until it is read back nothing is known to be applied: what a failure left half
	// done is nobody else's work.
	delete(t.memory.applied, k.Name)
	err := a.lever.Set(k, *t.want)
	switch {
	case errors.Is(err, host.ErrForeign):
		// Somebody was faster. What may be left of the agent's goes in the next round.
		a.lever.End(k)
		t.decision.outcome, t.decision.message = Foreign, err.Error()
		return nil
	case errors.Is(err, host.ErrUnsupported):
		if !wasOurs {
			delete(a.ours, k)
		}
		t.decision.outcome, t.decision.message = Unsupported, err.Error()
		t.memory.refuse(err.Error(), t.look)
		return nil
	}
	t.changed++
	return err
}

// readBack reads what was done, remembers what is as it was to be, and begins what goes
// on there.
func (a *Actuator[D, V]) readBack(t *task[V]) {
	wrote := map[string]bool{}
	for _, c := range t.decision.changes {
		if c.action == apply {
			wrote[c.name] = true
		}
	}
	if len(wrote) == 0 || len(t.failures) > 0 || t.gone || t.decision.outcome != Applied {
		return
	}
	devices, err := a.lever.Devices(t.vm.Process)
	if err != nil {
		t.gone = errors.Is(err, host.ErrGone)
		t.failures = append(t.failures, err)
		return
	}
	for _, one := range devices {
		d := a.lever.Device(one)
		if !wrote[d.Name] {
			continue
		}
		if !a.lever.IsAs(one, *t.want) {
			t.failures = append(t.failures, fmt.Errorf("%s was %s and reads back %s", d.Name, a.words.Done, a.lever.Tell(one)))
			continue
		}
		t.memory.remember(d.Name, *t.want, d.Index)
		a.lever.Begin(Key{t.vm.Process, d.Name}, *t.want)
	}
}
