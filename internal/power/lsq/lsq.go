// Package lsq estimates the coefficients of a linear model online: least
// squares with exponential forgetting, a prior that never fades, lower bounds,
// and robustness against outliers. One update costs the same whatever came
// before, and allocates nothing.
//
// # The problem
//
// Observation k is y = x'beta + noise. The estimate minimises
//
//	sum_i ((beta_i - prior_i) / sd_i)^2 + sum_k f_k w_k ((y_k - x_k'beta) / s_k)^2
//
// subject to beta >= lower, where w are weights, s is the noise and f what is
// left of old observations. The first sum is the prior: directions that the
// observations say nothing about, or no longer, keep its mean and its standard
// deviation, so that the covariance cannot wind up (Ljung, System
// Identification, 2nd ed., 11.2; Haykin, Adaptive Filter Theory, ch. 9).
//
// In the prior's units, z_i = x_i sd_i and gamma_i = (beta_i - prior_i) / sd_i,
// that is the quadratic programme
//
//	minimise gamma'(I + A)gamma - 2 b'gamma, gamma >= l
//	A <- A + w z z'/s^2,  b <- b + w z (y - x'prior)/s^2
//
// whose matrix has no eigenvalue below 1, whether a term counts cores (1) or
// wake-ups per second (100,000). It is solved by an active-set method, see
// solve.go, which also tells how A and b fade: by 1 - 1/Memory along what is
// observed, and 50 times more slowly elsewhere. How outliers and changes of
// regime are told apart: see robust.go.
package lsq

import (
	"errors"
	"fmt"
	"math"
)

// MaxTerms is the largest number of coefficients.
const MaxTerms = 8

// maxMemory keeps the information of a full memory within what double precision
// resolves beside the prior.
const maxMemory = 1e6

// Outcome says what became of an observation.
type Outcome int

// The outcomes of an observation.
const (
	// Refused: not finite, without weight, or so far off that it says nothing.
	// The estimate is unchanged.
	Refused Outcome = iota
	// DownWeighted: far off, and counted for less.
	DownWeighted
	// Used: counted in full.
	Used
)

// String implements fmt.Stringer.
func (o Outcome) String() string {
	switch o {
	case Refused:
		return "Refused"
	case DownWeighted:
		return "DownWeighted"
	case Used:
		return "Used"
	}
	return fmt.Sprintf("Outcome(%d)", int(o))
}

// Options describe a linear model before anything was observed.
type Options struct {
	// Prior holds the expected coefficients: at most MaxTerms.
	Prior []float64
	// PriorStdDev holds their standard deviations. 0: the coefficient is known
	// and stays. The prior never fades.
	PriorStdDev []float64
	// Lower holds the least value of each coefficient, at most the prior's. Nil:
	// all 0. -Inf: not bounded.
	Lower []float64
	// Memory is the number of observations that count: each new one fades by 1 -
	// 1/Memory what those before it said of the same combination of coefficients,
	// and 50 times more slowly what they said of others. From 2 to a million.
	Memory float64
	// Noise is the standard deviation of an observation to start with, and the
	// least that is assumed later: the resolution of what is observed.
	Noise float64
}

// Estimator is a linear model that learns. It is used by one goroutine at a
// time.
type Estimator struct {
	terms  int
	memory float64
	// floor is the least noise.
	floor                  float64
	prior, sd, lower, beta vector
	// bound is lower in the prior's units.
	bound vector
	// main is the estimate. rival has a short memory and believes nearly
	// everything: main gives way to it when it predicts better.
	main, rival estimate
	// variance of an observation, and what it was when main was last right.
	variance, calm float64
	// lead is how far rival is ahead, misses how often it was wrong in a row, age
	// how much it observed since it started over: all in full observations.
	lead, misses, age float64
}

// New returns an Estimator that has observed nothing. It fails when the options
// contradict each other or are not finite.
func New(options Options) (*Estimator, error) {
	n := len(options.Prior)
	if n == 0 || n > MaxTerms {
		return nil, fmt.Errorf("lsq: %d coefficients: from 1 to %d are possible", n, MaxTerms)
	}
	if len(options.PriorStdDev) != n || (options.Lower != nil && len(options.Lower) != n) {
		return nil, errors.New("lsq: prior, its standard deviations and the lower bounds differ in length")
	}
	if !(options.Memory >= 2 && options.Memory <= maxMemory) {
		return nil, fmt.Errorf("lsq: a memory of %g observations: from 2 to %g are possible", options.Memory, maxMemory)
	}
	if !(options.Noise > 0) || !finite(options.Noise*options.Noise) || options.Noise*options.Noise == 0 {
		return nil, fmt.Errorf("lsq: noise %g: the standard deviation of an observation is positive and finite", options.Noise)
	}
	e := &Estimator{terms: n, memory: options.Memory, floor: options.Noise, variance: options.Noise * options.Noise, calm: options.Noise * options.Noise}
	for i := range n {
		mean, sd, low := options.Prior[i], options.PriorStdDev[i], 0.0
		if options.Lower != nil {
			low = options.Lower[i]
		}
		if !finite(mean) || !finite(sd) || sd < 0 {
			return nil, fmt.Errorf("lsq: coefficient %d: prior %g with standard deviation %g: both are finite, the latter not negative", i, mean, sd)
		}
		if !(low <= mean) {
			return nil, fmt.Errorf("lsq: coefficient %d: prior %g is below its lower bound %g", i, mean, low)
		}
		e.prior[i], e.sd[i], e.lower[i], e.beta[i] = mean, sd, low, mean
		e.bound[i] = math.Inf(-1)
		if sd > 0 {
			e.bound[i] = (low - mean) / sd
		}
	}
	e.main.factor, e.rival.factor = identity(), identity()
	return e, nil
}

// Predict returns the mean of an observation at x and the mean's standard
// error, which is that of the coefficients: an observation scatters by Residual
// in addition. Bounds are not considered in the error, which is thus rather too
// large. Terms that are missing or not finite count as 0.
func (e *Estimator) Predict(x []float64) (mean, stdErr float64) {
	var z vector
	for i := range min(len(x), e.terms) {
		if finite(x[i]) {
			mean += x[i] * e.beta[i]
			z[i] = x[i] * e.sd[i]
		}
	}
	return bounded(mean), bounded(math.Sqrt(e.main.factor.inverseForm(&z, e.terms)))
}

// Coefficients copies the coefficients into a slice, as many as fit.
func (e *Estimator) Coefficients(into []float64) { copy(into, e.beta[:e.terms]) }

// Residual returns the standard deviation of an observation around its
// prediction, estimated so that outliers hardly count.
func (e *Estimator) Residual() float64 { return math.Sqrt(e.variance) }

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

// bounded makes an overflow the largest number of its sign. NaN, from
// overflows of both signs, becomes the largest: nothing is known.
func bounded(v float64) float64 {
	if math.IsNaN(v) {
		return math.MaxFloat64
	}
	return min(max(v, -math.MaxFloat64), math.MaxFloat64)
}
