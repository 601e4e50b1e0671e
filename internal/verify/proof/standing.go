package proof

import (
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/verify"
)

// Standing is how a lever stands on a class of units, for people to read.
type Standing struct {
	Lever v1alpha1.Lever
	// Class of the units. Its zero value: Unit stands alone, for its class is not known.
	Class  verify.Class
	Unit   string
	Stance model.Stance
	// Units that the stance is from, Pairs of blocks that each of them has done, and
	// Planned after how many the trial ends. After a trial they are those of the last.
	Units, Pairs, Planned int
	// Log of the joules for the same work with the lever over without it, and Low and
	// High, the ends of the interval of the policy's confidence. Known is false while
	// nothing is.
	Log, Low, High float64
	Known          bool
	// Decided is when the stance was taken. Zero: nothing was decided yet.
	Decided time.Time
	// Until is when a trial ends, or a lever that is not used is tried anew. Zero: not
	// known.
	Until time.Time
	// Message says the same in words, with figures.
	Message string
}
