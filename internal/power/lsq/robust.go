package lsq

import "math"

const (
	// huberAt is the residual, in standard deviations, from which an observation
	// counts for less: 95 % efficient when there are no outliers (Huber, Robust
	// Estimation of a Location Parameter, 1964).
	huberAt = 1.345
	// refuseAt is the residual, in standard deviations, from which an
	// observation says nothing.
	refuseAt = 6.0
	// scaleClip bounds, in standard deviations, what one residual adds to the
	// estimate of the noise: with a tenth of outliers it is 1.3 times too high.
	// clippedMean is the mean of min(t^2, scaleClip^2) of a normal t, by which the
	// estimate is made consistent.
	scaleClip   = 2.0
	clippedMean = 0.92054
	// scaleMemory is how many observations the noise is estimated from.
	scaleMemory = 32
	// maxVariance keeps squares finite.
	maxVariance = 1e300
	// maxInformation bounds what a full memory weighs against the prior, so that
	// the prior is still resolved beside it.
	maxInformation = 1e10
	// longMemory is how much longer is remembered what no observation renews. With
	// a memory of an hour, a node knows in the morning what busy cores cost the day
	// before.
	longMemory = 50
	// rivalShare is the rival's memory as a share of the memory, and
	// rivalTermMemory its least memory per coefficient.
	rivalShare      = 0.1
	rivalTermMemory = 4
	// wrongAt is the residual, in standard deviations, from which the rival is
	// wrong. When it is twice in a row it starts over, but not before it had youth
	// observations per coefficient to learn from.
	wrongAt = 2.0
	youth   = 2
	// gaveUp is what main keeps along an observation when it gives way.
	gaveUp = 1e-3
	// allowance is what the rival has to be better by per observation, and
	// decision by how much in sum, in squared standard deviations, before it
	// takes over (Page, Continuous Inspection Schemes, 1954). One residual is
	// clipped at leadClip, so that it takes 8 observations at least.
	allowance = 0.5
	decision  = 60.0
	leadClip  = 3.0
)

// observation is one observation in the prior's units.
type observation struct {
	z vector
	// offset is what is observed less what the prior predicts.
	offset float64
	// information per squared term, for main and for the rival.
	information, rivalInformation float64
	// surprise and rivalSurprise are the squared residuals before the update,
	// in variances of main's residual.
	surprise, rivalSurprise float64
	// rivalWrong tells whether the rival was off by more than it could know.
	rivalWrong bool
}

// Update learns from one observation: y at x. A weight above 1 is that of the
// mean of so many observations, whose noise is smaller by its root. An
// observation with a weight below 1 is as noisy as any, but counts and fades
// what was before for that part of one only: it is for readings so close
// together that their errors are nearly the same.
//
// The residual before the update decides. It is compared with the noise and the
// prediction's own uncertainty: beyond 1.345 standard deviations the
// observation counts for less, beyond 6 not at all. So that a node that changed
// (kernel, BIOS) is not refused for ever, a rival estimate with a short memory
// learns from everything but lone outliers; once it has predicted clearly
// better for a while, the estimate gives way to it. Outliers do not agree with
// each other, so it does not predict them.
func (e *Estimator) Update(x []float64, y, weight float64) Outcome {
	if len(x) != e.terms || !(weight > 0) || !finite(weight) {
		return Refused
	}
	o, usable := e.observe(x, y, weight)
	if !usable {
		return Refused
	}
	part := min(1, weight)
	outcome := Used
	switch {
	case o.surprise > refuseAt*refuseAt:
		outcome = Refused
	case o.surprise > huberAt*huberAt:
		outcome = DownWeighted
	}
	if outcome != Refused {
		counted := o.information * min(1, huberAt/math.Sqrt(o.surprise))
		if !e.main.learn(&o, counted, fading(e.memory, part), &e.bound, e.terms) {
			outcome = Refused
		}
	}
	e.scatter(&o, part)
	e.challenge(&o, part, outcome == Refused)
	if e.yield(&o, part) {
		outcome = Used
	}
	for i := range e.terms {
		// Rounding must not lead below the bound.
		e.beta[i] = max(e.lower[i], e.prior[i]+e.sd[i]*e.main.gamma[i])
	}
	return outcome
}

// observe expresses an observation in the prior's units. It returns false when
// a figure is not finite, or the observation says nothing of any coefficient.
func (e *Estimator) observe(x []float64, y, weight float64) (observation, bool) {
	o := observation{offset: y}
	predicted, rivalPredicted, size := 0.0, 0.0, 0.0
	for i, v := range x {
		z := v * e.sd[i]
		o.z[i] = z
		o.offset -= v * e.prior[i]
		predicted += z * e.main.gamma[i]
		rivalPredicted += z * e.rival.gamma[i]
		size += z * z
	}
	noise := e.variance / max(1, weight)
	spread := noise + e.main.factor.inverseForm(&o.z, e.terms)
	o.surprise = square(o.offset-predicted) / spread
	o.rivalSurprise = square(o.offset-rivalPredicted) / spread
	o.rivalWrong = o.rivalSurprise*spread > square(wrongAt)*(noise+e.rival.factor.inverseForm(&o.z, e.terms))
	// The bound on the information is one on the precision of what is observed.
	// If main is wrong because the regime changed, noise that grew is not noise.
	limit := maxInformation / e.memory / size
	o.information = min(weight/e.variance, limit)
	o.rivalInformation = min(weight/min(e.variance, e.calm), limit)
	return o, size > 0 && finite(o.offset) && finite(o.rivalInformation) && finite(o.surprise) && finite(o.rivalSurprise)
}

// scatter follows the noise: an exponential mean of squared residuals, clipped
// (Huber's proposal 2). What a rival that is ahead predicts is no noise.
func (e *Estimator) scatter(o *observation, part float64) {
	surprise := o.surprise
	if e.lead > 0 {
		surprise = min(surprise, o.rivalSurprise)
	}
	growth := 1 + part/scaleMemory*(min(surprise, square(scaleClip))/clippedMean-1)
	e.variance = min(max(e.variance*growth, e.floor*e.floor), maxVariance)
}

// challenge lets the rival learn. It leaves a lone outlier out, and starts over
// from the prior when it is wrong a second time in a row: if the regime changed,
// everything before is wrong. A young one goes on instead, lest it never learns.
func (e *Estimator) challenge(o *observation, part float64, refused bool) {
	if e.misses += part; !o.rivalWrong {
		e.misses = 0
	}
	e.age += part
	lone := e.misses > 0 && e.misses <= 1
	switch {
	case lone && refused:
		return
	case e.misses > 1 && e.age >= youth*float64(e.terms):
		e.rival.info, e.rival.sum = matrix{}, vector{}
		e.misses, e.age = 0, 0
	}
	if o.surprise <= square(wrongAt) {
		e.calm = e.variance
	}
	memory := min(e.memory, max(rivalShare*e.memory, rivalTermMemory*float64(e.terms)))
	// What cannot be solved leaves the rival as it was.
	_ = e.rival.learn(o, o.rivalInformation, fading(memory, part), &e.bound, e.terms)
}

// yield makes main give way to a rival that is ahead, and tells whether it did.
// Half way to the decision main gives up what it knows along the observations
// that it does not predict, and keeps the rest: at a load that is constant
// through a night nothing is said of other loads. If that does not do, because
// everything changed, the rival takes over.
func (e *Estimator) yield(o *observation, part float64) bool {
	ahead := min(o.surprise, square(leadClip)) - min(o.rivalSurprise, square(leadClip)) - allowance
	e.lead = max(0, e.lead+part*ahead)
	switch {
	case e.lead <= decision/2:
		return false
	case e.lead <= decision:
		anew := forgetting{everywhere: 1, along: gaveUp}
		return o.surprise > square(wrongAt) && !o.rivalWrong && e.main.learn(o, o.rivalInformation, anew, &e.bound, e.terms)
	}
	// The noise grew with misses that were none of its.
	e.main, e.variance, e.lead, e.misses = e.rival, min(e.variance, e.calm), 0, 0
	return true
}

// fading is what is left of earlier information after an observation.
func fading(memory, part float64) forgetting {
	return forgetting{everywhere: left(longMemory*memory, part), along: left(memory, part)}
}

// left is what an exponential memory keeps at an observation.
func left(memory, part float64) float64 {
	if part == 1 {
		return 1 - 1/memory
	}
	return math.Pow(1-1/memory, part)
}

func square(v float64) float64 { return v * v }
