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

// Join takes two pools of different units of one class together. Each mean weighs by its
// precision, what is known of the spread between units by degrees of freedom.
func (p Pooled) Join(o Pooled) Pooled {
	switch {
	case !o.Mean.IsKnown():
		return p
	case !p.Mean.IsKnown():
		return o
	}
	mine, others := 1/(p.Mean.StdErr*p.Mean.StdErr), 1/(o.Mean.StdErr*o.Mean.StdErr)
	share := mine / (mine + others)
	joint := Pooled{Mean: average(share, p.Mean, o.Mean), drawn: average(share, p.drawn, o.drawn)}
	weight := p.Mean.Freedom / (p.Mean.Freedom + o.Mean.Freedom)
	joint.Between = math.Sqrt(weight*p.Between*p.Between + (1-weight)*o.Between*o.Between)
	for _, s := range p.spreads {
		joint.spreads = append(joint.spreads, spread{variance: s.variance, weight: s.weight * weight})
	}
	for _, s := range o.spreads {
		joint.spreads = append(joint.spreads, spread{variance: s.variance, weight: s.weight * (1 - weight)})
	}
	return joint
}

// average weighs two effects that are independent, the first by its share.
func average(share float64, a, b Effect) Effect {
	var sum ErrorSum
	sum.Add(share*a.StdErr, a.Freedom)
	sum.Add((1-share)*b.StdErr, b.Freedom)
	return Effect{
		Log: share*a.Log + (1-share)*b.Log, StdErr: math.Sqrt(sum.Variance), Freedom: sum.Freedom(),
		Units: a.Units + b.Units, Pairs: a.Pairs + b.Pairs,
	}
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
