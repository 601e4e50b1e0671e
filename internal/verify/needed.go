package verify

import (
	"math"
	"time"

	"gonum.org/v1/gonum/stat/distuv"
)

// decides is how likely the time that is told as needed suffices.
const decides = 0.8

// longestNeeded is the most that is told.
const longestNeeded = 365 * 24 * time.Hour

// needed is how much longer a trial takes if its effects are as the last look saw them:
// until the joules show that the lever saves, or that it saves too little, whichever comes
// first, and in the first case the work that it is not inferior. 0: not known.
func (c *course) needed() time.Duration {
	if !c.energy.IsKnown() || !c.work.IsKnown() {
		return 0
	}
	adopt := distuv.UnitNormal.Quantile(1-c.trial.adoptRate()) + distuv.UnitNormal.Quantile(decides)
	reject := distuv.UnitNormal.Quantile(1-wronglyRejected) + distuv.UnitNormal.Quantile(decides)
	saving, least := -c.energy.Log, c.trial.least()
	// Multiples of the pairs so far. Errors fall with the root of the pairs.
	saves := max(times(adopt, c.energy.StdErr, saving), times(adopt, c.work.StdErr, c.work.Log-c.trial.margin()))
	little := times(reject, c.energy.StdErr, least-saving)
	inferior := times(adopt, c.work.StdErr, c.trial.margin()-c.work.Log)
	more := max(0, min(saves, little, inferior)-1) * float64(c.trial.length(c.pairs))
	if !(more < float64(longestNeeded)) {
		return longestNeeded
	}
	// There is no verdict before the next look.
	return roundUp(max(time.Duration(more), 1), c.trial.length(c.trial.Every))
}

// times is how many times as much has to be seen until a distance that the errors cover
// now is as many of them.
func times(errors, stdErr, distance float64) float64 {
	if distance <= 0 {
		return math.Inf(1)
	}
	return errors * errors * stdErr * stdErr / (distance * distance)
}
