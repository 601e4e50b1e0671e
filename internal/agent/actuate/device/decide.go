package device

import (
	"fmt"
	"slices"

	"github.com/joulevirt/joulevirt/internal/host"
)

const (
	// patience is how often somebody else may undo what was applied before it is
	// left to them.
	patience = 2
	// retryLooks is after how many looks a kernel is asked again that could not do it:
	// modules may be installed meanwhile.
	retryLooks = 12
)

// decide plans the changes of one VM. want is nil when nothing is wanted of it. What was
// undone by somebody else is counted in the memory.
func decide[D any, V Value[V]](lever Lever[D, V], devices []D, want *V, journaled map[string]bool, m *memory[V], look int64) decision {
	seen := make([]Device, len(devices))
	for i := range devices {
		seen[i] = lever.Device(devices[i])
	}
	if want == nil || (*want).IsZero() {
		next := memory[V]{}
		if want != nil {
			// Whoever contests what is wanted at other times still does.
			next.lost, next.contested = m.lost, m.contested
		}
		*m = next
		return decision{outcome: Undone, changes: undoAll(seen, journaled)}
	}
	m.countLost(seen, func(i int, value V) bool { return lever.IsAs(devices[i], value) })
	if look >= m.retry {
		m.refused = ""
	}
	words, foreign := lever.Words(), ""
	for _, d := range seen {
		if d.Owner == host.QueueForeign {
			foreign = fmt.Sprintf("%s has queueing discipline %q, which is not the agent's: remove it to have the VM %s", d.Name, d.Queue, words.Done)
			break
		}
	}
	left := func(outcome Outcome, why string) decision {
		return decision{outcome: outcome, message: why, changes: undoAll(seen, journaled)}
	}
	switch {
	case m.contested:
		return left(Contested, fmt.Sprintf("something else replaced or removed the agent's queueing discipline %d times", patience))
	case len(seen) == 0:
		return left(None, words.None)
	case foreign != "":
		return left(Foreign, foreign)
	case m.refused != "":
		return left(Unsupported, m.refused)
	}
	d := decision{outcome: Applied}
	for i := range seen {
		was, known := m.applied[seen[i].Name]
		c := change{apply, seen[i].Name}
		if known && was.index == seen[i].Index && was.value.Equal(*want) && lever.IsAs(devices[i], *want) {
			c.action = keep
		}
		d.changes = append(d.changes, c)
	}
	d.changes = append(d.changes, undoMissing(seen, journaled)...)
	return d
}

// countLost looks for what this agent applied and somebody else undid, all at once as
// one act. A device that was made anew has lost nothing.
func (m *memory[V]) countLost(seen []Device, isAs func(i int, value V) bool) {
	lost := false
	for i := range seen {
		was, known := m.applied[seen[i].Name]
		if known && was.index == seen[i].Index && !isAs(i, was.value) {
			lost = true
		}
	}
	if !lost {
		return
	}
	m.applied = nil
	m.lost++
	m.contested = m.lost >= patience
}

// undoAll takes what is ours from all devices, also what the journal knows of and is
// not to be seen any more.
func undoAll(seen []Device, journaled map[string]bool) []change {
	var changes []change
	for _, d := range seen {
		switch {
		case d.Owner == host.QueueOurs:
			changes = append(changes, change{undo, d.Name})
		case journaled[d.Name]:
			changes = append(changes, change{tidy, d.Name})
		}
	}
	return append(changes, undoMissing(seen, journaled)...)
}

// undoMissing takes what is left of devices that the journal knows of and that are not
// there any more.
func undoMissing(seen []Device, journaled map[string]bool) []change {
	var changes []change
	for name := range journaled {
		if !slices.ContainsFunc(seen, func(d Device) bool { return d.Name == name }) {
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
