package verify

import "math"

// foretold is the confidence with which a class foretells a unit, before that contradicts
// it: one in a hundred differs as much by chance.
const foretold = 0.99

// KnownPool is a class whose effect was pooled elsewhere: its mean, and the standard
// deviation of units' true effects about it. A mean that is not known makes a class that
// is not.
func KnownPool(mean Effect, between float64) Pooled {
	if !mean.IsKnown() || !(between >= 0) || math.IsInf(between, 0) {
		return Pooled{}
	}
	return Pooled{Mean: mean, Between: between, drawn: mean, spreads: []spread{{variance: between * between, weight: 1}}}
}

// Contradicts tells whether an effect that was measured apart from the class, on a unit
// of it or pooled over several, differs from what the class foretells by more than
// chance. What is not known contradicts nothing.
func (p Pooled) Contradicts(measured Effect) bool {
	if !p.Mean.IsKnown() || !measured.IsKnown() {
		return false
	}
	var sum ErrorSum
	sum.Add(p.Mean.StdErr, p.Mean.Freedom)
	sum.Add(measured.StdErr, measured.Freedom)
	if measured.Units < 2 {
		sum.Add(math.Sqrt(p.variance()), p.Mean.Freedom)
	}
	return math.Abs(measured.Log-p.Mean.Log) > sum.Half(foretold)
}
