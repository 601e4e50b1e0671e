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
	profiles map[types.NamespacedName]*memory
}

// memory is what is remembered of a profile's VMs.
type memory struct {
	hurts      hurts
	suspicions suspicions
}

// NewStore returns an empty store. A VM that is not heard of for staleAfter is forgotten.
func NewStore(clk clock.PassiveClock, staleAfter time.Duration) *Store {
	return &Store{clock: clk, vms: heard.New[follow](clk, staleAfter), profiles: map[types.NamespacedName]*memory{}}
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
	hear := func(podUID string, finds func(time.Time, *follow, VM) found) {
		vm, known := of.VM(podUID)
		if !known {
			return
		}
		s.vms.Hear(rates.Node, podUID, func(now time.Time, f *follow) {
			found := finds(now, f, vm)
			news.Plan = news.Plan || found.news
			if s.remember(now, f, vm.Profile, found) {
				news.Hurt = append(news.Hurt, vm.Profile)
			}
		})
	}
	// What tripped is of the window that was in force before the round.
	for i := range rates.Trips {
		if trip := &rates.Trips[i]; trip.Lever == model.LeverBuffering {
			hear(trip.PodUID, func(now time.Time, f *follow, vm VM) found { return f.trip(now, trip, rates.Time, vm) })
		}
	}
	for i := range rates.VMs {
		vmRates := &rates.VMs[i]
		hear(vmRates.PodUID, func(now time.Time, f *follow, vm VM) found {
			r, ok := read(vmRates, rates.IntervalSeconds)
			if !ok {
				return found{}
			}
			return f.hear(now, r, vm, s.hurtsOf(vm.Profile))
		})
	}
	return news
}

func (s *Store) hurtsOf(name types.NamespacedName) hurts {
	if p := s.profiles[name]; p != nil {
		return p.hurts
	}
	return nil
}

// remember notes a hurt, and tells whether it is one of all VMs of the profile. What was
// seen with the window before says nothing any more.
func (s *Store) remember(now time.Time, f *follow, name types.NamespacedName, found found) bool {
	if found.hurt == nil {
		return false
	}
	p := s.profiles[name]
	if p == nil {
		p = &memory{suspicions: suspicions{}}
		s.profiles[name] = p
	}
	f.trials.drop(found.hurt.Window)
	hurt := *found.hurt
	if !found.ofProfile {
		f.hurts = f.hurts.with(hurt)
		if found.suspected == nil {
			return false
		}
		if hurt.Window = p.suspicions.add(*found.suspected); hurt.Window == 0 {
			return false
		}
		hurt.Until = now.Add(remembered)
	}
	p.hurts = p.hurts.with(hurt)
	return true
}

// Of returns what was seen of the VM of a launcher pod, and of VMs of its profile.
func (s *Store) Of(podUID string, profile types.NamespacedName) model.Tuning {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.Now()
	known := slices.Clone(s.hurtsOf(profile))
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
	for name, p := range s.profiles {
		p.hurts = p.hurts.at(now)
		p.suspicions.at(now)
		if len(p.hurts)+len(p.suspicions) == 0 {
			delete(s.profiles, name)
		}
	}
}

// Len returns how many VMs are followed.
func (s *Store) Len() int { return s.vms.Len() }
