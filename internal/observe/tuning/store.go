// Package tuning records what buffering does to each VM with each window: what packets cost,
// and whether service suffered. A window with which packets were lost, or throughput fell, is
// barred for an hour, and so are longer ones.
package tuning

import (
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/observe/vmstate"
	"github.com/joulevirt/joulevirt/internal/units"
)

// VM is what a node's rates do not tell of a VM.
type VM struct {
	// LeastRate of packets towards the VM at which they may be held. MaxDrops and KeepThroughput
	// are those of model.VM.
	LeastRate      units.PacketsPerSecond
	MaxDrops       *float64
	KeepThroughput float64
	// Disturbed is true when something else keeps the VM from its network work.
	Disturbed bool
}

// Circumstances of a node's VMs that its rates do not tell.
type Circumstances struct {
	// VM returns the VM of a launcher pod, and false when no such VM is known on the node.
	VM func(podUID string) (VM, bool)
}

// Store keeps the history of each VM. It is safe for concurrent use.
//
// What it knows is gone with the manager: a new leader leaves the windows that are in force
// as they are until it has seen enough.
type Store struct {
	clock clock.PassiveClock

	// mu guards what is kept of VMs too: it is read in part.
	mu  sync.Mutex
	vms *vmstate.VMs[history]
}

// NewStore returns an empty store. A VM without rates for staleAfter is forgotten.
func NewStore(clk clock.PassiveClock, staleAfter time.Duration) *Store {
	return &Store{clock: clk, vms: vmstate.New[history](clk, staleAfter)}
}

// Add records a new round of a node: each round once, in their order. It returns whether
// another plan of the node may follow.
func (s *Store) Add(rates *model.NodeRates, of Circumstances) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	changed := false
	record := func(podUID string, with func(time.Time, *history, VM) bool) {
		if vm, known := of.VM(podUID); known {
			s.vms.Update(rates.Node, podUID, func(now time.Time, h *history) { changed = with(now, h, vm) || changed })
		}
	}
	// A trip is of the window that was in force before the round.
	for i := range rates.Trips {
		if trip := &rates.Trips[i]; trip.Lever == v1alpha1.LeverBuffering {
			record(trip.PodUID, func(now time.Time, h *history, _ VM) bool { return h.recordTrip(now, trip, rates.Time) })
		}
	}
	for i := range rates.VMs {
		r := readRound(&rates.VMs[i], rates.IntervalSeconds)
		record(rates.VMs[i].PodUID, func(now time.Time, h *history, vm VM) bool { return h.record(now, r, vm) })
	}
	return changed
}

// Of returns what is known of the VM of a launcher pod.
func (s *Store) Of(podUID string) model.Tuning {
	s.mu.Lock()
	defer s.mu.Unlock()
	h, known := s.vms.Get(podUID)
	if !known {
		return model.Tuning{}
	}
	now := s.clock.Now()
	out := model.Tuning{Since: h.since}
	for i := range h.trials {
		if t := &h.trials[i]; now.Sub(t.at) <= remembered {
			out.Trials = append(out.Trials, t.value())
		}
	}
	slices.SortFunc(out.Trials, func(x, y model.Trial) int { return int(x.Window - y.Window) })
	for _, hurt := range h.hurts {
		if now.Before(hurt.Until) {
			out.Hurts = append(out.Hurts, hurt)
		}
	}
	return out
}

// Sweep forgets the VMs without rates.
func (s *Store) Sweep() { s.vms.Sweep() }

// Len returns how many VMs are followed.
func (s *Store) Len() int { return s.vms.Len() }
