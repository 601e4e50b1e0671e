package loop

import (
	"math"
	"testing"
)

// TestCoverageInterval: as Clopper and Pearson have it. Their interval of none of ten is 0 to
// 1-0.025^(1/10).
func TestCoverageInterval(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		covered, fleets int
		low, high       float64
	}{
		{0, 10, 0, 0.3085},
		{10, 10, 0.6915, 1},
		{5, 10, 0.1871, 0.8129},
		{188, 200, 0.8975, 0.9686},
	} {
		low, high := (&Coverage{Fleets: c.fleets, Covered: c.covered}).Interval(0.95)
		if math.Abs(low-c.low) > 1e-4 || math.Abs(high-c.high) > 1e-4 {
			t.Errorf("%d of %d: %.4f to %.4f, want %.4f to %.4f", c.covered, c.fleets, low, high, c.low, c.high)
		}
	}
}
