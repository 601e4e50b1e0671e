package traffic_test

import (
	"math/rand/v2"
	"testing"

	"github.com/joulevirt/joulevirt/internal/planner/traffic"
	"github.com/joulevirt/joulevirt/internal/planner/traffic/traffictest"
)

// gap returns by how much an allocation costs more than the optimum, in parts, and
// false when there is no optimum, or the allocation is balanced for want of one.
func gap(t *testing.T, g traffic.Group, allocate func(traffic.Group) (traffic.Allocation, error)) (float64, bool) {
	t.Helper()
	a, err := allocate(g)
	if err != nil {
		t.Fatal(err)
	}
	best, feasible := traffictest.Optimum(g)
	rates := traffictest.Goals(g, a)
	if !feasible {
		return 0, false
	}
	if err := traffictest.Check(g, rates, 0); err != nil {
		t.Errorf("%+v: %v", g, err)
	}
	return traffictest.Cost(g, rates)/best - 1, true
}

func TestOptimum(t *testing.T) {
	for name, tc := range map[string]struct {
		allocate          func(traffic.Group) (traffic.Allocation, error)
		granularity       traffic.Granularity
		from, to, repeats int
		within            float64
	}{
		"weighted, small": {traffic.Allocate, traffic.Weighted, 2, 8, 60, 1e-6},
		"weighted, large": {traffic.AllocateGreedily, traffic.Weighted, 2, 12, 20, 0.01},
		"equal, small":    {traffic.Allocate, traffic.Equal, 2, 12, 60, 1e-6},
		"equal, large":    {traffic.AllocateGreedily, traffic.Equal, 2, 12, 60, 0.01},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			worst, sum, feasible := 0.0, 0.0, 0
			for n := tc.from; n <= tc.to; n++ {
				for seed := range tc.repeats {
					r := rand.New(rand.NewPCG(uint64(seed), uint64(n)))
					g := traffictest.Random(r, n, 1+r.IntN(4), tc.granularity)
					off, ok := gap(t, g, tc.allocate)
					if !ok {
						continue
					}
					feasible++
					worst, sum = max(worst, off), sum+off
					if off > tc.within || off < -1e-6 {
						t.Errorf("%d members, seed %d: %.3f %% dearer than the optimum", n, seed, 100*off)
					}
				}
			}
			t.Logf("%d groups: worst %.4f %%, mean %.4f %%", feasible, 100*worst, 100*sum/float64(feasible))
			if feasible < tc.repeats {
				t.Errorf("only %d groups are feasible", feasible)
			}
		})
	}
}
