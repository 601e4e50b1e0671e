package planner

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/planner/traffic"
	"github.com/joulevirt/joulevirt/internal/units"
)

const groupRound = 30 * time.Second

// A group whose traffic is the same for hours, but for a noise of a fifth, keeps its
// shares once they are found.
func TestGroupNoiseMovesNothing(t *testing.T) {
	for _, granularity := range []traffic.Granularity{traffic.Weighted, traffic.Equal} {
		for seed := range uint64(5) {
			r := rand.New(rand.NewPCG(seed, 1))
			group, now := groupOf(granularity, 5), noon()
			var demand Demand
			changes := 0
			for round := range 600 {
				noisy := group
				noisy.Members = slices.Clone(group.Members)
				factor, total := units.BitsPerSecond(max(0.1, 1+0.2*r.NormFloat64())), units.BitsPerSecond(0)
				for i := range noisy.Members {
					noisy.Members[i].Rate *= factor
					total += noisy.Members[i].Rate
				}
				demand = demand.Next(total, now, groupRound)
				noisy.Total = demand.Total
				next := follow(group, planGroup(t, noisy, now))
				for i := range next.Members {
					if round >= 120 && math.Abs(next.Members[i].Share-group.Members[i].Share) > 1e-9 {
						changes++
						break
					}
				}
				group, now = next, now.Add(groupRound)
			}
			// Of 480 rounds. It was 150 and more without a demand.
			if changes > 6 {
				t.Errorf("granularity %d, seed %d: traffic moves in %d rounds for noise alone", granularity, seed, changes)
			}
		}
	}
}

// TestDemandFollows counts in rounds until the total is within a tenth of the rate.
func TestDemandFollows(t *testing.T) {
	for name, tc := range map[string]struct {
		from, to units.BitsPerSecond
		// soonest and latest round.
		soonest, latest int
	}{
		"twice and more": {100e6, 250e6, 1, 1},
		"by half":        {100e6, 150e6, 1, 5},
		"by a fifth":     {100e6, 120e6, 1, 40},
		"to a half":      {100e6, 50e6, belowRounds, 2 * belowRounds},
		"to nothing":     {100e6, 0, belowRounds, 30 * belowRounds},
		"from nothing":   {0, 100e6, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			var d Demand
			now := noon()
			for range 100 {
				d = d.Next(tc.from, now, groupRound)
				now = now.Add(groupRound)
			}
			if d.Total != tc.from {
				t.Fatalf("a demand of %v, want %v", d.Total, tc.from)
			}
			for round := 1; round <= tc.latest; round++ {
				d = d.Next(tc.to, now, groupRound)
				now = now.Add(groupRound)
				if math.Abs(float64(d.Total-tc.to)) <= 0.1*max(float64(tc.to), 1) {
					if round < tc.soonest {
						t.Errorf("after %d rounds, want %d and more", round, tc.soonest)
					}
					return
				}
			}
			t.Errorf("after %d rounds the demand is %v", tc.latest, d.Total)
		})
	}
}

// A plan that is acted on stays while its curves are not known, as after a start.
func TestGroupKeepsItsPlanWithoutCurves(t *testing.T) {
	for _, granularity := range []traffic.Granularity{traffic.Weighted, traffic.Equal} {
		group, before := settle(t, groupOf(granularity, 5))
		group.Curves[1] = nil
		plan := planGroup(t, group, noon())
		if plan.Action != GroupSteer || plan.Revision != before.Revision || moved(before.Shares, plan.Shares) > 1e-9 {
			t.Errorf("%+v, before %+v", plan, before)
		}
		group.Last = nil
		if plan := planGroup(t, group, noon()); plan.Action != GroupBalance || plan.Reason != model.ReasonCurvesUnknown {
			t.Errorf("without a plan before: %+v", plan)
		}
	}
}

func TestDemandIgnoresNonsense(t *testing.T) {
	d := Demand{}.Next(100e6, noon(), groupRound)
	for _, rate := range []float64{math.NaN(), math.Inf(1), -1} {
		if got := d.Next(units.BitsPerSecond(rate), noon().Add(time.Hour), groupRound); got != d {
			t.Errorf("after a rate of %v: %+v", rate, got)
		}
	}
}
