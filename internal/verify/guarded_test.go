package verify_test

import (
	"testing"

	"github.com/joulevirt/joulevirt/internal/verify"
)

// isGuarded tells whether a trial is rejected of which guards ended so many on blocks.
func isGuarded(on, ended int, allowed float64) bool {
	p := plan()
	p.MostGuarded = allowed
	trial := verify.Trial{Plan: p, Units: 1}
	for i := range on {
		o := outcomeOf(2*i, true, 5, 0)
		o.Guarded = i < ended
		trial.Outcomes = append(trial.Outcomes, o)
	}
	v := verify.Judge(&trial)
	return v.Decision == verify.Rejected && v.Why == verify.WhyGuarded
}

func TestGuardsRejectWhatChanceDoesNot(t *testing.T) {
	for _, c := range []struct {
		on, ended int
		allowed   float64
		want      bool
	}{
		{0, 0, 0.1, false}, {2, 2, 0.1, false}, {3, 3, 0.1, true}, {4, 4, 0.1, true}, {6, 3, 0.1, false},
		{18, 2, 0.1, false}, {18, 5, 0.1, false}, {18, 6, 0.1, true}, {192, 29, 0.1, false}, {192, 30, 0.1, true},
		{500, 2, 0, false}, {500, 3, 0, true}, {4, 4, 1, false}, {500, 500, 1, false},
	} {
		if got := isGuarded(c.on, c.ended, c.allowed); got != c.want {
			t.Errorf("%d of %d, allowed %g: rejected: %v, want %v", c.ended, c.on, c.allowed, got, c.want)
		}
	}
}

// TestGuardsKeepAnErrorRate works out exactly how often a trial of 192 on blocks is rejected
// that is looked at after each, where guards end each block with a probability.
func TestGuardsKeepAnErrorRate(t *testing.T) {
	const blocks = 192
	limits, limit := make([]int, blocks+1), 0
	for on := range limits {
		for limit <= on && !isGuarded(on, limit, plan().MostGuarded) {
			limit++
		}
		limits[on] = limit
	}
	for _, c := range []struct{ each, low, high float64 }{{0.03, 0, 0.0005}, {0.1, 0.05, 0.065}, {0.2, 0.96, 1}} {
		rejected, going := 0., []float64{1}
		for on := 1; on <= blocks; on++ {
			next := make([]float64, on+1)
			for ended, p := range going {
				next[ended] += p * (1 - c.each)
				next[ended+1] += p * c.each
			}
			for ended := limits[on]; ended <= on; ended++ {
				rejected += next[ended]
				next[ended] = 0
			}
			going = next
		}
		if rejected < c.low || rejected > c.high {
			t.Errorf("guards end %g of blocks: rejected with %.4f, want %g to %g", c.each, rejected, c.low, c.high)
		}
	}
}
