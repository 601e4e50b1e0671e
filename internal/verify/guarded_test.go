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
