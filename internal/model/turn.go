package model

import "time"

// Phase tells whether the VM's turn is on at a time of the node's
// CLOCK_MONOTONIC, and when that changes next: later than now, and never when
// the turn lasts all of its period. A turn without a period is always on.
func (t Turn) Phase(now time.Duration) (open bool, next time.Duration) {
	if t.Period <= 0 || t.Length >= t.Period {
		return true, never
	}
	// into is the time since the start of the turn before now, also when now is
	// before the first.
	into := (now - t.Offset) % t.Period
	if into < 0 {
		into += t.Period
	}
	if into < t.Length {
		return true, now - into + t.Length
	}
	return false, now - into + t.Period
}

// never is later than any time of a clock.
const never time.Duration = 1<<63 - 1
