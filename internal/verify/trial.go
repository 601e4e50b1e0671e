package verify

import (
	"fmt"
	"math"
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
)

// Plan is how a trial is judged. All of it is laid down before the first block.
type Plan struct {
	// Confidence of the interval that is told. A lever that saves nothing is adopted with
	// a probability of at most half of what is missing to 1.
	Confidence float64
	// Pairs of blocks on each unit after which the trial ends, and Every how many of them
	// it is looked at.
	Pairs, Every int
	// Block is how long a block lasts.
	Block time.Duration
	// Least is the smallest saving that the lever is worth having for, as a share of the
	// joules: one that saves less is rejected as soon as that shows.
	Least float64
	// Margin is how much less work, as a share, is not yet inferior.
	Margin float64
	// MostGuarded is the largest share of on blocks that guards may end in the long run.
	MostGuarded float64
}

// DefaultPlan is that of trials on as many units, with blocks of a length. The more units
// there are, the shorter it is: a trial is not stopped early in what it could gather.
func DefaultPlan(block time.Duration, units int) Plan {
	const all, most, least = 192, 64, 16
	every := max(least/plannedLooks, min((all/max(units, 1)+plannedLooks-1)/plannedLooks, most/plannedLooks))
	return Plan{
		Confidence: 0.95, Pairs: plannedLooks * every, Every: every, Block: block,
		Least: 0.005, Margin: 0.05, MostGuarded: 0.1,
	}
}

// plannedLooks is how often a trial is looked at.
const plannedLooks = 8

// mostLonger is how many times as long as planned at first a trial is at most, unless a day
// takes more.
const mostLonger = 4

// day is after how long trials have seen all hours: what levers save goes with the load.
const day = 24 * time.Hour

// Longer is the plan of the next trial where one with so many pairs on each unit could not
// decide: it has twice as many, for what saves little shows late, and takes a day at least, as
// far as a schedule reaches.
func (p Plan) Longer(pairs int) Plan {
	ofDay := int((day + 2*p.Block - 1) / (2 * p.Block))
	pairs = min(max(p.Pairs, min(2*pairs, mostLonger*p.Pairs), ofDay), model.MostBlocks/2)
	p.Every = (pairs + plannedLooks - 1) / plannedLooks
	p.Pairs = plannedLooks * p.Every
	return p
}

// IsOfDay tells whether the trial, when it goes on to its end, sees all hours of a day.
func (p *Plan) IsOfDay() bool { return time.Duration(2*p.Pairs)*p.Block >= day }

// wronglyRejected is the probability to reject a lever that saves just Plan.Least.
const wronglyRejected = 0.1

// leastPairs is after how many pairs a trial is looked at first: with fewer a spread is
// hardly known.
const leastPairs = 4

// mostLooks is how often a trial is looked at, at most.
const mostLooks = 16

// Check returns what is wrong with a plan.
func (p *Plan) Check() error {
	inside := func(x, low, high float64) bool { return x >= low && x <= high }
	switch {
	case !inside(p.Confidence, 0.5, 0.999):
		return fmt.Errorf("trial: confidence %v, want 0.5 to 0.999", p.Confidence)
	case p.Pairs < leastPairs || 2*p.Pairs > model.MostBlocks:
		return fmt.Errorf("trial: %d pairs, want %d to %d", p.Pairs, leastPairs, model.MostBlocks/2)
	case p.Every < 1 || p.Every > p.Pairs || p.Pairs > mostLooks*p.Every:
		return fmt.Errorf("trial: %d pairs, looked at every %d, want at most %d looks", p.Pairs, p.Every, mostLooks)
	case p.Block <= 0:
		return fmt.Errorf("trial: blocks of %v, want above 0", p.Block)
	case !inside(p.Least, 0, 0.5):
		return fmt.Errorf("trial: least saving %v, want 0 to 0.5", p.Least)
	case !inside(p.Margin, 0.001, 0.5):
		return fmt.Errorf("trial: margin of work %v, want 0.001 to 0.5", p.Margin)
	case !inside(p.MostGuarded, 0, 1):
		return fmt.Errorf("trial: guarded share %v, want 0 to 1", p.MostGuarded)
	}
	return nil
}

// looks are after how many pairs the trial is looked at.
func (p *Plan) looks() []int {
	var looks []int
	for pairs := p.Every; pairs < p.Pairs; pairs += p.Every {
		if pairs >= leastPairs {
			looks = append(looks, pairs)
		}
	}
	return append(looks, p.Pairs)
}

// adoptRate is the probability to adopt a lever that saves nothing.
func (p *Plan) adoptRate() float64 { return (1 - p.Confidence) / 2 }

// least is the logarithm of the joules that the least saving leaves, without its sign.
func (p *Plan) least() float64 { return -math.Log1p(-p.Least) }

// margin is the logarithm of the work that is just not inferior.
func (p *Plan) margin() float64 { return math.Log1p(-p.Margin) }

// Trial is what there is to judge: the outcomes of all units that were switched at once.
type Trial struct {
	Plan
	// Units that take part, and Over: how many pairs of blocks are over on all of them.
	// What came later is left for the next look. A pair is over when its outcomes have come,
	// or will not.
	Units, Over int
	// Outcomes of one schedule for each unit.
	Outcomes []Outcome
	// Rejections of the lever on the class before this trial.
	Rejections int
}
