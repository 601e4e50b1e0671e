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

// Shaping bounds what a VM sends. The zero value bounds nothing.
type Shaping struct {
	// Ceiling is the most that the VM sends. 0: no bound.
	Ceiling units.BitsPerSecond
	// Turn holds traffic until the VM's next turn. Nil: never.
	Turn *Turn
}

// IsZero tells whether nothing is bounded or held.
func (s Shaping) IsZero() bool { return s.Ceiling == 0 && s.Turn == nil }

// Equal tells whether two shapings bound the same.
func (s Shaping) Equal(o Shaping) bool {
	if s.Turn == nil || o.Turn == nil {
		return s == o
	}
	return s.Ceiling == o.Ceiling && *s.Turn == *o.Turn
}
