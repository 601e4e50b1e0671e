package verify

import "math"

// finest is the smallest standard deviation of a pair's difference that is believed, in
// logarithms: no meter is better than 0.01 %, and figures that repeat are no proof.
const finest = 1e-4

// difference of blocks that are compared, the lever on over it off, in logarithms of watts
// and of work per second.
type difference struct {
	rates
	// precision is 1 for a pair of blocks, and more if the one is compared with several.
	precision float64
}

// effects of the lever on the joules for the same work and on the work, as pairs show.
func (u *unit) effects() (energy, work Effect) {
	return effectsOf(u.differences(), elasticityOf(u.without))
}

// effectsOf differences, on the joules for the same work and on the work, with the
// elasticity of the power by the work.
func effectsOf(differences []difference, elasticity Effect) (energy, work Effect) {
	energy = meanOf(differences, func(d difference) float64 { return d.power - elasticity.Log*d.work })
	work = meanOf(differences, func(d difference) float64 { return d.work })
	return withElasticity(energy, work, elasticity), work
}

// withElasticity is the effect on the energy with the error that the elasticity brings:
// where the lever changes the work, what is taken off for that has an error that all
// differences have in common.
func withElasticity(energy, work, elasticity Effect) Effect {
	if !energy.IsKnown() {
		return energy
	}
	var errors ErrorSum
	errors.Add(energy.StdErr, energy.Freedom)
	errors.Add(elasticity.StdErr*math.Abs(work.Log), elasticity.Freedom)
	energy.StdErr, energy.Freedom = math.Sqrt(errors.Variance), errors.Freedom()
	return energy
}

// differences of the pairs of which both blocks count and one was drawn to be on.
func (u *unit) differences() []difference {
	var all []difference
	for i := 1; i < len(u.blocks); i++ {
		on, off := u.blocks[i-1], u.blocks[i]
		if on.number%2 != 0 || off.number != on.number+1 || on.on == off.on {
			continue
		}
		if off.on {
			on, off = off, on
		}
		all = append(all, difference{rates{on.power - off.power, on.work - off.work}, 1})
	}
	return all
}

// meanOf a unit's differences, each of which is as likely to be off to one side as to the
// other, whatever its neighbours are: with its standard error as the draw makes it.
func meanOf(differences []difference, of func(difference) float64) Effect {
	e := Effect{Units: 1, Pairs: len(differences)}
	if e.Pairs < 2 {
		return e
	}
	precision, sum, squares := 0.0, 0.0, 0.0
	for _, d := range differences {
		precision += d.precision
		sum += d.precision * of(d)
	}
	e.Log, e.Freedom = sum/precision, float64(e.Pairs-1)
	for _, d := range differences {
		squares += d.precision * (of(d) - e.Log) * (of(d) - e.Log)
	}
	e.StdErr = max(math.Sqrt(squares/e.Freedom), finest) / math.Sqrt(precision)
	return e
}

// together is the effect on several units, each by its share of the pairs: the mean over
// just these units. Weights by standard errors would lean on those which happened to be
// small, and what units differ by is for Pool. Those of which nothing is known yet do not
// count.
func together(effects []Effect) Effect {
	var all Effect
	for _, e := range effects {
		if e.IsKnown() {
			all.Units += e.Units
			all.Pairs += e.Pairs
		}
	}
	var errors ErrorSum
	for _, e := range effects {
		if e.IsKnown() {
			share := float64(e.Pairs) / float64(all.Pairs)
			all.Log += share * e.Log
			errors.Add(share*e.StdErr, e.Freedom)
		}
	}
	if all.Units > 0 {
		all.StdErr, all.Freedom = math.Sqrt(errors.Variance), errors.Freedom()
	}
	return all
}

// With puts together two effects on one unit that were measured apart, each by its share
// of the pairs: a unit's pairs err alike, and which of two errors was estimated smaller
// says little.
func (e Effect) With(o Effect) Effect {
	switch {
	case !o.IsKnown():
		return e
	case !e.IsKnown():
		return o
	}
	sum := together([]Effect{e, o})
	sum.Units = max(e.Units, o.Units)
	return sum
}
