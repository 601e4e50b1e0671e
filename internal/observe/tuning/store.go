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
	"github.com/joulevirt/joulevirt/internal/observe/heard"
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
	clock clock.PassiveClock

	// mu guards what is kept of VMs too: it is read in part.
	mu       sync.Mutex
	vms      *heard.VMs[follow]
	profiles map[types.NamespacedName]hurts
}

// NewStore returns an empty store. A VM that is not heard of for staleAfter is forgotten.
func NewStore(clk clock.PassiveClock, staleAfter time.Duration) *Store {
	return &Store{clock: clk, vms: heard.New[follow](clk, staleAfter), profiles: map[types.NamespacedName]hurts{}}
}

// News of a round.
type News struct {
	// Plan is true when another plan of the node may follow.
	Plan bool
	// Hurt are the profiles whose VMs a window was seen to hurt: on any node another plan
	// may follow for those of them that have it, or a longer one.
	Hurt []types.NamespacedName
}

// Add takes in a new round of a node: each round once, in their order. A launcher pod
// never changes its node: what a second node says of it while the first is heard does not
// count.
func (s *Store) Add(rates *model.NodeRates, of Circumstances) News {
	s.mu.Lock()
	defer s.mu.Unlock()
	var news News
	for i := range rates.VMs {
		vmRates := &rates.VMs[i]
		vm, known := of.VM(vmRates.PodUID)
		if !known {
			continue
		}
		s.vms.Hear(rates.Node, vmRates.PodUID, func(now time.Time, f *follow) {
			r, ok := read(vmRates, rates.IntervalSeconds)
			if !ok {
				return
			}
			found := f.hear(now, r, vm, s.profiles[vm.Profile])
			s.remember(f, vm.Profile, found)
			news.Plan = news.Plan || found.news
			if found.ofProfile {
				news.Hurt = append(news.Hurt, vm.Profile)
			}
		})
	}
	return news
}

// remember notes a hurt. What was seen with the window before says nothing any more.
func (s *Store) remember(f *follow, profile types.NamespacedName, found found) {
	switch {
	case found.hurt == nil:
		return
	case found.ofProfile:
		s.profiles[profile] = s.profiles[profile].with(*found.hurt)
	default:
		f.hurts = f.hurts.with(*found.hurt)
	}
	f.trials.drop(found.hurt.Window)
}

// Of returns what was seen of the VM of a launcher pod, and of VMs of its profile.
func (s *Store) Of(podUID string, profile types.NamespacedName) model.Tuning {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.Now()
	known := slices.Clone(s.profiles[profile])
	f, following := s.vms.Of(podUID)
	if !following {
		return model.Tuning{Hurts: known.at(now)}
	}
	for _, hurt := range f.hurts {
		known = known.with(hurt)
	}
	return model.Tuning{Trials: f.trials.tell(now), Hurts: known.at(now), Since: f.since}
}

// Sweep forgets the VMs that were not heard of for too long, and hurts that are past.
func (s *Store) Sweep() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.vms.Sweep()
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
func (s *Store) Len() int { return s.vms.Len() }
