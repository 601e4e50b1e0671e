// Package tuning keeps what the manager saw of each VM's packets with each window of
// buffering, over the rates that agents serve, and which windows hurt VMs of a profile.
package tuning

import (
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// VM is what a node's rates do not tell of a VM.
type VM struct {
	// Profile that governs it.
	Profile types.NamespacedName
	// OnPackets, MaxDrops and KeepThroughput are those of model.VM.
	OnPackets      units.PacketsPerSecond
	MaxDrops       *float64
	KeepThroughput float64
	// Disturbed is true when something else keeps the VM from its network work: what is
	// seen of it then counts against no other VM.
	Disturbed bool
}

// Circumstances of a node's VMs that its rates do not tell.
type Circumstances struct {
	// VM of a launcher pod, and false when no such VM is known on the node: what the agent
	// says of it then does not count, or one that is broken or hostile could speak for VMs
	// elsewhere, and fill the memory.
	VM func(podUID string) (VM, bool)
}

// Store keeps the trials of each VM, and the hurts of each profile. It is safe for
// concurrent use.
//
// What it knows is gone with the manager: a new leader leaves the windows that are in force
// as they are until it has seen enough.
type Store struct {
	clock      clock.PassiveClock
	staleAfter time.Duration

	mu       sync.Mutex
	vms      map[string]*follow
	profiles map[types.NamespacedName]hurts
}

// NewStore returns an empty store. A VM that is not heard of for staleAfter is forgotten.
func NewStore(clk clock.PassiveClock, staleAfter time.Duration) *Store {
	return &Store{clock: clk, staleAfter: staleAfter, vms: map[string]*follow{}, profiles: map[types.NamespacedName]hurts{}}
}

// Add takes in a new round of a node: each round once, in their order. It tells whether
// there is something in it that another plan of the node may follow from. A launcher pod
// never changes its node: what a second node says of it while the first is heard does not
// count.
func (s *Store) Add(rates *model.NodeRates, of Circumstances) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, news := s.clock.Now(), false
	for i := range rates.VMs {
		vmRates := &rates.VMs[i]
		vm, known := of.VM(vmRates.PodUID)
		if !known {
			continue
		}
		f := s.vms[vmRates.PodUID]
		if f == nil || s.stale(f) {
			f = &follow{node: rates.Node}
			s.vms[vmRates.PodUID] = f
		}
		if f.node != rates.Node {
			continue
		}
		f.heard = now
		r, ok := read(vmRates, rates.IntervalSeconds)
		if !ok {
			continue
		}
		found := f.hear(now, r, vm, s.profiles[vm.Profile])
		news = news || found.news
		if found.hurt == nil {
			continue
		}
		f.trials.drop(found.hurt.Window)
		if found.ofProfile {
			s.profiles[vm.Profile] = s.profiles[vm.Profile].with(*found.hurt)
		} else {
			f.hurts = f.hurts.with(*found.hurt)
		}
	}
	return news
}

// Of returns what was seen of the VM of a launcher pod, and of VMs of its profile.
func (s *Store) Of(podUID string, profile types.NamespacedName) model.Tuning {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.Now()
	known := slices.Clone(s.profiles[profile])
	f := s.vms[podUID]
	if f == nil || s.stale(f) {
		return model.Tuning{Hurts: known.at(now)}
	}
	for _, hurt := range f.hurts {
		known = known.with(hurt)
	}
	return model.Tuning{Trials: f.trials.tell(now), Hurts: known.at(now), Since: f.since}
}

func (s *Store) stale(f *follow) bool { return s.clock.Since(f.heard) > s.staleAfter }

// Sweep forgets the VMs that were not heard of for too long, and hurts that are past.
func (s *Store) Sweep() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for podUID, f := range s.vms {
		if s.stale(f) {
			delete(s.vms, podUID)
		}
	}
	now := s.clock.Now()
	for profile, known := range s.profiles {
		if known = known.at(now); len(known) == 0 {
			delete(s.profiles, profile)
		} else {
			s.profiles[profile] = known
		}
	}
}

// Len returns how many VMs are followed.
func (s *Store) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.vms)
}
