package trials

import (
	"math"

	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat/distuv"
)

// row is one pair of slots of one unit: logarithms of what the second slot had over the first.
type row struct {
	unit string
	// joules for the time, demand, bytes that were delivered and bytes that VMs sent.
	joules, demand, delivered, sent float64
	// works is false where VMs had no traffic, so that nothing shows whether a lever loses work.
	works bool
	// signs of the levers: 1 on in the second slot only, -1 in the first only, 0 no difference.
	signs []float64
}

// estimate is what a regression says of one lever: a logarithm with its standard error.
type estimate struct {
	log, stdErr float64
	// freedom is the degrees of freedom.
	freedom int
}

// least and most of the slope of ln joules by ln demand: a node draws no less when it does more,
// and no more for each piece of work.
const leastSlope, mostSlope = 0, 1

// regress fits y = sum of theta_l sign_l + b x by least squares, without an intercept, and
// returns the theta of each lever and b. x nil: there is no covariate. bounded: b is kept within
// its bounds. False: too little is known.
func regress(rows []row, levers int, y, x func(*row) float64, bounded bool) (thetas []estimate, slope float64, ok bool) {
	n := len(rows)
	freedom := n - levers - 1
	if freedom < leastFreedom {
		return nil, 0, false
	}
	design, outcome := mat.NewDense(n, levers, nil), mat.NewVecDense(n, nil)
	covariate, spread := mat.NewVecDense(n, nil), 0.0
	for i := range rows {
		design.SetRow(i, rows[i].signs)
		outcome.SetVec(i, y(&rows[i]))
		if x != nil {
			covariate.SetVec(i, x(&rows[i]))
			spread += covariate.AtVec(i) * covariate.AtVec(i)
		}
	}
	inverse, ok := inverseOf(design)
	if !ok {
		return nil, 0, false
	}
	full := inverse
	if spread > 0 {
		// The part of the covariate that the signs do not explain gives the slope, and what it
		// adds to (X'X)^-1 is the price of not knowing it.
		projection := solve(inverse, design, covariate)
		rest := residual(design, covariate, projection)
		if unexplained := mat.Dot(rest, rest); unexplained > 1e-9*spread {
			slope = mat.Dot(rest, outcome) / unexplained
			full = mat.NewDense(levers, levers, nil)
			full.Outer(1/unexplained, projection, projection)
			full.Add(full, inverse)
		}
		if bounded {
			slope = min(max(slope, leastSlope), mostSlope)
		}
		outcome.AddScaledVec(outcome, -slope, covariate)
	}
	theta := solve(inverse, design, outcome)
	errors := residual(design, outcome, theta)
	variance := mat.Dot(errors, errors) / float64(freedom)
	for l := range levers {
		thetas = append(thetas, estimate{
			log: theta.AtVec(l), stdErr: math.Sqrt(variance * max(inverse.At(l, l), full.At(l, l))), freedom: freedom,
		})
	}
	return thetas, slope, true
}

// inverseOf returns (X'X)^-1. False: X'X is singular.
func inverseOf(x *mat.Dense) (*mat.Dense, bool) {
	var square, inverse mat.Dense
	square.Mul(x.T(), x)
	if err := inverse.Inverse(&square); err != nil {
		return nil, false
	}
	return &inverse, true
}

// solve returns (X'X)^-1 X'y.
func solve(inverse, x *mat.Dense, y *mat.VecDense) *mat.VecDense {
	var moments, out mat.VecDense
	moments.MulVec(x.T(), y)
	out.MulVec(inverse, &moments)
	return &out
}

// residual returns y - X theta.
func residual(x *mat.Dense, y, theta *mat.VecDense) *mat.VecDense {
	var fitted, rest mat.VecDense
	fitted.MulVec(x, theta)
	rest.SubVec(y, &fitted)
	return &rest
}

// critical is Student's t that is exceeded with a probability.
func critical(p float64, freedom int) float64 {
	return distuv.StudentsT{Sigma: 1, Nu: float64(freedom)}.Quantile(1 - p)
}

// below is the probability of an estimate as low as this one if the truth were the limit.
func (e *estimate) below(limit float64) float64 {
	return distuv.StudentsT{Sigma: 1, Nu: float64(e.freedom)}.CDF((e.log - limit) / e.stdErr)
}
