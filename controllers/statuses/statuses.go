// Package statuses has what the writers of statuses share: conditions, bounds and figures.
package statuses

import (
	"math"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/ledger"
	"github.com/joulevirt/joulevirt/internal/power"
)

const (
	// MaxConditionMessage is far below the API's bound, in bytes: messages quote what people write.
	MaxConditionMessage = 1024
	// normal95 is how many standard errors a 95 % interval reaches to each side.
	normal95 = 1.96
)

// Cut shortens a text to a number of bytes, at a character's border.
func Cut(text string, most int) string {
	const dots = "..."
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most-len(dots)], "") + dots
}

// SetConditions sets conditions with the injected time, their messages cut.
func SetConditions(conditions *[]metav1.Condition, values []metav1.Condition, generation int64, now time.Time) {
	for _, condition := range values {
		condition.ObservedGeneration, condition.Message = generation, Cut(condition.Message, MaxConditionMessage)
		condition.LastTransitionTime = metav1.NewTime(now)
		meta.SetStatusCondition(conditions, condition)
	}
}

// SavingOf returns a prediction as a status has it: in two digits, with its interval.
func SavingOf(lever v1alpha1.Lever, predicted power.Estimate) v1alpha1.Saving {
	watts, reach := float64(predicted.Watts), normal95*float64(predicted.StdErr)
	estimate, _ := EstimateOf(ledger.Range{Value: watts, Low: watts - reach, High: watts + reach}, 2)
	return v1alpha1.Saving{Lever: lever, Watts: estimate}
}

// EstimateOf rounds a range to significant digits. It returns false for what is no number, or too large for one.
func EstimateOf(r ledger.Range, digits int) (v1alpha1.Estimate, bool) {
	value, ok1 := Decimal(r.Value, digits)
	low, ok2 := Decimal(r.Low, digits)
	high, ok3 := Decimal(r.High, digits)
	return v1alpha1.Estimate{Value: value, Low: low, High: high}, ok1 && ok2 && ok3
}

// Decimal rounds a number to significant digits: more say nothing, and would change the status
// each time. It returns false for what is no number, or too large for one.
func Decimal(x float64, digits int) (v1alpha1.Decimal, bool) {
	const least, most = 1e-9, 1e15
	size := math.Abs(x)
	switch {
	case !(size < most):
		return "", false
	case size < least:
		return "0", true
	}
	rounded, err := strconv.ParseFloat(strconv.FormatFloat(x, 'e', digits-1, 64), 64)
	if err != nil {
		return "", false
	}
	return v1alpha1.Decimal(strconv.FormatFloat(rounded, 'f', -1, 64)), true
}

// TwoDigits rounds a figure that is not negative: digits that say nothing would
// change the status each time.
func TwoDigits(x float64) int64 {
	if !(x >= 1) || x > math.MaxInt64/2 {
		return 0
	}
	unit := math.Pow(10, math.Max(0, math.Floor(math.Log10(x))-1))
	return int64(math.Round(x/unit) * unit)
}

// RangeOf returns the figures of an estimate.
func RangeOf(e v1alpha1.Estimate) ledger.Range {
	return ledger.Range{Value: e.Value.Float(), Low: e.Low.Float(), High: e.High.Float()}
}
