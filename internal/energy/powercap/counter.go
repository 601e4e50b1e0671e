package powercap

import (
	"time"

	"github.com/joulevirt/joulevirt/internal/units"
)

// verdict says what the difference of two readings of an energy counter
// is worth.
type verdict int

// Only good and wrapped come with an energy.
const (
	// good: the counter went on.
	good verdict = iota
	// wrapped: it wrapped once, which is counted.
	wrapped
	// reset: it started over, as after a restart of what counts.
	reset
	// gap: so much time passed that it may have wrapped more often than
	// can be seen, or no time did.
	gap
	// frozen: it stands still.
	frozen
	// tooFast: the energy is more than possible.
	tooFast
)

// isUsable reports whether the difference is an energy.
func (v verdict) isUsable() bool { return v == good || v == wrapped }

// difference returns the energy between two readings of a counter of
// microjoules, and what it is worth: 0 J unless the verdict is usable. WrapAt is
// the value at which the counter starts again at 0; 0: it never does. most is
// more power than what is metered can draw: it tells a wrap from a restart, and
// bounds how often the counter wrapped.
func difference(from, to, wrapAt uint64, elapsed time.Duration, most units.Watts) (units.Joules, verdict) {
	if elapsed <= 0 {
		return 0, gap
	}
	if wrapAt > 0 && (from > wrapAt || to > wrapAt) {
		return 0, reset
	}
	const micro = 1e6
	possible := elapsed.Seconds() * float64(most) * micro
	is, counted := good, to-from
	if to < from {
		if wrapAt == 0 {
			return 0, reset
		}
		is, counted = wrapped, wrapAt-from+to
	}
	switch {
	case wrapAt > 0 && float64(counted)+float64(wrapAt) <= possible:
		return 0, gap
	case counted == 0:
		return 0, frozen
	case float64(counted) > possible && is == wrapped:
		return 0, reset
	case float64(counted) > possible:
		return 0, tooFast
	}
	return units.Joules(float64(counted) / micro), is
}
