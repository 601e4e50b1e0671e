package traffic_test

import (
	"math/rand/v2"
	"testing"

	"github.com/joulevirt/joulevirt/internal/planner/traffic"
)

// Plans for random groups of up to 10 members cost hardly more than what trying everything
// finds.
func TestGapToOptimum(t *testing.T) {
	const largest, perSize, most, mostOfAny = 10, 40, 0.01, 0.02
	worst, sum, groups := 0.0, 0.0, 0
	for n := 2; n <= largest; n++ {
		for seed := range uint64(perSize) {
			for _, granularity := range []traffic.Granularity{traffic.Weighted, traffic.Equal} {
				r := rand.New(rand.NewPCG(1+seed, uint64(n)))
				g := randomGroup(r, n, 1+r.IntN(n), granularity)
				best, feasible := optimum(g)
				if !feasible {
					continue
				}
				rates := ratesOf(g, sharesOf(traffic.Allocate(g)))
				if err := checkRates(g, rates, 0); err != nil {
					t.Errorf("%d members, seed %d: %v", n, seed, err)
				}
				gap := costOf(g, rates)/best - 1
				if groups++; gap > mostOfAny || gap < -1e-6 {
					t.Errorf("%d members, seed %d, granularity %d: %.2f %% dearer than the optimum", n, seed, granularity, 100*gap)
				}
				worst, sum = max(worst, gap), sum+gap
			}
		}
	}
	t.Logf("%d groups: %.3f %% dearer than the optimum at worst", groups, 100*worst)
	t.Logf("figure traffic_gap_to_optimum_pct %.4f %%", 100*sum/float64(groups))
	if sum/float64(groups) > most {
		t.Errorf("want at most %v %% on average", 100*most)
	}
}
