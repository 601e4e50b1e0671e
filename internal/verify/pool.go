package verify

import (
	"math"

	"gonum.org/v1/gonum/stat/distuv"
)

// Pooled is a lever's effect over a class of units, each of which has its own.
type Pooled struct {
	// Mean of the units' effects. Its zero value: not known, for fewer than two units.
	// Its standard error goes with Student's distribution for Freedom.
	Mean Effect
	// Between is the standard deviation of the units' true effects about the mean.
	Between float64
	// spreads are the values that Between may have, with how likely each is: with few
	// units it is hardly known.
	spreads []spread
	// drawn is the mean's error where units are drawn to it, see errorOfDrawn.
	drawn Effect
}

// spread is a variance between units with its weight. The weights of all add up to 1.
type spread struct{ variance, weight float64 }

// IsKnown tells whether the effect was estimated: some degrees of freedom, a standard
// error above 0, and all of them finite.
func (e Effect) IsKnown() bool {
	finite := !math.IsNaN(e.Log) && !math.IsInf(e.Log, 0) && !math.IsInf(e.StdErr, 0) && !math.IsNaN(e.Freedom)
	return finite && e.StdErr > 0 && e.Freedom > 0
}

// Interval returns the ends of the interval that covers the truth with a confidence,
// above 0 and below 1. For an effect that is not known they are infinite.
func (e Effect) Interval(confidence float64) (low, high float64) {
	if !e.IsKnown() {
		return math.Inf(-1), math.Inf(1)
	}
	half := Quantile(e.Freedom, confidence) * e.StdErr
	return e.Log - half, e.Log + half
}

// Quantile is by how many standard errors the interval for a confidence reaches to each
// side, by Student's distribution. The freedom may be infinite.
func Quantile(freedom, confidence float64) float64 {
	// From here on Student's is the normal distribution, to four digits.
	const plenty = 1e5
	if freedom > plenty {
		return distuv.UnitNormal.Quantile((1 + confidence) / 2)
	}
	return distuv.StudentsT{Mu: 0, Sigma: 1, Nu: freedom}.Quantile((1 + confidence) / 2)
}

// Pool takes together the effects of the units of one class. Those that are not known do
// not count.
//
// Units' errors are estimates: those that happen to be small weigh too much, and the mean
// errs by more than the weights say. So its error is at least what the residuals themselves
// say, each by its weight, MacKinnon and White, J Econometrics 29:305 (1985).
//
// Random effects: the variance between units is Paule and Mandel's, J Res Natl Bur Stand
// 87:377 (1982), the interval of the mean that of Hartung and Knapp, Stat Med 20:3875
// (2001), with as many degrees of freedom as units less one. It is not widened where units
// agree better than their errors say: over many classes that would cover too often, with
// two units nearly always.
func Pool(effects []Effect) Pooled {
	known := make([]Effect, 0, len(effects))
	mean := Effect{}
	for _, e := range effects {
		if e.IsKnown() {
			known = append(known, e)
			mean.Units += max(e.Units, 1)
			mean.Pairs += e.Pairs
		}
	}
	if len(known) < 2 {
		return Pooled{}
	}
	between := pauleMandel(known)
	fit := fitMean(known, between)
	mean.Log, mean.Freedom = fit.mean, float64(len(known)-1)
	// Units that agree to the last digit would have an interval of no width.
	scale := max(fit.squares/mean.Freedom, fit.each/fit.precision, leastScale)
	mean.StdErr = math.Sqrt(scale / fit.precision)
	pooled := Pooled{Mean: mean, Between: math.Sqrt(between), spreads: spreadsOf(known)}
	pooled.drawn = pooled.errorOfDrawn(known)
	return pooled
}

// errorOfDrawn is the error of the mean for units that are drawn to it. It is at least what
// the units' own errors and all spreads say: units that agree by accident would else be
// drawn to a mean that seems to be known well, and those are the ones whose levers are
// adopted.
func (p Pooled) errorOfDrawn(effects []Effect) Effect {
	precision, freedom := 0.0, 0.0
	for _, e := range effects {
		for _, s := range p.spreads {
			precision += s.weight / (e.StdErr*e.StdErr + s.variance)
		}
		freedom += e.Freedom
	}
	said := Effect{Log: p.Mean.Log, StdErr: 1 / math.Sqrt(precision), Freedom: freedom}
	const compared = 0.95
	if Quantile(said.Freedom, compared)*said.StdErr > Quantile(p.Mean.Freedom, compared)*p.Mean.StdErr {
		return said
	}
	return p.Mean
}

// leastScale is the least by which the variance of a mean is scaled.
const leastScale = 1e-6

// meanFit is a mean that is weighted by precision.
type meanFit struct {
	mean float64
	// precision is the sum of the weights, squares the weighted sum of squared residuals,
	// and each that with weights squared, and each residual as large as it would be if the
	// unit had no part in the mean's error.
	precision, squares, each float64
}

func fitMean(effects []Effect, between float64) meanFit {
	var fit meanFit
	for _, e := range effects {
		weight := 1 / (e.StdErr*e.StdErr + between)
		fit.precision += weight
		fit.mean += weight * e.Log
	}
	fit.mean /= fit.precision
	for _, e := range effects {
		residual := e.Log - fit.mean
		weight := 1 / (e.StdErr*e.StdErr + between)
		fit.squares += weight * residual * residual
		fit.each += weight * weight * residual * residual / max(1-weight/fit.precision, leastScale)
	}
	return fit
}

// pauleMandel returns the variance between units with which the residuals are as large as
// they should be. The squares fall with it, so that halving finds it.
func pauleMandel(effects []Effect) float64 {
	freedom := float64(len(effects) - 1)
	if fitMean(effects, 0).squares <= freedom {
		return 0
	}
	high := 1e-12
	for fitMean(effects, high).squares > freedom {
		high *= 4
	}
	low := high / 4
	const halvings = 50
	for range halvings {
		middle := (low + high) / 2
		if fitMean(effects, middle).squares > freedom {
			low = middle
		} else {
			high = middle
		}
	}
	return (low + high) / 2
}
