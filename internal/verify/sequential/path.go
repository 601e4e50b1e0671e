package sequential

import (
	"math"

	"gonum.org/v1/gonum/integrate/quad"
)

// nodes of the numeric integration at each look. Bounds are exact to 1e-4 for looks that
// are a 32nd of the information apart or more.
const nodes = 32

// beyond is how many standard deviations of the path are looked at.
const beyond = 6

// path is the density of where the Brownian motion x = sqrt(share) Z is after the looks
// that it passed, at nodes, for a drift of x by each share of information.
type path struct {
	drift float64
	// unit is a rule of integration from -1 to 1.
	unit rule
	// share of the information so far, where and how dense the path is there, times the
	// rule's weights.
	share       float64
	at, density []float64
}

type rule struct{ at, weight []float64 }

func newPath(drift float64) *path {
	unit := rule{make([]float64, nodes), make([]float64, nodes)}
	quad.Legendre{}.FixedLocations(unit.at, unit.weight, -1, 1)
	return &path{drift: drift, unit: unit, at: []float64{0}, density: []float64{1}}
}

// above is the probability that the path passes all looks so far and is then above the
// bound z at a share, if the drift were another by more.
func (p *path) above(share, z, more float64) float64 {
	step := share - p.share
	sd := math.Sqrt(step)
	edge := z*math.Sqrt(share) - (p.drift+more)*step
	sum := 0.0
	for i, x := range p.at {
		sum += p.density[i] * p.tilt(x, more) * upper((edge-x)/sd)
	}
	return sum
}

// passed is the probability of having passed all looks so far, if the drift were another
// by more.
func (p *path) passed(more float64) float64 {
	sum := 0.0
	for i, x := range p.at {
		sum += p.density[i] * p.tilt(x, more)
	}
	return sum
}

// tilt is how much likelier a path to x is with a drift that is another by more.
func (p *path) tilt(x, more float64) float64 {
	return math.Exp(more * (x - p.drift*p.share - more*p.share/2))
}

// densityAt a place at a later share, of paths that passed all looks so far.
func (p *path) densityAt(share, place float64) float64 {
	step := share - p.share
	sum := 0.0
	for i, x := range p.at {
		d := place - x - p.drift*step
		sum += p.density[i] * math.Exp(-d*d/(2*step))
	}
	return sum / math.Sqrt(2*math.Pi*step)
}

// pass moves the path on to a look at a share, where Z is within bounds.
func (p *path) pass(share, lower, upper float64) {
	root := math.Sqrt(share)
	middle, reach := p.drift*share, beyond*(root+share)
	low, high := max(lower*root, middle-reach), min(upper*root, middle+reach)
	at, density := make([]float64, nodes), make([]float64, nodes)
	if half := (high - low) / 2; half > 0 {
		for i := range at {
			at[i] = low + half*(1+p.unit.at[i])
			density[i] = half * p.unit.weight[i] * p.densityAt(share, at[i])
		}
	}
	p.share, p.at, p.density = share, at, density
}
