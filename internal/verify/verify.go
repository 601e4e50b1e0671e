// Package verify proves what levers save. Trials switch a lever off and on by a drawn
// schedule; what the blocks brought gives the lever's effect on the energy for each unit
// of work, with an interval; effects of many units are pooled; a verdict adopts the lever,
// rejects it or asks for more; and the ledger books what was saved. It is pure: no clock,
// no random source but seeds that are given, no I/O.
package verify

import (
	"github.com/joulevirt/joulevirt/internal/units"
)

// Outcome is what one block of a schedule brought on one unit: what the lever can affect
// as a whole, a node or all nodes of a group. Its wash-out is left out.
type Outcome struct {
	Unit string
	// Block of the schedule, and whether the lever was drawn to be on, which it counts
	// as whatever became of it.
	Block int
	On    bool
	// Seconds that were judged, Joules that were drawn in them, and Work that was done:
	// bytes of VMs' traffic.
	Seconds float64
	Joules  units.Joules
	Work    float64
	// Before is the same of the last stretch before the block began, a covariate. The
	// zero value: not known.
	Before Stretch
	// Guarded is true when a guard ended the lever within the block. It counts against
	// the lever and excludes nothing.
	Guarded bool
	// Excluded names a cause that has nothing to do with the lever for which the block
	// says nothing, such as MeterFailed. Empty: it counts.
	Excluded string
}

// Stretch is some time of a unit that no schedule has switched.
type Stretch struct {
	Seconds float64
	Joules  units.Joules
	Work    float64
}

// Effect is a lever's on the natural logarithm of joules for the same work, with the
// lever over without it: -0.05 saves about 5 %. The zero value: nothing is known.
type Effect struct {
	// Log is the estimate, StdErr its standard error, and Freedom the degrees of freedom
	// of that error.
	Log, StdErr, Freedom float64
	// Units and Pairs of blocks that it is from.
	Units, Pairs int
}
