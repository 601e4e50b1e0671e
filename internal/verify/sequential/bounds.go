// Package sequential says when a trial that is looked at again and again may stop, and
// what may be said of its effect then. Looks are at rising shares of the information that
// the whole trial gathers; the statistic Z of each is standard normal without an effect,
// and sqrt(information) Z moves as a Brownian motion. Pure arithmetic, after Armitage,
// McPherson and Rowe (1969), Lan and DeMets (1983), and Tsiatis, Rosner and Mehta (1984).
package sequential

import (
	"math"

	"gonum.org/v1/gonum/stat/distuv"
)

// Impassable is a bound that no statistic reaches.
const Impassable = 40

// Spent is the part of the error rate that may have been spent when a share t of the
// information is in, from 0 to 1: next to nothing at first, as O'Brien and Fleming's
// bounds do, and all at the end.
func Spent(rate, t float64) float64 {
	switch {
	case !(t > 0):
		return 0
	case t >= 1:
		return rate
	}
	return 2 * upper(quantile(1-rate/2)/math.Sqrt(t))
}

// Bound is one that Z reaches from below, without an effect, at any of the looks with the
// probability rate at most, of which Spent is spent by each.
type Bound struct {
	rate, spent float64
	path        *path
}

// NewBound makes the bound of an error rate, above 0 and below 1, before the first look.
func NewBound(rate float64) *Bound { return &Bound{rate: rate, path: newPath(0)} }

// Next is the bound at the next look, at a share of the information above that of the look
// before. At the last look all that is left of the rate is spent, whatever the share.
func (b *Bound) Next(share float64, last bool) float64 {
	spent := Spent(b.rate, share)
	if last {
		spent = b.rate
	}
	at := b.path.bound(share, spent-b.spent)
	b.spent = spent
	b.path.pass(share, -Impassable, at)
	return at
}

// bound finds what is reached at a share with a probability after all that was passed.
func (p *path) bound(share, probability float64) float64 {
	if probability < leastSpent {
		return Impassable
	}
	// Without having to pass the looks before, more is above: Newton's steps for the
	// logarithm, which is concave, come down to the bound from there.
	z, root := quantile(1-probability), math.Sqrt(share)
	for range mostSteps {
		above, slope := p.above(share, z, 0), p.densityAt(share, z*root)*root
		step := math.Log(above/probability) * above / slope
		if !(math.Abs(step) > finest) {
			break
		}
		z += step
	}
	return z
}

// leastSpent is a probability at a look that is none. finest is how exact bounds are.
const (
	leastSpent = 1e-15
	finest     = 1e-7
)

func quantile(p float64) float64 { return distuv.UnitNormal.Quantile(p) }

// upper is the probability that a standard normal is above x.
func upper(x float64) float64 { return 0.5 * math.Erfc(x/math.Sqrt2) }
