package proofs

import (
	"sync"
	"time"

	"github.com/joulevirt/joulevirt/internal/observe/credible"
)

// meter of a node, and whether it is to be believed.
type meter struct {
	mu    sync.Mutex
	watch credible.Watch
	said  credible.Verdict
}

// believe tells when a node's meter is to be believed, by what is known of the node now.
func (s *Store) believe(node string, heard *Heard, now time.Time) credible.Verdict {
	s.mu.Lock()
	m := s.meters[node]
	if m == nil {
		m = &meter{}
		s.meters[node] = m
	}
	s.mu.Unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.said = m.watch.Look(credible.Sight{
		Rates: heard.Rates, Received: heard.Received, Power: heard.Power, Schedules: heard.Schedules, BusyCore: heard.BusyCore,
	}, now)
	return m.said
}

// Meter tells when a node's meter is to be believed, as of when it was last heard. The zero
// value: always.
func (s *Store) Meter(node string) credible.Verdict {
	s.mu.Lock()
	m := s.meters[node]
	s.mu.Unlock()
	if m == nil {
		return credible.Verdict{}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.said
}
