package verify

import "math"

// leastChanges is from how many changes between neighbouring stretches on a unit's
// elasticity is believed. Below that joules are compared as they are.
const leastChanges = 4

// elasticityOf a unit is by how many percent its power rises when its work does by 1 %,
// from stretches in the order of time that all are without the lever, or all with it: from
// 0 to 1, as a change of
// logarithms with its standard error. It is estimated from what changed from one stretch to
// the next, so that what drifts slowly beside the work is not taken for it.
func elasticityOf(alike []point) Effect {
	changes := make([]rates, 0, len(alike))
	var both, work float64
	for i := 1; i < len(alike); i++ {
		last, next := alike[i-1], alike[i]
		d := rates{next.power - last.power, next.work - last.work}
		changes = append(changes, d)
		both += d.power * d.work
		work += d.work * d.work
	}
	if len(changes) < leastChanges || !(work > 0) {
		return Effect{}
	}
	slope := max(0, min(1, both/work))
	// Neighbouring changes share a stretch, so that their errors are not apart: Newey and
	// West, Econometrica 55:703 (1987), with one lag, but never less than without.
	var errors, shared, last float64
	for _, d := range changes {
		e := d.work * (d.power - slope*d.work)
		errors += e * e
		shared += 2 * e * last
		last = e
	}
	freedom := float64(len(changes) - 1)
	variance := (errors + max(0, shared)) * float64(len(changes)) / freedom / (work * work)
	return Effect{Log: slope, StdErr: math.Sqrt(variance), Freedom: freedom}
}
