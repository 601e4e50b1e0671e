package proof

import (
	"math"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/verify"
	"github.com/joulevirt/joulevirt/internal/verify/ledger"
)

// basis is by what a block with the lever on is booked.
type basis uint8

const (
	// byUnit: by what is known of the unit by now.
	byUnit basis = iota
	// byStratum: by the block that was held back in its stratum, which tells of just that time.
	byStratum
	// byNothing: the stratum has none, and nothing is claimed.
	byNothing
)

const (
	// leastSteps of all units of a class are enough to say by how much strata differ by chance.
	// Before that blocks wait: pairs of trials, which are neighbours, differ by less.
	leastSteps = 4
	// ofSteps is how many degrees of freedom a step has: two that follow share a stratum.
	ofSteps = 2. / 3
	// mostLog bounds differences: none is larger.
	mostLog = 1
	// finest variance of a pair's difference that is believed.
	finest = 1e-8
)

// endStratum says by what its blocks are booked: what was held back in it says what the lever
// did in that time. A stratum that ends early, after the block that was held back, has one as
// well: that was as likely to be any of those until then.
func (l *lot) endStratum() {
	strata := l.held.Strata()
	l.held.Close()
	if l.held.Strata() > strata {
		l.shown = true
	}
	log, precision := l.held.Last()
	joules := 0.0
	for i := range l.open {
		joules += float64(l.open[i].joules)
	}
	for i := range l.open {
		r := &l.open[i]
		share := float32(float64(r.joules) / joules)
		if r.basis = byNothing; l.shown && isPrecision(precision) && math.Abs(log) <= mostLog && share > 0 {
			r.basis, r.log, r.precision, r.share = byStratum, float32(log), float32(precision), share
		}
	}
	l.due = append(l.due, l.open...)
	l.open, l.shown = nil, false
}

// isPrecision tells whether the precision of a stratum's difference is one that can be.
func isPrecision(p float64) bool { return p >= 1 && p <= 2 }

// chance is the variance that a pair's difference has by chance, of a lever on units of a class.
type chance struct{ variance, freedom float64 }

// chanceOf a lever on a unit, as its class shows it, or it alone where that tells nothing of
// others.
func (p *Proofs) chanceOf(name string, lever v1alpha1.Lever) chance {
	class := p.units[name].class
	var squares, steps float64
	for _, other := range p.names() {
		u := p.units[other]
		l := u.lots[lever]
		if l == nil || other != name && (u.class != class || !isLoaded(class)) {
			continue
		}
		variance, count := l.held.Chance()
		squares += variance * float64(count)
		steps += float64(count)
	}
	if steps < leastSteps {
		return chance{}
	}
	return chance{variance: max(squares/steps, finest), freedom: ofSteps * steps}
}

// isKnown tells whether it can be reckoned with.
func (c chance) isKnown() bool { return c.freedom > 0 }

// show sets the effect in a block's stratum. Its error is of all of the stratum's blocks
// together: each has as much of it that their squares add up to that.
func (c chance) show(b *ledger.Block, r *run) {
	variance := c.variance / float64(r.precision)
	// The mean of exp is above exp of the mean.
	b.Effect = verify.Shrunk{Log: float64(r.log) + variance/2}
	b.Chance, b.ChanceFreedom = math.Sqrt(variance/float64(r.share)), c.freedom
}
