package publish

import (
	"sync/atomic"
	"time"

	"github.com/joulevirt/joulevirt/internal/agent/discover"
	"github.com/joulevirt/joulevirt/internal/agent/metering"
	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/model"
)

// State is what the agent knows after a round. It is immutable.
type State struct {
	Rates *model.NodeRates
	// Topology of the node, at most a minute old.
	Topology model.Topology
	// Actors on the node beside the agent, found with the topology.
	Actors []host.Actor
	// Energy is how the rates' power is known.
	Energy metering.Status
	// Synced is false while the cluster's objects are not known, and so no VM.
	Synced bool
	// Unknown counts the processes that run a VM which is not known, by why.
	Unknown map[discover.Verdict]int
	// Pinned is the number of VMs of which a thread is bound.
	Pinned int
	// Sliced is the number of VMs of which a thread has a slice of the agent's, and
	// SlicedThreads that of these threads.
	Sliced, SlicedThreads int
	// Shaped is the number of VMs whose sending is bounded or held, and Gates
	// that of their uplinks that take turns.
	Shaped, Gates int
	// Buffered is the number of VMs of which a tap's packets may be held.
	Buffered int
	// GateDelay is the largest delay of a gate behind its turn's boundary since
	// the round before.
	GateDelay time.Duration
	// Took is how long the round took.
	Took time.Duration
	// RoundError says what of the round failed; nil when nothing did.
	RoundError error
	// LibvirtAnswering and LibvirtFailing count VMs by their libvirt's last
	// answer.
	LibvirtAnswering, LibvirtFailing int
	// ManagerStale is true when the manager's Lease is out of date.
	ManagerStale bool
	// Rounds, RoundErrors and Writes count since the agent's start: rounds,
	// those with an error, and threads whose affinity was changed.
	Rounds, RoundErrors, Writes uint64
	// SliceWrites, ShapingWrites, GateChanges and BufferingWrites count likewise: threads
	// whose slice was set or taken back, uplinks that were shaped or put back, how often
	// gates were opened or held, and taps whose buffering was set or taken back.
	SliceWrites, ShapingWrites, GateChanges, BufferingWrites uint64
	// Trips of the agent's guard since its start.
	Trips map[TripKind]uint64
}

// TripKind tells trips apart by what is undone, and for which symptom.
type TripKind struct {
	Lever   model.Lever
	Symptom model.Symptom
}

// Board holds the latest State. One goroutine posts, any number read.
type Board struct {
	latest atomic.Pointer[State]
}

// Post replaces the state, which must not be changed afterwards.
func (b *Board) Post(state *State) { b.latest.Store(state) }

// Latest state; nil before the first round.
func (b *Board) Latest() *State { return b.latest.Load() }

// TripKinds are all that there are.
func TripKinds() []TripKind {
	return []TripKind{
		{model.LeverAffinity, model.SymptomRunDelay}, {model.LeverBuffering, model.SymptomBacklog},
		{model.LeverBuffering, model.SymptomQueueDrops}, {model.LeverBuffering, model.SymptomRingOverrun},
	}
}
