package guards

import (
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/observe/heard"
	"github.com/joulevirt/joulevirt/internal/units"
)

// VM is what a node's rates do not tell of a VM.
type VM struct {
	// MaxSteal, MaxDrops and KeepThroughput are the service levels of its profile, those of
	// model.VM.
	MaxSteal       units.Cores
	MaxDrops       *float64
	KeepThroughput float64
	// Acts are the levers that act on the VM by the plan that the node's agent applied.
	Acts []model.Lever
	// Group of the VM, as "namespace/name" of its profile, and how its share of the group's
	// traffic compares. Empty: it is of none.
	Group string
	Share Share
}

// Circumstances of a node's VMs that its rates do not tell.
type Circumstances struct {
	// Nested is true when the node is itself a VM: steal means nothing there.
	Nested bool
	// VM of a launcher pod, and false when no such VM is known on the node: what the agent
	// says of it then does not count.
	VM func(podUID string) (VM, bool)
}

// Store keeps the histories of VMs, and the withdrawals of nodes. It is safe for concurrent
// use. Histories are gone with the manager; withdrawals stand in the plans, see Of.
type Store struct {
	clock clock.PassiveClock

	// mu guards what is kept of VMs too.
	mu    sync.Mutex
	vms   *heard.VMs[follow]
	nodes map[string]node
	// groups remember what was withdrawn of groups, each lever TrafficShare alone.
	groups map[string]node
	// regroup are the groups of which something else is withdrawn than was told.
	regroup map[string]bool
}

// NewStore returns an empty store. A VM that is not heard of for staleAfter is forgotten.
func NewStore(clk clock.PassiveClock, staleAfter time.Duration) *Store {
	return &Store{
		clock: clk, vms: heard.New[follow](clk, staleAfter),
		nodes: map[string]node{}, groups: map[string]node{}, regroup: map[string]bool{},
	}
}

// Hear takes in a new round of a node: each once, in their order. It tells whether a lever
// was withdrawn, so that the node is to be planned anew at once. Regroup tells of groups.
func (s *Store) Hear(rates *model.NodeRates, of Circumstances) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.Now()
	n := s.node(rates.Node)
	news := false
	acts := map[model.Lever]int{}
	for i := range rates.VMs {
		vmRates := &rates.VMs[i]
		vm, known := of.VM(vmRates.PodUID)
		if !known {
			continue
		}
		s.vms.Hear(rates.Node, vmRates.PodUID, func(now time.Time, f *follow) {
			found, offs := f.hear(now, rates, vmRates, &vm, of.Nested)
			news = n.without(vmRates.PodUID, offs, now) || news
			news = n.take(vmRates.PodUID, s.takeShares(f, found, offs, now), now) || news
			for name, l := range f.levers {
				if l.on && !n.holds(key{vmRates.PodUID, name}, now) {
					acts[name]++
				}
			}
		})
	}
	for _, lever := range model.NodeLevers() {
		news = n.together(lever, acts[lever], now) || news
	}
	return news
}

// take withdraws the levers that were found to hurt a VM. Of one that is only doubted, one
// VM of the node goes without at a time: that tells how it is without.
func (n node) take(podUID string, found []finding, now time.Time) bool {
	news := false
	for i := range found {
		f := &found[i]
		if f.verdict == doubtful && n.any(f.lever, now) {
			continue
		}
		if k := (key{podUID, f.lever}); !n.holds(k, now) {
			news = n.withdraw(k, f, now) || news
		}
	}
	return news
}

// Guest takes in whether a VM's guest is ready. It tells whether a lever was withdrawn from
// the VM. Regroup tells of groups.
func (s *Store) Guest(said Guest) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	news := false
	if _, known := s.vms.Of(said.PodUID); !known {
		return false // nothing is known of its levers
	}
	s.vms.Hear(said.Node, said.PodUID, func(now time.Time, f *follow) {
		news = s.node(said.Node).take(said.PodUID, s.takeShares(f, f.see(now, &said), nil, now), now)
	})
	return news
}

func (s *Store) node(name string) node {
	n := s.nodes[name]
	if n == nil {
		n = node{}
		s.nodes[name] = n
	}
	return n
}

// Of returns the withdrawals that a node's plan is to hold, given those that it holds: what
// an earlier manager withdrew goes on.
func (s *Store) Of(name string, held []model.Withdrawal) []model.Withdrawal {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.Now()
	n := s.node(name)
	for i := range held {
		n.adopt(&held[i], now)
	}
	return n.tell(now)
}

// Sweep forgets the VMs that were not heard of for too long, and withdrawals that are past.
func (s *Store) Sweep() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.vms.Sweep()
	now := s.clock.Now()
	for _, all := range []map[string]node{s.nodes, s.groups} {
		for name, n := range all {
			if n.sweep(now); len(n) == 0 {
				delete(all, name)
			}
		}
	}
}
