package units

import (
	"testing"
	"time"
)

func TestRates(t *testing.T) {
	for _, tc := range []struct {
		run, elapsed time.Duration
		cores        Cores
		perSecond    PerSecond
	}{
		{500 * time.Millisecond, 2 * time.Second, 0.25, 10},
		{4 * time.Second, 2 * time.Second, 2, 10},
		{time.Second, 0, 0, 0},
		{time.Second, -time.Second, 0, 0},
	} {
		if got := Over(tc.run, tc.elapsed); got != tc.cores {
			t.Errorf("%v of run time in %v: %v cores, want %v", tc.run, tc.elapsed, got, tc.cores)
		}
		if got := RateOf(20, tc.elapsed); got != tc.perSecond {
			t.Errorf("20 in %v: %v/s, want %v/s", tc.elapsed, got, tc.perSecond)
		}
	}
}
