package shape

import (
	"fmt"

	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// patience is how often somebody else may undo what was applied before it is
// left to them.
const patience = 2

// decide plans the changes of one VM. want is nil when it is not to be shaped.
// What was undone by somebody else is counted in the memory.
func decide(uplinks []host.Uplink, want *model.Shaping, journaled map[string]bool, m *memory) decision {
	if want == nil || want.IsZero() {
		m.applied, m.lost, m.contested = nil, 0, false
		return decision{outcome: Undone, changes: undo(uplinks, journaled)}
	}
	m.countLost(uplinks)
	foreign := ""
	for _, uplink := range uplinks {
		if uplink.Owner == host.QueueForeign {
			foreign = fmt.Sprintf("%s has queueing discipline %q, which is not the agent's: remove it to have the VM shaped", uplink.Name, uplink.Queue)
			break
		}
	}
	switch {
	case m.contested:
		return decision{
			outcome: Contested, changes: undo(uplinks, journaled),
			message: fmt.Sprintf("something else replaced or removed the agent's queueing discipline %d times", patience),
		}
	case len(uplinks) == 0:
		return decision{
			outcome: NoUplink, changes: undo(uplinks, journaled),
			message: "the pod has no network device that the kernel can shape: devices passed through (SR-IOV) bypass it",
		}
	case foreign != "":
		return decision{outcome: Foreign, message: foreign, changes: undo(uplinks, journaled)}
	}
	d := decision{outcome: Applied}
	for _, uplink := range uplinks {
		written, known := m.applied[uplink.Name]
		c := change{apply, uplink.Name}
		if known && written.Equal(*want) && readsAs(uplink, *want) {
			c.action = keep
		}
		d.changes = append(d.changes, c)
	}
	return d
}

// countLost looks for what this agent applied and somebody else undid, all at
// once as one act.
func (m *memory) countLost(uplinks []host.Uplink) {
	lost := false
	for _, uplink := range uplinks {
		if written, known := m.applied[uplink.Name]; known && !readsAs(uplink, written) {
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

// readsAs tells whether an uplink is as it was to be, to a byte per second.
func readsAs(uplink host.Uplink, shaping model.Shaping) bool {
	const bitsPerByte = 8
	off := uplink.Ceiling - shaping.Ceiling
	return uplink.Owner == host.QueueOurs && uplink.Turns == (shaping.Turn != nil) &&
		units.BitsPerSecond(-bitsPerByte) <= off && off <= bitsPerByte
}

// undo takes what is ours from all uplinks, also what the journal knows of and
// is not to be seen any more.
func undo(uplinks []host.Uplink, journaled map[string]bool) []change {
	var changes []change
	seen := map[string]bool{}
	for _, uplink := range uplinks {
		seen[uplink.Name] = true
		switch {
		case uplink.Owner == host.QueueOurs:
			changes = append(changes, change{unshape, uplink.Name})
		case journaled[uplink.Name]:
			changes = append(changes, change{tidy, uplink.Name})
		}
	}
	for name := range journaled {
		if !seen[name] {
			changes = append(changes, change{unshape, name})
		}
	}
	return changes
}
