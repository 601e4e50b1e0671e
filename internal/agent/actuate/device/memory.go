package device

// memory is what is known of a VM that the plan wants something of, beyond the journal.
type memory[V Value[V]] struct {
	// applied is what this agent did and read back, by device.
	applied map[string]done[V]
	// lost counts how often somebody else undid that.
	lost      int
	contested bool
	// refused says why the kernel cannot do it. It is asked again at the look of number
	// retry.
	refused string
	retry   int64
	// settled is what was decided at the look of that number for want, when nothing
	// had to be changed for it. Nil: the VM is to be looked at.
	settled *decision
	looked  int64
	want    V
}

// done is what a device was given, and which one that was.
type done[V any] struct {
	value V
	index int
}

// recent is a decision that needs no new look; nil when there is none.
func (m *memory[V]) recent(want *V, look int64) *decision {
	if m.settled == nil || want == nil || !m.want.Equal(*want) || m.looked != look {
		return nil
	}
	return m.settled
}

// settle remembers a decision, unless something is to be changed for it.
func (m *memory[V]) settle(d decision, want *V, look int64) {
	m.settled = nil
	if want == nil {
		return
	}
	for _, c := range d.changes {
		if c.action != keep {
			return
		}
	}
	m.settled, m.looked, m.want = &d, look, *want
}

// refuse remembers that the kernel cannot do it.
func (m *memory[V]) refuse(why string, look int64) {
	m.refused, m.retry = why, look+retryLooks
}

// remember that a device was read back as it is to be.
func (m *memory[V]) remember(name string, value V, index int) {
	if m.applied == nil {
		m.applied = map[string]done[V]{}
	}
	m.applied[name] = done[V]{value, index}
}
