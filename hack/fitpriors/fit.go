package main

import (
	"math"
	"strconv"
	"strings"

	"gonum.org/v1/gonum/stat"

	"github.com/joulevirt/joulevirt/internal/power/curve"
	"github.com/joulevirt/joulevirt/internal/power/prior"
)

// digits that are kept: more than the tables have, and few enough that
// processors that round differently write the same.
const digits = 7

func rounded(v float64) float64 { return toDigits(v, digits) }

// toDigits rounds to significant digits.
func toDigits(v float64, digits int) float64 {
	short, err := strconv.ParseFloat(strconv.FormatFloat(v, 'g', digits, 64), 64)
	if err != nil {
		return v
	}
	return short
}

func fitted(value, stdDev float64, unit string) prior.Figure {
	return prior.Figure{Value: rounded(value), StdDev: rounded(stdDev), Unit: unit, Origin: prior.Fitted}
}

func chosen(value, stdDev float64, unit string) prior.Figure {
	return prior.Figure{Value: rounded(value), StdDev: rounded(stdDev), Unit: unit, Origin: prior.Chosen}
}

// list writes numbers as in the tables.
func list(values []float64) string {
	words := make([]string, len(values))
	for i, v := range values {
		words[i] = strconv.FormatFloat(v, 'g', -1, 64)
	}
	return strings.Join(words, "+")
}

// subject names what a fit is of.
type subject struct {
	table, quantity, unit, note string
	// values and parameters of the fit. parameters 0: a check.
	values, parameters int
}

// goodness compares values with what is predicted for them.
func goodness(of subject, at []string, measured, predicted []float64) prior.Fit {
	fit := prior.Fit{
		Table: of.table, Quantity: of.quantity, Unit: of.unit, Note: of.note,
		Values: of.values, Parameters: of.parameters,
	}
	if of.parameters > 0 {
		fit.DegreesOfFreedom = max(0, of.values-of.parameters)
	}
	squares := 0.0
	for i := range measured {
		relative := predicted[i]/measured[i] - 1
		squares += (predicted[i] - measured[i]) * (predicted[i] - measured[i])
		fit.MaxRelativeError = max(fit.MaxRelativeError, rounded(math.Abs(relative)))
		fit.Points = append(fit.Points, prior.Point{
			At: at[i], Measured: rounded(measured[i]), Fitted: rounded(predicted[i]), RelativeError: rounded(relative),
		})
	}
	fit.RMSE = rounded(math.Sqrt(squares / float64(len(measured))))
	if len(measured) > 1 {
		r2 := rounded(stat.RSquaredFrom(predicted, measured, nil))
		fit.R2 = &r2
	}
	return fit
}

// curveGoodness compares samples with a curve.
func curveGoodness(of subject, samples []sample, c curve.Terms) prior.Fit {
	var at []string
	var measured, predicted []float64
	for _, s := range samples {
		at = append(at, s.at)
		measured = append(measured, s.value)
		predicted = append(predicted, s.predict(c))
	}
	return goodness(of, at, measured, predicted)
}
