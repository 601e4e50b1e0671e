package metering

import (
	"math"
	"testing"
)

// Traffic counts in every round, also while the load or the power is not known, and starts
// over with the joules.
func TestBytes(t *testing.T) {
	m := newMachine(t)
	want := 0.0
	round := func(seconds, megabits float64) {
		t.Helper()
		m.megabits = megabits
		m.round(seconds, 1)
		want += megabits * 1e6 / 8 * seconds
		if got := m.rates.Totals.Bytes; math.Abs(got-want) > 1e-6 {
			t.Errorf("%v bytes, want %v", got, want)
		}
	}
	round(0, 0)
	round(1, 80)
	round(0.5, 16)
	m.blind = true
	round(1, 8)
	m.blind, m.spoil = false, unreadable
	round(1, 8)
	round(2, 0)
	since := m.rates.Totals.Since
	for m.rates.Totals.Since.Equal(since) {
		m.round(10, 1)
	}
	if totals := m.rates.Totals; totals.Bytes != 0 || totals.Joules != 0 {
		t.Errorf("totals %+v that start over", totals)
	}
}
