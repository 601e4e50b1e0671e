package show

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
)

// None stands for an unknown value, as in kubectl.
const None = "<none>"

// Or returns text, or None if it is empty.
func Or(text string) string {
	if text == "" {
		return None
	}
	return text
}

// Number formats three significant digits, and all before the point. Nil is None.
func Number(value *float64) string {
	if value == nil {
		return None
	}
	v := *value
	digits := 0
	if v != 0 {
		digits = max(2-int(math.Floor(math.Log10(math.Abs(v)))), 0)
	}
	text := strconv.FormatFloat(v, 'f', min(digits, 9), 64)
	if strings.Contains(text, ".") {
		text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	}
	return text
}

// Seconds formats a number of seconds. Nil is None.
func Seconds(seconds *float64) string {
	if seconds == nil {
		return None
	}
	return fmt.Sprintf("%.0fs", *seconds)
}

// Age returns how long ago a time was. Nil, or zero, is None.
func Age(at *metav1.Time, now time.Time) string {
	if at == nil || at.IsZero() {
		return None
	}
	return duration.HumanDuration(max(now.Sub(at.Time), 0))
}

// Some names the first three of many.
func Some(names []string) string {
	shown := names[:min(len(names), 3)]
	words := strings.Join(shown, ", ")
	if rest := len(names) - len(shown); rest > 0 {
		words += " and " + strconv.Itoa(rest) + " more"
	}
	return words
}

// Count is a number of things: "1 node", "2 nodes".
func Count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return strconv.Itoa(n) + " " + thing + "s"
}
