package verify

import (
	"fmt"
	"math"
	"time"
)

// mostLog is the largest logarithm that is told as a percentage.
const mostLog = 5

// message says in words what a verdict is and what it stands on.
func (c *course) message(v *Verdict) string {
	plan := &c.trial.Plan
	seen := c.seen(v)
	switch v.Why {
	case WhyGuarded:
		on, ended := c.guarded()
		return fmt.Sprintf("guards ended the lever in %d of %d blocks, which is more than chance makes of the %.0f %% that they may; %s", ended, on, 100*plan.MostGuarded, seen)
	case WhyWorkLess:
		return fmt.Sprintf("the work done is less by more than %.3g %%: it changes by %+.1f %%; %s", 100*plan.Margin, percentOf(v.Work.Log), seen)
	case WhySaves:
		return fmt.Sprintf("it saves energy, and work is not less by more than %.3g %%: %s", 100*plan.Margin, seen)
	case WhyCosts:
		return "it costs energy: " + seen
	case WhyTooLittle:
		return fmt.Sprintf("it saves less than the %.3g %% that it has to: %s", 100*plan.Least, seen)
	case WhyTooFew:
		return "too few pairs of blocks count yet; the first look is after " + plural(plan.looks()[0], "pair")
	case WhyMissing:
		return "blocks with the lever on are missing more often than those with it off, so that it may be the lever that ends them; " + seen
	case WhyImplausible:
		return "no lever changes joules by so much, look at the meter: " + seen
	case WhyWorkUnclear:
		return fmt.Sprintf("it saves energy, but work could be less by more than %.3g %%: %s; %s", 100*plan.Margin, seen, c.wait(v))
	default:
		return fmt.Sprintf("not clear yet: %s; %s", seen, c.wait(v))
	}
}

// seen puts an effect into words: joules for the same work with the lever over without.
func (c *course) seen(v *Verdict) string {
	if math.IsInf(v.Low, 0) || v.Low < -mostLog || v.High > mostLog {
		return "no figure of joules can be told"
	}
	return fmt.Sprintf("joules for the same work change by %+.2f %%, with a confidence of %.3g %% by %+.2f to %+.2f %%, in %s of blocks on %s",
		percentOf(v.Log), 100*c.trial.Confidence, percentOf(v.Low), percentOf(v.High),
		plural(v.Effect.Pairs, "pair"), plural(v.Effect.Units, "unit"))
}

// wait says how much longer the trial takes.
func (c *course) wait(v *Verdict) string {
	left := c.trial.length(c.trial.Pairs - v.Pairs)
	switch {
	case v.Needed == 0:
		return "how much longer it takes is not known"
	case left == 0:
		return fmt.Sprintf("the trial is over, about %v more would have decided", v.Needed)
	case v.Needed > left:
		return fmt.Sprintf("about %v more would decide, of which the trial has %v left", v.Needed, left)
	default:
		return fmt.Sprintf("about %v more will decide", v.Needed)
	}
}

// length of so many pairs of blocks.
func (p *Plan) length(pairs int) time.Duration { return time.Duration(2*pairs) * p.Block }

func percentOf(log float64) float64 { return 100 * math.Expm1(log) }

func plural(n int, word string) string {
	if n == 1 {
		return "1 " + word
	}
	return fmt.Sprintf("%d %ss", n, word)
}
