package verify

import "math"

// Shrunk is one unit's effect, drawn towards the mean of its class the more, the less is
// known of the unit itself. Its error has two parts that are independent: units of a class
// share the error of its mean, so that it does not average out over them.
type Shrunk struct {
	Log float64
	// Own is the standard error of the unit's part, Common that of what the mean's error
	// does to the unit.
	Own, Common float64
	// Freedom is the degrees of freedom of Own, CommonFreedom of Common.
	Freedom, CommonFreedom float64
}

// IsKnown tells whether there is an effect to reckon with.
func (s Shrunk) IsKnown() bool {
	own := Effect{Log: s.Log, StdErr: s.Own, Freedom: s.Freedom}
	common := Effect{Log: s.Log, StdErr: s.Common, Freedom: s.CommonFreedom}
	return (own.IsKnown() || s.Own == 0) && (common.IsKnown() || s.Common == 0) && (own.IsKnown() || common.IsKnown())
}

// Effect is the unit's effect with both parts of the error as one.
func (s Shrunk) Effect() Effect {
	if !s.IsKnown() {
		return Effect{}
	}
	var sum ErrorSum
	sum.Add(s.Own, s.Freedom)
	sum.Add(s.Common, s.CommonFreedom)
	return Effect{Log: s.Log, StdErr: math.Sqrt(sum.Variance), Freedom: sum.Freedom(), Units: 1}
}

// ErrorSum adds up errors that are independent, each with its own degrees of freedom. The
// zero value is none.
type ErrorSum struct {
	// Variance is the sum of squared errors, Fourths that of fourth powers, each over its
	// degrees of freedom.
	Variance, Fourths float64
}

// Add takes in an error. One of 0 changes nothing.
func (e *ErrorSum) Add(stdErr, freedom float64) {
	if stdErr == 0 {
		return
	}
	variance := stdErr * stdErr
	e.Variance += variance
	e.Fourths += variance * variance / freedom
}

// Freedom is that of the sum, by Welch and Satterthwaite: at least 1. Without errors it is
// infinite.
func (e ErrorSum) Freedom() float64 {
	if e.Fourths <= 0 {
		return math.Inf(1)
	}
	return max(1, e.Variance*e.Variance/e.Fourths)
}

// Half returns by how much the interval for a confidence reaches to each side.
func (e ErrorSum) Half(confidence float64) float64 {
	if e.Variance <= 0 {
		return 0
	}
	return Quantile(e.Freedom(), confidence) * math.Sqrt(e.Variance)
}

// Unit returns the effect of a unit of the class, whose own effect is given as it was
// measured. One that is not known takes that of the class. Where nothing is known of the
// class, the unit's own stands as it is.
func (p Pooled) Unit(own Effect) Shrunk {
	switch {
	case !p.Mean.IsKnown() && !own.IsKnown():
		return Shrunk{}
	case !p.Mean.IsKnown():
		return Shrunk{Log: own.Log, Own: own.StdErr, Freedom: own.Freedom}
	case !own.IsKnown():
		return Shrunk{
			Log: p.Mean.Log, Own: math.Sqrt(p.variance()), Freedom: p.Mean.Freedom,
			Common: p.drawn.StdErr, CommonFreedom: p.drawn.Freedom,
		}
	}
	// share of the class's mean in the unit's effect, over all spreads.
	var share, squares, within float64
	variance := own.StdErr * own.StdErr
	for _, s := range p.spreads {
		b := variance / (variance + s.variance)
		share += s.weight * b
		squares += s.weight * b * b
		within += s.weight * (1 - b) * variance
	}
	distance := own.Log - p.Mean.Log
	unsure := max(0, squares-share*share) * distance * distance
	return Shrunk{
		Log: own.Log - share*distance, Own: math.Sqrt(within + unsure), Freedom: own.Freedom,
		Common: share * p.drawn.StdErr, CommonFreedom: p.drawn.Freedom,
	}
}

// variance is the mean of the variances that the units' effects may have.
func (p Pooled) variance() float64 {
	sum := 0.0
	for _, s := range p.spreads {
		sum += s.weight * s.variance
	}
	return sum
}

const (
	// mostSpread is the largest standard deviation between units that is thought of: with
	// it, one node in three would differ from its class by a fifth of its power and more.
	mostSpread = 0.2
	// spreadSteps is how finely standard deviations are looked at.
	spreadSteps = 64
)

// spreadsOf weighs standard deviations between units by their restricted likelihood, all
// alike before. They are denser towards 0, where what is drawn to the mean changes most.
func spreadsOf(effects []Effect) []spread {
	spreads := make([]spread, spreadSteps)
	logs := make([]float64, spreadSteps)
	best := math.Inf(-1)
	for i := range spreads {
		at := (float64(i) + 0.5) / spreadSteps
		deviation := mostSpread * at * at
		spreads[i] = spread{variance: deviation * deviation, weight: at}
		logs[i] = restrictedLikelihood(effects, spreads[i].variance)
		best = max(best, logs[i])
	}
	sum := 0.0
	for i := range spreads {
		spreads[i].weight *= math.Exp(logs[i] - best)
		sum += spreads[i].weight
	}
	for i := range spreads {
		spreads[i].weight /= sum
	}
	return spreads
}

// restrictedLikelihood is the logarithm, less a constant, of how likely the effects are
// with a variance between units, whatever their mean.
func restrictedLikelihood(effects []Effect, between float64) float64 {
	fit := fitMean(effects, between)
	sum := math.Log(fit.precision) + fit.squares
	for _, e := range effects {
		sum += math.Log(e.StdErr*e.StdErr + between)
	}
	return -sum / 2
}
