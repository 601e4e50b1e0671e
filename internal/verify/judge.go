package verify

import (
	"math"

	"gonum.org/v1/gonum/stat/distuv"

	"github.com/joulevirt/joulevirt/internal/verify/sequential"
)

// largest effect that is believed, in logarithms to either side: no lever halves what a
// node draws. What seems to is the meter, or blocks that were not what they are told as.
const largest = math.Ln2

// lopsided is how unlikely it may be that blocks with the lever on are missing so much
// more often than those with it off.
const lopsided = 0.01

// oftenGuarded is how likely it may be, each time that is looked, that guards end as many on
// blocks as they did of a lever that they end in just as many as the plan allows.
const oftenGuarded = 0.01

// leastStep is how much of a trial's information a look adds at least: where most pairs are
// lost there is little to look at.
const leastStep = 1.0 / 32

// Judge says what a trial has shown so far. It goes through the looks from the first on,
// and the first that decides stands: equal trials have equal verdicts, whenever they are
// judged and by whomever.
func Judge(t *Trial) Verdict {
	if err := t.Check(); err != nil {
		return Verdict{
			Decision: Undecided, Why: WhyInvalidPlan, Message: err.Error(),
			Low: math.Inf(-1), High: math.Inf(1),
		}
	}
	c := course{
		trial: t, units: reportedOf(t.Outcomes), decision: Undecided, why: WhyTooFew,
		saves: sequential.NewBound(t.adoptRate()), worth: sequential.NewBound(wronglyRejected),
	}
	for _, pairs := range t.looks() {
		if pairs > t.Over {
			break
		}
		if c.look(pairs); c.decision != Undecided {
			return c.verdict()
		}
	}
	// It does not take a look to see that a lever hurts.
	if c.below = math.MaxInt; c.isGuarded() {
		c.decision, c.why = Rejected, WhyGuarded
	}
	return c.verdict()
}

// course of a trial from look to look.
type course struct {
	trial *Trial
	units []told
	// saves bounds what shows that the lever saves, and that it is not inferior in work or,
	// in its negative, that it is. The negative of worth bounds what shows that the lever
	// saves less than is worth it.
	saves, worth *sequential.Bound
	// passed are the looks before the last one that judged, at which the trial went on, and
	// bounds those of the last.
	passed []sequential.Look
	at     sequential.Look
	// What it showed.
	measured
	// pairs of blocks of each unit that are over, and below: the number of the first block
	// that guards are not looked for in.
	pairs, below int
	decision     Decision
	why          Why
}

// measured is what blocks of units show together.
type measured struct {
	each         []UnitEffect
	energy, work Effect
	// missing is true if on blocks are missing more often than by chance.
	missing bool
}

// look judges the first pairs of blocks of all units.
func (c *course) look(pairs int) {
	c.pairs, c.below = pairs, 2*pairs
	if c.isGuarded() {
		c.decision, c.why = Rejected, WhyGuarded
	}
	seen := c.measure(pairs)
	share := float64(seen.energy.Pairs) / float64(c.trial.Pairs*max(c.trial.Units, len(c.units)))
	if !seen.energy.IsKnown() || !seen.work.IsKnown() || share < c.at.Share+leastStep {
		return
	}
	c.measured = seen
	if c.at.Share > 0 {
		c.passed = append(c.passed, c.at)
	}
	last := pairs == c.trial.Pairs
	saves, worth := c.saves.Next(share, last), c.worth.Next(share, last)
	least := c.trial.least()
	// Only where the rest is shown can the saving end the trial.
	work, upper := over(c.work, c.trial.margin()), math.Inf(1)
	open := work >= saves && !c.missing && math.Abs(c.energy.Log) <= largest
	if open {
		upper = sequential.FromNormal(saves, c.energy.Freedom)
	}
	lower := least/c.energy.StdErr + sequential.FromNormal(-worth, c.energy.Freedom)
	c.at = sequential.Look{Share: share, Lower: lower, Upper: upper, Freedom: c.energy.Freedom}
	saving := Effect{Log: -c.energy.Log, StdErr: c.energy.StdErr, Freedom: c.energy.Freedom}
	switch {
	case c.decision == Rejected:
	case work <= -saves:
		c.decision, c.why = Rejected, WhyWorkLess
	case c.missing:
		c.why = WhyMissing
	case math.Abs(c.energy.Log) > largest:
		c.why = WhyImplausible
	case open && over(saving, 0) >= saves:
		c.decision, c.why = Adopted, WhySaves
	case over(saving, least) <= -worth:
		c.decision, c.why = Rejected, WhyTooLittle
	case over(saving, 0) >= saves:
		c.why = WhyWorkUnclear
	default:
		c.why = WhyUnclear
	}
}

// over is the standard normal that stands for how far an effect is above a value.
func over(e Effect, value float64) float64 {
	return sequential.ToNormal((e.Log-value)/e.StdErr, e.Freedom)
}

// measure takes the effects of the first pairs of blocks.
func (c *course) measure(pairs int) measured {
	seen := measured{each: make([]UnitEffect, 0, len(c.units))}
	energy, work := make([]Effect, 0, len(c.units)), make([]Effect, 0, len(c.units))
	var lost lostBlocks
	for i := range c.units {
		u := c.units[i].before(2 * pairs)
		ofEnergy, ofWork := u.effects()
		energy, work = append(energy, ofEnergy), append(work, ofWork)
		seen.each = append(seen.each, UnitEffect{u.name, ofEnergy})
		lost.count(&u)
	}
	seen.energy, seen.work, seen.missing = together(energy), together(work), lost.isLopsided()
	return seen
}

// lostBlocks of pairs of which the other half counts.
type lostBlocks struct{ on, all int }

func (l *lostBlocks) count(u *unit) {
	for i, b := range u.blocks {
		paired := i > 0 && u.blocks[i-1].number/2 == b.number/2 ||
			i+1 < len(u.blocks) && u.blocks[i+1].number/2 == b.number/2
		if !paired {
			l.all++
			if !b.on {
				l.on++
			}
		}
	}
}

func (l *lostBlocks) isLopsided() bool {
	as := distuv.Binomial{N: float64(l.all), P: 0.5}
	return l.on > 0 && 1-as.CDF(float64(l.on-1)) < lopsided
}

// isGuarded tells whether guards ended the lever in so many of the on blocks that it is too
// unlikely that they do so in no more than the plan allows. Once or twice may be anything.
func (c *course) isGuarded() bool {
	on, ended := c.guarded()
	allowed := distuv.Binomial{N: float64(on), P: c.trial.MostGuarded}
	return ended >= 3 && 1-allowed.CDF(float64(ended-1)) < oftenGuarded
}

// guarded counts the on blocks and those that guards ended, whether their figures count or
// not.
func (c *course) guarded() (on, ended int) {
	for _, u := range c.units {
		for _, o := range u.outcomes {
			if !o.On || o.Block >= c.below {
				continue
			}
			on++
			if o.Guarded {
				ended++
			}
		}
	}
	return on, ended
}

// verdict puts together what the last look showed.
func (c *course) verdict() Verdict {
	v := Verdict{
		Decision: c.decision, Why: c.why,
		Effect: c.energy, Work: c.work, Units: c.each, Pairs: c.pairs, Final: c.pairs == c.trial.Pairs,
		Low: math.Inf(-1), High: math.Inf(1),
	}
	if c.at.Share > 0 {
		v.Log, v.Low, v.High = c.interval()
	}
	switch v.Decision {
	case Rejected:
		v.CoolDown = CoolDown(c.trial.Rejections)
	case Undecided:
		v.Needed = c.needed()
	}
	if v.Why == WhyTooLittle && v.Low > 0 {
		v.Why = WhyCosts
	}
	v.Message = c.message(&v)
	return v
}

// interval of the effect, and the estimate that is as often too large as too small, for a
// trial that ended at the last look or is looked at there.
func (c *course) interval() (log, low, high float64) {
	stop := sequential.Stop{
		Passed: c.passed, Share: c.at.Share,
		Ratio: -c.energy.Log / c.energy.StdErr, Freedom: c.energy.Freedom,
	}
	rate, err := c.trial.adoptRate(), c.energy.StdErr
	effects := stop.Effects(0.5, 1-rate, rate)
	return -err * effects[0], -err * effects[1], -err * effects[2]
}
