// Package tuning keeps what the manager saw of each VM's packets with each window of
// buffering, over the rates that agents serve, and which windows hurt VMs of a profile.
package tuning

import (
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
}

// NewStore returns an empty store. A VM that is not heard of for staleAfter is forgotten.
func NewStore(clk clock.PassiveClock, staleAfter time.Duration) *Store {
	return &Store{clock: clk, staleAfter: staleAfter}
}

// Add takes in a new round of a node: each round once, in their order. It tells whether
// there is something in it that another plan of the node may follow from.
func (s *Store) Add(rates *model.NodeRates, of Circumstances) bool {
	return false
}

// Of returns what was seen of the VM of a launcher pod, and of VMs of its profile.
func (s *Store) Of(podUID string, profile types.NamespacedName) model.Tuning {
	return model.Tuning{}
}

// Sweep forgets the VMs that were not heard of for too long, and hurts that are past.
func (s *Store) Sweep() {}

// Len returns how many VMs are followed.
func (s *Store) Len() int { return 0 }
