// Package publish publishes what the agent knows: per-VM rates to the manager over
// mutual TLS, the same figures as metrics, and in the cluster the NodeReport
// and the status of the NodePlan.
package publish

import (
	"sync/atomic"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/agent/metering"
	"github.com/joulevirt/joulevirt/internal/model"
)

// State is what the agent knows after a round. It is immutable.
type State struct {
	Rates *model.NodeRates
	// Topology of the node, at most a minute old.
	Topology model.Topology
	// Sleep of the CPUs. Nil: not known, or not yet.
	Sleep *model.Sleep
	// Programs beside VMs, at most ten minutes old.
	Programs model.Programs
	// Energy is how the rates' power is known.
	Energy metering.Status
	// Synced is false while the cluster's objects are not known, and so no VM.
	Synced bool
	// InForce is the number of VMs of which a lever changes a thread or a device now.
	InForce map[v1alpha1.Lever]int
	// Took is how long the round took.
	Took time.Duration
	// RoundError says what of the round failed; nil when nothing did.
	RoundError error
	// ManagerStale is true when the manager's Lease is out of date.
	ManagerStale bool
	// Rounds, and RoundErrors those with an error, since the agent's start.
	Rounds, RoundErrors uint64
	// Changes counts, since the agent's start, threads (Affinity, Slice) and devices (Shaping,
	// Buffering) that were changed or reverted.
	Changes map[v1alpha1.Lever]uint64
	// Trips of the agent's guard since its start.
	Trips map[TripKind]uint64
}

// TripKind distinguishes trips by what is undone, and for which symptom.
type TripKind struct {
	Lever   v1alpha1.Lever
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

// tripKinds are all that there are.
func tripKinds() []TripKind {
	return []TripKind{
		{v1alpha1.LeverAffinity, model.SymptomRunDelay}, {v1alpha1.LeverBuffering, model.SymptomBacklog},
		{v1alpha1.LeverBuffering, model.SymptomQueueDrops}, {v1alpha1.LeverBuffering, model.SymptomRingOverrun},
	}
}
