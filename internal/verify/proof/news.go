package proof

import (
	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/verify"
)

// Kind is what happened, in a word.
type Kind string

// What happens to levers.
const (
	// TrialStarted: schedules were drawn that begin some minutes from now.
	TrialStarted Kind = "TrialStarted"
	// Adopted: the lever acts on all units of the class, but for what is held back.
	Adopted Kind = "Adopted"
	// Rejected: it does not act on any unit of the class until its cool-down is over.
	Rejected Kind = "Rejected"
	// Undecided: the trial ended without a verdict.
	Undecided Kind = "Undecided"
	// AdoptedOnUnit and RejectedOnUnit: so it is on single units, whatever it is on the
	// class.
	AdoptedOnUnit  Kind = "AdoptedOnUnit"
	RejectedOnUnit Kind = "RejectedOnUnit"
	// Retrial: a verdict no longer stands, and the lever is to be tried anew.
	Retrial Kind = "Retrial"
	// TrialEnded: a trial was ended for a cause that is not the lever's.
	TrialEnded Kind = "TrialEnded"
)

// News is what a round decided. Units are in order.
type News struct {
	Kind    Kind
	Lever   v1alpha1.Lever
	Class   verify.Class
	Units   []string
	Message string
}
