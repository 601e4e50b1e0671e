// Package flood keeps what the agents say of each VM that they watch for floods of small
// packets.
package flood

import (
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/observe/heard"
)

// State is what is known of a VM. The zero value: nothing.
type State struct {
	// Watched is true when the VM's agent looks for floods.
	Watched bool
	// Flood is the newest evidence. Nil: the VM is under none.
	Flood *model.Flood
	// Since when, by the manager's clock.
	Since time.Time
}

// Store follows each VM. It is safe for concurrent use, and its memory goes with the
// manager.
type Store struct {
	*heard.VMs[vm]
	clock              clock.PassiveClock
	staleAfter, settle time.Duration
	// leads is since when the manager does. Nil: it does not.
	leads atomic.Pointer[time.Time]
}

type vm struct {
	State
	// seen is when there was a flood last.
	seen time.Time
}

// NewStore returns an empty store. A flood lasts until none was seen for settle: what
// comes again before is the same one. Nothing is known of a VM that is unheard of for
// longer than staleAfter.
func NewStore(clk clock.PassiveClock, staleAfter, settle time.Duration) *Store {
	return &Store{VMs: heard.New[vm](clk, staleAfter), clock: clk, staleAfter: staleAfter, settle: settle}
}

// Lead says that the manager leads from now on.
func (s *Store) Lead() {
	now := s.clock.Now()
	s.leads.Store(&now)
}

// Awaited is true while the manager has not led for long enough to have heard of every VM:
// that nothing is known of one then says nothing about it.
func (s *Store) Awaited() bool {
	since := s.leads.Load()
	return since == nil || s.clock.Since(*since) <= s.staleAfter
}

// Add takes in a new round of a node. What an agent says of a launcher pod that is not
// known on its node does not count.
func (s *Store) Add(rates *model.NodeRates, known func(podUID string) bool) {
	for i := range rates.VMs {
		if buffering := rates.VMs[i].Buffering; known(rates.VMs[i].PodUID) {
			s.Hear(rates.Node, rates.VMs[i].PodUID, func(now time.Time, v *vm) { v.hear(now, buffering, s.settle) })
		}
	}
}

func (v *vm) hear(now time.Time, buffering *model.BufferingRates, settle time.Duration) {
	v.Watched = buffering != nil
	switch {
	case v.Watched && buffering.Flood != nil:
		if v.Flood == nil {
			v.Since = now
		}
		v.Flood, v.seen = buffering.Flood, now
	case v.Flood != nil && now.Sub(v.seen) >= settle:
		v.Flood, v.Since = nil, time.Time{}
	}
}

// Of returns what is known of the VM of a launcher pod.
func (s *Store) Of(podUID string) State {
	v, _ := s.VMs.Of(podUID)
	return v.State
}
