package model

import (
	"testing"
	"testing/quick"
	"time"
)

func TestPhase(t *testing.T) {
	turn := Turn{Period: 10 * time.Second, Offset: 3 * time.Second, Length: 2 * time.Second}
	// Around the end of the period.
	wrapped := Turn{Period: 10 * time.Second, Offset: 9 * time.Second, Length: 2 * time.Second}
	for _, test := range []struct {
		turn Turn
		now  time.Duration
		open bool
		next time.Duration
	}{
		{turn, 0, false, 3 * time.Second},
		{turn, 3 * time.Second, true, 5 * time.Second},
		{turn, 5*time.Second - 1, true, 5 * time.Second},
		{turn, 5 * time.Second, false, 13 * time.Second},
		{turn, 12999 * time.Millisecond, false, 13 * time.Second},
		{turn, 1e6*time.Hour + 4*time.Second, true, 1e6*time.Hour + 5*time.Second},
		{wrapped, 0, true, time.Second},
		{wrapped, time.Second, false, 9 * time.Second},
		{wrapped, 9 * time.Second, true, 11 * time.Second},
		{Turn{Period: time.Second, Length: time.Second}, 5, true, never},
		{Turn{}, 5, true, never},
	} {
		if open, next := test.turn.Phase(test.now); open != test.open || next != test.next {
			t.Errorf("%+v at %v: %v until %v, want %v until %v", test.turn, test.now, open, next, test.open, test.next)
		}
	}
}

// In any period from any moment on, a turn is on for its length and off for
// the rest, and each moment that Phase names is one of a change.
func TestAPeriodHasOneTurn(t *testing.T) {
	holds := func(period, offset, length uint16, start uint32) bool {
		turn := Turn{Period: time.Duration(period) + 2, Offset: time.Duration(offset)}
		turn.Length = time.Duration(length)%(turn.Period-1) + 1
		from := time.Duration(start)
		on := time.Duration(0)
		for now := from; now < from+turn.Period; {
			open, next := turn.Phase(now)
			if before, _ := turn.Phase(next - 1); next <= now || before != open {
				return false
			}
			if after, _ := turn.Phase(next); next != never && after == open {
				return false
			}
			end := min(next, from+turn.Period)
			if open {
				on += end - now
			}
			now = end
		}
		return on == turn.Length
	}
	if err := quick.Check(holds, nil); err != nil {
		t.Error(err)
	}
}
