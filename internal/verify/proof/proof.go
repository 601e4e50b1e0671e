// Package proof decides which levers are tried on which units of a policy, by which
// schedules, and how each lever stands: it starts trials on several units of a class at
// once, judges them as blocks come in, holds back a share of what was adopted, tries
// rejected levers anew, and hands what was measured to the ledger. It is pure: time is
// given, and nothing is asked for. docs/design/proof-and-ledger.md tells the rules.
package proof

import (
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
	"github.com/joulevirt/joulevirt/internal/verify"
)

// Unit is a node, or all nodes of a group of VMs, as it is in one round.
type Unit struct {
	// Name of the node, or of the group as "namespace/name".
	Name string
	// Nodes that the unit's levers can affect: the node itself, or all of the group's.
	// Units that share one are not tried at once.
	Nodes []string
	Class verify.Class
	// Meter that judges the unit. Its zero value: there is none.
	Meter verify.Meter
	// MeterLost is true while nobody hears the meter, and Meter is as it was last known.
	// Nothing new is done meanwhile, and trials wait for it.
	MeterLost bool
	// MostWatts is more than the unit can draw, which books refuse. 0: not known.
	MostWatts units.Watts
	// Candidates are the levers that the policy allows and that have something to do here.
	Candidates []Candidate
	// Ready is true when something new may be done on the unit now.
	Ready bool
	// Approved is true when a person decided what is done, by an approval or by asking for
	// no trials: its levers act without a trial, and are held back.
	Approved bool
	// Has are the schedules in the plan that the unit has.
	Has []model.Schedule
}

// Candidate is a lever that may be tried.
type Candidate struct {
	Lever v1alpha1.Lever
	// Watts that it would save by the models: what promises most is tried first.
	Watts units.Watts
	// Comes is how long it takes until the lever does all that it would here, because only so
	// many VMs may be changed within an hour. Before that it is not tried.
	Comes time.Duration
}

// Settings of a policy.
type Settings struct {
	// HoldBack is the share of time in which an adopted lever is off. 0: none.
	HoldBack float64
	// Confidence of intervals and verdicts, above 0 and below 1.
	Confidence float64
}

// Closed is a block that has ended, with what it brought.
type Closed struct {
	Lever v1alpha1.Lever
	// Seed and Start are those of the schedule.
	Seed  int64
	Start time.Time
	// From and To are the whole block with its wash-out.
	From, To time.Time
	// Modelled is true when no meter told the joules.
	Modelled bool
	verify.Outcome
}
