package statuses

import (
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
)

// What people write is quoted in messages, and may be longer than the API accepts.
func TestLongMessagesAreCut(t *testing.T) {
	var conditions []metav1.Condition
	long := metav1.Condition{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Ready", Message: strings.Repeat("ä", 40_000)}
	SetConditions(&conditions, []metav1.Condition{long}, 1, time.Time{})
	if got := conditions[0].Message; len(got) > MaxConditionMessage || !utf8.ValidString(got) {
		t.Errorf("a message of %d bytes", len(got))
	}
}

func TestTwoDigits(t *testing.T) {
	for x, want := range map[float64]int64{0: 0, -1: 0, 0.5: 0, 7.4: 7, 99: 99, 994: 990, 995: 1000, 123_456_789: 120_000_000, 1e300: 0} {
		if got := TwoDigits(x); got != want {
			t.Errorf("%v became %d, want %d", x, got, want)
		}
	}
}

// Digits that say nothing must not change a status.
func TestDecimal(t *testing.T) {
	for x, want := range map[float64]v1alpha1.Decimal{
		0: "0", 12.345: "12.3", -12.345: "-12.3", 0.0004567: "0.000457", 999.6: "1000", 123456: "123000", 1e-12: "0", -1e-12: "0", 100: "100",
	} {
		if got, ok := Decimal(x, 3); !ok || got != want {
			t.Errorf("%g is %s, want %s", x, got, want)
		}
	}
	for _, x := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), 1e15} {
		if got, ok := Decimal(x, 3); ok {
			t.Errorf("%g is %s, want none", x, got)
		}
	}
}
