package power

import (
	"math"

	"gonum.org/v1/gonum/mat"
)

const (
	// huberAt is the residual, in standard deviations, from which an observation
	// counts for less: 95 % efficient when there are no outliers (Huber, Robust
	// Estimation of a Location Parameter, 1964).
	huberAt = 1.345
	// clip bounds, in standard deviations, what one residual adds to the estimate of
	// the noise, which is a mean over noiseMemory observations. Where the node changed,
	// the noise grows by it until new readings count again.
	clip, noiseMemory = 2.0, 32
	// longMemory is how much longer is remembered what no observation renews. With
	// a memory of an hour, a node knows in the morning what busy cores cost the day
	// before.
	longMemory = 50
)

// ridge estimates the coefficients of a linear model, none of which is negative, by least
// squares with a prior that never fades and observations that do:
//
//	minimise sum_i ((beta_i - prior_i) / sd_i)^2 + sum_k fade_k ((y_k - x_k'beta) / noise)^2
//
// In the prior's units, z_i = x_i sd_i and gamma_i = (beta_i - prior_i) / sd_i, that is
// (I + A) gamma = b, whose matrix has no eigenvalue below 1.
type ridge struct {
	prior, sd, gamma [terms]float64
	// info and sum are A and b, and factor the one of I + A.
	info   *mat.SymDense
	sum    *mat.VecDense
	factor mat.Cholesky
	// variance of an observation, the least that it can be, and how many are remembered.
	variance, leastVariance, memory float64
}

func newRidge(prior, sd [terms]float64, noise, memory float64) *ridge {
	r := &ridge{
		prior: prior, sd: sd, info: mat.NewSymDense(terms, nil), sum: mat.NewVecDense(terms, nil),
		variance: noise * noise, leastVariance: noise * noise, memory: memory,
	}
	r.solve()
	return r
}

// predict returns the mean of an observation at x and the mean's standard error, which is
// that of the coefficients.
func (r *ridge) predict(x [terms]float64) (mean, stdErr float64) {
	z, beta := r.scaled(x), r.coefficients()
	for i := range x {
		mean += x[i] * beta[i]
	}
	return mean, math.Sqrt(r.spread(z))
}

func (r *ridge) coefficients() (beta [terms]float64) {
	for i := range beta {
		beta[i] = max(0, r.prior[i]+r.sd[i]*r.gamma[i])
	}
	return beta
}

func (r *ridge) scaled(x [terms]float64) *mat.VecDense {
	z := mat.NewVecDense(terms, nil)
	for i := range x {
		z.SetVec(i, x[i]*r.sd[i])
	}
	return z
}

// spread returns z'(I + A)^-1 z.
func (r *ridge) spread(z *mat.VecDense) float64 {
	var solved mat.VecDense
	if r.factor.SolveVecTo(&solved, z) != nil {
		return 0
	}
	return max(0, mat.Dot(z, &solved))
}

// update learns from one observation: y at x. A weight below 1 is that of a reading so close
// to others that their errors are nearly the same.
func (r *ridge) update(x [terms]float64, y, weight float64) {
	z := r.scaled(x)
	predicted, _ := r.predict(x)
	miss := (y - predicted) / math.Sqrt(r.variance+r.spread(z))
	r.variance = max(r.leastVariance, r.variance*(1+weight/noiseMemory*(min(miss*miss, clip*clip)-1)))
	r.forget(z, math.Pow(1-1/r.memory, weight), math.Pow(1-1/(longMemory*r.memory), weight))
	offset := y
	for i := range x {
		offset -= x[i] * r.prior[i]
	}
	information := weight / r.variance * min(1, huberAt/max(math.Abs(miss), 1e-9))
	r.info.SymRankOne(r.info, information, z)
	r.sum.AddScaledVec(r.sum, information*offset, z)
	r.solve()
}

// forget fades earlier information: a little everywhere, and along z, where the new
// observation replaces it (Cao and Schwartz, A directional forgetting algorithm based on the
// decomposition of the information matrix, 2000).
func (r *ridge) forget(z *mat.VecDense, along, everywhere float64) {
	var known mat.VecDense
	known.MulVec(r.info, z)
	if said := mat.Dot(z, &known); said > 0 {
		rate := (1 - along) / said
		r.sum.AddScaledVec(r.sum, -rate*mat.Dot(z, r.sum), &known)
		r.info.SymRankOne(r.info, -rate, &known)
	}
	r.sum.ScaleVec(everywhere, r.sum)
	r.info.ScaleSym(everywhere, r.info)
}

// solve finds the coefficients. Those that would be negative are 0, one after the other, and
// the others are found again.
func (r *ridge) solve() {
	h := mat.NewSymDense(terms, nil)
	right := mat.NewVecDense(terms, nil)
	right.CopyVec(r.sum)
	for i := range terms {
		for j := i; j < terms; j++ {
			h.SetSym(i, j, r.info.At(i, j))
		}
		h.SetSym(i, i, 1+r.info.At(i, i))
	}
	r.factor.Factorize(h)
	for range terms + 1 {
		var factor mat.Cholesky
		var gamma mat.VecDense
		if !factor.Factorize(h) || factor.SolveVecTo(&gamma, right) != nil {
			return
		}
		worst, below := -1, 0.0
		for i := range terms {
			r.gamma[i] = gamma.AtVec(i)
			if value := r.prior[i] + r.sd[i]*r.gamma[i]; value < below-1e-9 {
				worst, below = i, value
			}
		}
		if worst < 0 {
			return
		}
		bound := -r.prior[worst] / r.sd[worst]
		for j := range terms {
			if j != worst {
				right.SetVec(j, right.AtVec(j)-h.At(j, worst)*bound)
				h.SetSym(min(j, worst), max(j, worst), 0)
			}
		}
		h.SetSym(worst, worst, 1)
		right.SetVec(worst, bound)
	}
}
