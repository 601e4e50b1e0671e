package main

import (
	"errors"
	"fmt"
	"math"
	"math/bits"

	"gonum.org/v1/gonum/mat"
)

// maxNonNegative is how many coefficients nonNegative takes: it looks at all
// subsets of them.
const maxNonNegative = 8

// nonNegative returns the x >= 0 that minimises |A x - y|. It solves for each
// subset of coefficients with the others at zero and takes the best solution
// that is not negative: exact, with the same result on every run, and quick
// enough for the few coefficients of a cost curve.
func nonNegative(a *mat.Dense, y []float64) ([]float64, error) {
	rows, cols := a.Dims()
	if rows != len(y) {
		return nil, fmt.Errorf("%d equations for %d values", rows, len(y))
	}
	if cols > maxNonNegative {
		return nil, fmt.Errorf("%d coefficients; at most %d", cols, maxNonNegative)
	}
	best, least := make([]float64, cols), squared(y)
	for subset := uint(1); subset < 1<<cols; subset++ {
		if bits.OnesCount(subset) > rows {
			continue
		}
		x, err := solveSubset(a, y, subset)
		if err != nil {
			continue // a singular subset: one with fewer coefficients is as good
		}
		if left := squared(residual(a, x, y)); left < least {
			best, least = x, left
		}
	}
	if math.IsNaN(least) || math.IsInf(least, 0) {
		return nil, errors.New("values that are not finite")
	}
	return best, nil
}

// solveSubset solves for the coefficients of a subset. A negative one is an
// error.
func solveSubset(a *mat.Dense, y []float64, subset uint) ([]float64, error) {
	rows, cols := a.Dims()
	part := mat.NewDense(rows, bits.OnesCount(subset), nil)
	var of []int
	for col := range cols {
		if subset&(1<<col) != 0 {
			part.SetCol(len(of), mat.Col(nil, col, a))
			of = append(of, col)
		}
	}
	var solution mat.VecDense
	if err := solution.SolveVec(part, mat.NewVecDense(rows, append([]float64(nil), y...))); err != nil {
		return nil, err
	}
	x := make([]float64, cols)
	for i, col := range of {
		if x[col] = solution.AtVec(i); x[col] < 0 {
			return nil, errors.New("a negative coefficient")
		}
	}
	return x, nil
}

// residual returns y - A x.
func residual(a *mat.Dense, x, y []float64) []float64 {
	var fitted mat.VecDense
	fitted.MulVec(a, mat.NewVecDense(len(x), append([]float64(nil), x...)))
	left := make([]float64, len(y))
	for i := range y {
		left[i] = y[i] - fitted.AtVec(i)
	}
	return left
}

func squared(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v * v
	}
	return sum
}
