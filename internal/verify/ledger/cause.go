package ledger

import "slices"

// Cause is why a block was not booked. The words are counted and shown.
type Cause string

// Causes for which who measures excludes a block: it has no figures that could be booked,
// whatever the lever did, and nothing is claimed for it.
const (
	// MeterFailed: the meter was silent for part of the block.
	MeterFailed Cause = "MeterFailed"
	// MeterChanged: the power is from another source or of another scope at the block's
	// end than at its start.
	MeterChanged Cause = "MeterChanged"
	// ClockJumped: the node's or the manager's clock was set within the block.
	ClockJumped Cause = "ClockJumped"
	// NotWatched: no manager watched the whole block.
	NotWatched Cause = "NotWatched"
	// NotAsScheduled: what the agent tells of its switches is not what the schedule says. This
	// and an agent's restart may be the lever's doing after all: trials and verify.Holding say
	// nothing while blocks are missing more often with the lever on than chance has it, and
	// nothing is booked by such a hold-back.
	NotAsScheduled Cause = "NotAsScheduled"
	// AgentRestarted: the agent's counts started over within the block.
	AgentRestarted Cause = "AgentRestarted"
	// Replaced: the plan took the schedule away, or changed it, before the block ended.
	Replaced Cause = "Replaced"
	// Contradictory: what was told of the block cannot all be so.
	Contradictory Cause = "Contradictory"
)

// Causes for which the ledger refuses a block.
const (
	// Malformed: no node, no length, a figure that is no number, or a cause that is not
	// one of those to exclude for.
	Malformed Cause = "Malformed"
	// AlreadyBooked: the block's time, or a part of it, was booked for the node and lever.
	AlreadyBooked Cause = "AlreadyBooked"
	// InFuture: the block ends later than now.
	InFuture Cause = "InFuture"
	// TooOld: the block is from before last month.
	TooOld Cause = "TooOld"
	// Implausible: no node draws as little, or as much, or has as much traffic.
	Implausible Cause = "Implausible"
	// Frozen: the meter gives the same mean as in the block before, to seven digits.
	Frozen Cause = "Frozen"
	// NoEvidence: the lever was on, and its effect is not known. The block is taken once it
	// is.
	NoEvidence Cause = "NoEvidence"
	// TooManyNodes: the ledger is full.
	TooManyNodes Cause = "TooManyNodes"
)

// mayExclude tells whether who measures may exclude a block for the cause.
func (c Cause) mayExclude() bool {
	return slices.Contains([]Cause{
		MeterFailed, MeterChanged, ClockJumped, NotWatched, NotAsScheduled, AgentRestarted, Replaced, Contradictory,
	}, c)
}
