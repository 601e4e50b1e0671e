// Package blocks measures what each block of the schedules of nodes' levers brought: it
// turns what the manager hears of a node, pull by pull, into outcomes that trials are
// judged by. docs/design/proof-and-ledger.md tells what is counted, by which clock, and what is not.
package blocks

import (
	"maps"
	"sync"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/energy/stream"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/verify"
)

// Sight is what is known of a node at one moment.
type Sight struct {
	// Sample of the node's rates and power.
	stream.Sample
	// Schedules of the plan that the node has, and levers that it says were Withdrawn.
	Schedules []model.Schedule
	Withdrawn []model.Withdrawal
	// Partly are the levers that the plan does not do yet for all VMs for which it would.
	Partly []v1alpha1.Lever
}

// Block is one that has ended, with what it brought.
type Block struct {
	// Lever, Seed and Start are those of the schedule.
	Lever v1alpha1.Lever
	Seed  int64
	Start time.Time
	// From and To are the whole block with its wash-out, by the node's clock.
	From, To time.Time
	// Source and Scope of the joules. Empty: none were counted.
	Source v1alpha1.PowerSource
	Scope  v1alpha1.PowerScope
	// Outcome of the node as the unit. Where the block is excluded, it has what was
	// counted nevertheless.
	verify.Outcome
}

// Store measures the blocks of all nodes that have schedules. It is safe for concurrent
// use. What it knows of a block is gone with the manager: a new leader excludes the block
// that it finds, unless that still is in its wash-out.
type Store struct {
	mu    sync.Mutex
	nodes map[string]*node
}

// NewStore returns an empty store.
func NewStore() *Store { return &Store{nodes: map[string]*node{}} }

// Look takes in what is known of a node now, by the manager's clock, and returns the
// blocks that it closes, each schedule's in their order and each once while the plan has
// it. It is called at least as often as rates and figures come; what was seen already
// counts once. A block is closed when pulls and figures have come past its end, and some
// minutes after its end when they do not come.
func (s *Store) Look(name string, sight Sight, now time.Time) []Block {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.nodes[name]
	if n == nil {
		if len(sight.Schedules) == 0 {
			return nil
		}
		n = &node{}
		s.nodes[name] = n
	}
	n.keep(sight.Schedules, now)
	n.observe(&sight, now)
	closed := n.close(name, now)
	if len(sight.Schedules) == 0 && len(n.followed) == 0 {
		delete(s.nodes, name)
	}
	return closed
}

// Retain forgets all nodes but those given.
func (s *Store) Retain(names map[string]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.nodes, func(name string, _ *node) bool { return !names[name] })
}

// forget drops a node.
func (s *Store) forget(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.nodes, name)
}

// knows tells whether blocks of a node are followed.
func (s *Store) knows(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.nodes[name] != nil
}
