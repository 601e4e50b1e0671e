package shape

import (
	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/model"
)

// Outcome is what became of the shaping of one VM.
type Outcome string

const (
	// Applied: every uplink was read back as the plan wants it.
	Applied Outcome = "Applied"
	// Undone: the VM is not to be shaped, and nothing of the agent's is left.
	Undone Outcome = "Undone"
	// NoUplink: the VM has no device that the kernel could shape, or shares the
	// node's own network.
	NoUplink Outcome = "NoUplink"
	// Foreign: an uplink has a queueing discipline of somebody else's, which is
	// left alone. None of the VM's uplinks is shaped.
	Foreign Outcome = "Foreign"
	// Contested: somebody else replaced or removed what was shaped twice. The VM
	// is left unshaped until it leaves the plan.
	Contested Outcome = "Contested"
	// Failed: the kernel or the journal refused, or something else was read back.
	Failed Outcome = "Failed"
	// Gone: the VM ended meanwhile.
	Gone Outcome = "Gone"
)

// Result is what became of one VM.
type Result struct {
	PodUID          string
	Namespace, Name string
	Outcome         Outcome
	// Message says more, in words.
	Message string
	// Changed counts the uplinks that were shaped or unshaped.
	Changed int
}

// key names an uplink.
type key struct {
	process host.TaskID
	uplink  string
}

// action is what to do to one uplink.
type action int

const (
	keep    action = iota // it is as wanted
	apply                 // shape it
	unshape               // give it the kernel's default back
	tidy                  // its queue is not ours any more: take what is left beside it
	forget                // nothing: it is gone, or was never ours
)

// change is one thing to do.
type change struct {
	action action
	uplink string
}

// decision is what is to become of a VM.
type decision struct {
	outcome Outcome
	message string
	changes []change
}

// memory is what is known of a VM that the plan shapes, beyond the journal.
type memory struct {
	// applied is what this agent wrote and read back, by uplink.
	applied map[string]model.Shaping
	// lost counts how often somebody else undid that.
	lost      int
	contested bool
	// settled is what was decided at the look of that number for want, when nothing
	// had to be changed for it. Nil: the VM is to be looked at.
	settled *decision
	looked  int64
	want    model.Shaping
}

// recent is a decision that needs no new look; nil when there is none.
func (m *memory) recent(want *model.Shaping, look int64) *decision {
	if m.settled == nil || want == nil || !m.want.Equal(*want) || m.looked != look {
		return nil
	}
	return m.settled
}

// settle remembers a decision, unless something is to be changed for it.
func (m *memory) settle(d decision, want *model.Shaping, look int64) {
	m.settled = nil
	if want == nil {
		return
	}
	for _, c := range d.changes {
		if c.action != keep {
			return
		}
	}
	m.settled, m.looked, m.want = &d, look, copyOf(*want)
}
