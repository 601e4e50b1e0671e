package device

import (
	"fmt"
	"slices"
	"time"

	"github.com/joulevirt/joulevirt/internal/agent/actuate"
	"github.com/joulevirt/joulevirt/internal/host"
)

// retryAfter is when a kernel is asked again that could not do it: modules may be installed
// meanwhile.
const retryAfter = time.Minute

// memory is what is known of a VM that the plan wants something of, beyond the journal. Times
// are those of CLOCK_MONOTONIC.
type memory[V Value[V]] struct {
	// applied is what this agent did and read back, by device.
	applied map[string]done[V]
	// contest counts how often something else undid that.
	contest actuate.Contest
	// refused says why the kernel cannot do it. It is asked again at the time retry.
	refused string
	retry   time.Duration
	// settled is what was decided for want, when nothing had to be changed for it: it stands
	// until the time given. Nil: the VM is to be read.
	settled *decision
	until   time.Duration
	want    V
}

// done is the value that a device was given, and the device's index then.
type done[V any] struct {
	value V
	index int
}

// settle remembers a decision for some time, unless something is to be changed for it.
func (m *memory[V]) settle(d decision, want *V, until time.Duration) {
	m.settled = nil
	if want == nil || len(d.changes) > 0 {
		return
	}
	m.settled, m.until, m.want = &d, until, *want
}

// decide plans the changes of one VM. want is nil when nothing is wanted of it. Foreign changes
// are counted in the memory.
func decide[V Value[V]](lever Lever[V], seen []host.Device, want *V, journaled map[string]bool, m *memory[V], now time.Duration) decision {
	if want == nil || (*want).IsZero() {
		next := memory[V]{}
		if want != nil {
			// Whoever contests what is wanted at other times still does.
			next.contest = m.contest
		}
		*m = next
		return decision{outcome: actuate.Undone, changes: undoAll(seen, journaled)}
	}
	m.countLost(seen, now)
	if now >= m.retry {
		m.refused = ""
	}
	foreign := ""
	for _, d := range seen {
		if d.Owner == host.QueueForeign {
			foreign = fmt.Sprintf("%s has queueing discipline %q, which is not the agent's: remove it to have the VM %s", d.Name, d.Queue, lever.Done)
			break
		}
	}
	left := func(outcome actuate.Outcome, why string) decision {
		return decision{outcome: outcome, message: why, changes: undoAll(seen, journaled)}
	}
	switch {
	case m.contest.Lost(now):
		return left(actuate.Contested, fmt.Sprintf("something else replaced or removed the agent's queueing discipline %d times within an hour", actuate.ContestLimit))
	case len(seen) == 0:
		return left(actuate.NoDevice, lever.None)
	case foreign != "":
		return left(actuate.Foreign, foreign)
	case m.refused != "":
		return left(actuate.Unsupported, m.refused)
	}
	d := decision{outcome: actuate.Applied}
	for i := range seen {
		was, known := m.applied[seen[i].Name]
		if !known || was.index != seen[i].Index || !was.value.Equal(*want) || !inForce(seen[i]) {
			d.changes = append(d.changes, change{apply, seen[i].Name})
		}
	}
	d.changes = append(d.changes, undoMissing(seen, journaled)...)
	return d
}

// countLost counts what this agent applied and somebody else undid, all at once as
// one act. A device that was made anew has lost nothing.
func (m *memory[V]) countLost(seen []host.Device, now time.Duration) {
	lost := slices.ContainsFunc(seen, func(d host.Device) bool {
		was, known := m.applied[d.Name]
		return known && was.index == d.Index && !inForce(d)
	})
	if lost {
		m.applied = nil
		m.contest.Add(now)
	}
}

// inForce reports whether all that the agent puts on a device is there. How its program is set
// is for nobody else to change.
func inForce(d host.Device) bool { return d.Owner == host.QueueOurs && d.Complete }

// undoAll removes what is ours from all devices, also what is left beside another's queue, and
// from those of the journal that are not listed any more.
func undoAll(seen []host.Device, journaled map[string]bool) []change {
	var changes []change
	for _, d := range seen {
		if d.Owner == host.QueueOurs || journaled[d.Name] {
			changes = append(changes, change{undo, d.Name})
		}
	}
	return append(changes, undoMissing(seen, journaled)...)
}

// undoMissing removes what is left of devices of the journal that are not listed any more.
func undoMissing(seen []host.Device, journaled map[string]bool) []change {
	var changes []change
	for name := range journaled {
		if !slices.ContainsFunc(seen, func(d host.Device) bool { return d.Name == name }) {
			changes = append(changes, change{undo, name})
		}
	}
	return changes
}

func forgetAll(journaled map[string]bool) []change {
	var changes []change
	for name := range journaled {
		changes = append(changes, change{forget, name})
	}
	return changes
}
