package model

import (
	"time"

	"github.com/joulevirt/joulevirt/internal/units"
)

// Turn is when a VM's deferrable traffic goes at full rate: from Offset on, for
// Length, in each Period of the node's CLOCK_MONOTONIC.
type Turn struct {
	Period, Offset, Length time.Duration
	// Trickle passes between turns, so that no connection times out.
	Trickle units.BitsPerSecond
}

// LeastRate is the least that a VM is ever held to: with less, connections time
// out.
const LeastRate units.BitsPerSecond = 256_000

// MostRate is the rate from which on a bound bounds nothing: no device is as
// fast, and kernels do not count much further.
const MostRate units.BitsPerSecond = 1e12

// IsValid reports whether a turn lies within its period, in whole milliseconds as
// the API has them, and leaves a trickle with which no connection times out.
func (t Turn) IsValid() bool {
	whole := t.Period%time.Millisecond == 0 && t.Offset%time.Millisecond == 0 && t.Length%time.Millisecond == 0
	return whole && t.Period >= 100*time.Millisecond && t.Period <= time.Hour && t.Offset >= 0 &&
		t.Length >= 10*time.Millisecond && t.Offset+t.Length <= t.Period && t.Trickle >= LeastRate && t.Trickle <= MostRate
}

// Shaping bounds what a VM sends. The zero value bounds nothing.
type Shaping struct {
	// Ceiling is the most that the VM sends. 0: no bound.
	Ceiling units.BitsPerSecond
	// Turn holds traffic until the VM's next turn. Nil: never.
	Turn *Turn
}

// IsZero reports whether nothing is bounded or held.
func (s Shaping) IsZero() bool { return s.Ceiling == 0 && s.Turn == nil }

// Equal reports whether two shapings bound the same.
func (s Shaping) Equal(o Shaping) bool {
	if s.Turn == nil || o.Turn == nil {
		return s == o
	}
	return s.Ceiling == o.Ceiling && *s.Turn == *o.Turn
}

// Phase reports whether the VM's turn is on at a time of the node's
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
