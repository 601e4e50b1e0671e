package sequential

import (
	"math"

	"gonum.org/v1/gonum/stat/distuv"
)

// Look is one that was passed, as the ratio of the estimate to its standard error was
// within bounds.
type Look struct {
	// Share of the information.
	Share float64
	// Lower and Upper bounds of the ratio that would have ended the trial. Infinite: none.
	// Freedom is the degrees of freedom of the standard error.
	Lower, Upper, Freedom float64
}

// Stop is where a trial ended, or is looked at as if it had.
type Stop struct {
	// Passed are the looks before, at which the trial went on.
	Passed []Look
	// Share of the information at the end.
	Share float64
	// Ratio of the estimate to its standard error at the end, and the degrees of freedom
	// of that error, which may be infinite.
	Ratio, Freedom float64
}

// precision of effects, in standard errors, and the most steps towards it.
const (
	precision = 1e-4
	mostSteps = 60
)

// unlikely is the probability of getting as far as the trial did below which nothing
// follows from its path, and the end is taken as if it had been the only look.
const unlikely = 1e-9

// Effects finds, for each probability, the effect with which the trial would have ended as
// it did, or with more of an effect, with that probability: half for the estimate that is
// as often too large as too small, and (1-confidence)/2 and (1+confidence)/2 for the ends
// of an interval. Effects are multiples of the standard error at the end. An end at an
// earlier look is more of an effect if its upper bound ended the trial, and less if its
// lower bound did; at the same look a larger ratio is more.
func (s *Stop) Effects(probabilities ...float64) []float64 {
	last, steps := s.path()
	effects := make([]float64, len(probabilities))
	for i, probability := range probabilities {
		effects[i] = s.effect(last, steps, quantile(probability))
	}
	return effects
}

// effect under which the probability to end with as much has a normal quantile, which
// rises with the effect about as fast as that does.
func (s *Stop) effect(last *path, steps []step, want float64) float64 {
	low, high := s.Ratio-Impassable, s.Ratio+Impassable
	plain := s.Ratio + FromNormal(want, s.Freedom)
	effect := plain
	for range mostSteps {
		got, ok := s.above(last, steps, effect)
		if !ok {
			return plain
		}
		if got > want {
			high = effect
		} else {
			low = effect
		}
		next := effect + max(-1, min(1, want-got))
		if next <= low || next >= high {
			next = (low + high) / 2
		}
		if math.Abs(next-effect) < precision {
			return next
		}
		effect = next
	}
	return effect
}

// step to a look of the path, which was at before.
type step struct {
	before *path
	// share of the information at the end, and the upper bound of Z.
	share, upper float64
}

// path to the end under the effect that was seen, and its steps.
func (s *Stop) path() (last *path, steps []step) {
	// With shares of the information at the end the drift is the ratio.
	p := newPath(s.Ratio)
	for _, look := range s.Passed {
		share := look.Share / s.Share
		mean := s.Ratio * math.Sqrt(share)
		before, upper := *p, bound(look.Upper, mean, look.Freedom)
		steps = append(steps, step{&before, share, upper})
		p.pass(share, bound(look.Lower, mean, look.Freedom), upper)
	}
	return p, steps
}

// unreached is a ratio so large that it is not reached: the approximation ends there.
const unreached = 100

// bound of a ratio as one of Z, about a mean of it: as likely to be passed with an error
// that is known as the ratio is with one that is estimated. Johnson and Welch's
// approximation of the noncentral distribution, Biometrika 31:362 (1940).
func bound(ratio, mean, freedom float64) float64 {
	if math.Abs(ratio) > unreached {
		return math.Copysign(Impassable, ratio)
	}
	return mean + (ratio*(1-1/(4*freedom))-mean)/math.Sqrt(1+ratio*ratio/(2*freedom))
}

// above is the normal quantile of the probability to end with as much of an effect as was
// seen, or more, under an effect. It is false if the trial would hardly have come so far.
func (s *Stop) above(last *path, steps []step, effect float64) (z float64, ok bool) {
	more := effect - s.Ratio
	if passed := last.passed(more); !(passed >= unlikely && passed < 1+unlikely) {
		return 0, false
	}
	// What is left of the ratio without the effect has Student's distribution.
	probability := last.above(1, effect+ToNormal(s.Ratio-effect, s.Freedom), more)
	for _, step := range steps {
		probability += step.before.above(step.share, step.upper, more)
	}
	if math.IsNaN(probability) {
		return 0, false
	}
	return quantile(max(1e-300, min(probability, 1-1e-16))), true
}

// plenty of degrees of freedom make Student's distribution the normal one.
const plenty = 1e5

// ToNormal is the standard normal that is exceeded as often as a ratio with degrees of
// freedom: within Impassable of 0.
func ToNormal(ratio, freedom float64) float64 {
	if freedom > plenty {
		return max(-Impassable, min(ratio, Impassable))
	}
	tail := distuv.StudentsT{Sigma: 1, Nu: freedom}.CDF(-math.Abs(ratio))
	return math.Copysign(min(-quantile(max(1e-300, min(tail, 0.5))), Impassable), ratio)
}

// FromNormal is the ratio with degrees of freedom that is exceeded as often as z.
func FromNormal(z, freedom float64) float64 {
	if freedom > plenty {
		return z
	}
	return math.Copysign(-distuv.StudentsT{Sigma: 1, Nu: freedom}.Quantile(upper(math.Abs(z))), z)
}
