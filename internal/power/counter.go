package power

import (
	"fmt"
	"time"

	"github.com/joulevirt/joulevirt/internal/units"
)

// CounterVerdict says what the difference of two readings of an energy counter
// is worth.
type CounterVerdict int

// The verdicts on two readings of an energy counter. Only CounterGood and
// CounterWrapped come with an energy.
const (
	// CounterGood: the counter went on.
	CounterGood CounterVerdict = iota
	// CounterWrapped: it wrapped once, which is counted.
	CounterWrapped
	// CounterReset: it started over, as after a restart of what counts.
	CounterReset
	// CounterGap: so much time passed that it may have wrapped more often than
	// can be seen, or no time did.
	CounterGap
	// CounterFrozen: it stands still.
	CounterFrozen
	// CounterTooFast: the energy is more than possible.
	CounterTooFast
)

// String implements fmt.Stringer.
func (v CounterVerdict) String() string {
	switch v {
	case CounterGood:
		return "Good"
	case CounterWrapped:
		return "Wrapped"
	case CounterReset:
		return "Reset"
	case CounterGap:
		return "Gap"
	case CounterFrozen:
		return "Frozen"
	case CounterTooFast:
		return "TooFast"
	}
	return fmt.Sprintf("CounterVerdict(%d)", int(v))
}

// Usable tells whether the difference is an energy.
func (v CounterVerdict) Usable() bool { return v == CounterGood || v == CounterWrapped }

// Difference returns the energy between two readings of a counter of
// microjoules, and what it is worth: 0 J unless the verdict is usable. WrapAt is
// the value at which the counter starts again at 0; 0: it never does. Most is
// more power than what is metered can draw: it tells a wrap from a restart, and
// bounds how often the counter wrapped.
func Difference(from, to, wrapAt uint64, elapsed time.Duration, most units.Watts) (units.Joules, CounterVerdict) {
	if elapsed <= 0 {
		return 0, CounterGap
	}
	if wrapAt > 0 && (from > wrapAt || to > wrapAt) {
		return 0, CounterReset
	}
	const micro = 1e6
	possible := elapsed.Seconds() * float64(most) * micro
	verdict, counted := CounterGood, to-from
	if to < from {
		if wrapAt == 0 {
			return 0, CounterReset
		}
		verdict, counted = CounterWrapped, wrapAt-from+to
	}
	switch {
	case wrapAt > 0 && float64(counted)+float64(wrapAt) <= possible:
		return 0, CounterGap
	case counted == 0:
		return 0, CounterFrozen
	// Not ">": no power is less than most when that is not a number.
	case !(float64(counted) <= possible) && verdict == CounterWrapped:
		return 0, CounterReset
	case !(float64(counted) <= possible):
		return 0, CounterTooFast
	}
	return units.Joules(float64(counted) / micro), verdict
}
