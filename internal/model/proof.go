package model

import (
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/units"
)

// Stance is how a lever stands with what experiments showed of it on a unit: a node, or a
// group of VMs.
type Stance string

// The stances.
const (
	// StanceUnproven: the lever acts, and no trial reports whether it saves: there is no
	// meter, or the policy asks for no trials.
	StanceUnproven Stance = "Unproven"
	// StanceAwaiting: it waits for its trial, and does not act.
	StanceAwaiting Stance = "AwaitingTrial"
	// StanceOnTrial: a schedule switches it on and off.
	StanceOnTrial Stance = "OnTrial"
	// StanceAdopted: it saves, and acts but for what is held back.
	StanceAdopted Stance = "Adopted"
	// StanceRejected: it does not save, or hurts, and does not act.
	StanceRejected Stance = "Rejected"
	// StanceUndecided: its trial ended without a verdict. It does not act until the next.
	StanceUndecided Stance = "Undecided"
)

// Proof is how one lever of a unit stands, and what is to be done about it.
type Proof struct {
	Lever  v1alpha1.Lever
	Stance Stance
	// Use reports whether the lever is planned at all. Where a schedule switches it, it is.
	Use bool
	// Schedule that the unit's plan is to have of the lever. Nil: none.
	Schedule *Schedule
	// Until is when a lever that is not used is tried anew. Zero: not known.
	Until time.Time
	// Message says why, with figures, in words that stay the same while it does.
	Message string
}

// Potential is what a lever would save on a node, or of a group, by the models, if it were
// allowed and did all that it can.
type Potential struct {
	Lever v1alpha1.Lever
	// Watts saved, with their standard error. An error of 0 is not known.
	Watts, StdErr units.Watts
	// VMs that the lever would act on.
	VMs int
	// Considered VMs are those that the figure was worked out for, acted on or not. 0: there
	// is no figure, for no VM could be looked at, or no model predicts the lever.
	Considered int
}

// IsKnown reports whether there is a figure. One of 0 W says that nothing is to be saved now.
func (p *Potential) IsKnown() bool { return p.Considered > 0 }

// IsNone reports whether there is nothing to be saved, or no figure.
func (p *Potential) IsNone() bool { return p.Watts == 0 && p.StdErr == 0 }
