package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/joulevirt/joulevirt/internal/planner/affinity"
	"github.com/joulevirt/joulevirt/internal/planner/affinity/affinitytest"
)

// measureAffinityPlan times one plan for a node of 128 CPUs with 200 VMs, none of which
// has pins, and the next one, in which they have, and tells the longer.
func measureAffinityPlan(_ context.Context, env environment) ([]figure, error) {
	s := affinitytest.Large(rand.New(rand.NewPCG(benchSeed, 0)))
	worst := 0.0
	for _, round := range []string{"first", "next"} {
		placed := affinity.Place(s.Node, s.VMs)
		if _, err := s.Predict(placed.Decisions); err != nil {
			return nil, err
		}
		bound := 0
		for _, d := range placed.Decisions {
			if len(d.Pins) > 0 {
				bound++
			}
		}
		if bound < len(s.VMs)/2 {
			return nil, fmt.Errorf("only %d of %d VMs are bound: nothing was to be measured by it", bound, len(s.VMs))
		}
		took := medianPlacement(s)
		fmt.Fprintf(env.progress, "bench: the %s plan for %d CPUs and %d VMs takes %.1f ms: %d VMs bound, %.1f W become %.1f W\n",
			round, len(s.Node.CPUs), len(s.VMs), took, bound, placed.Before, placed.After)
		worst = max(worst, took)
		s = s.Adopt(placed.Decisions)
	}
	return []figure{{"affinity_plan_128cpu_200vm_ms", worst, "ms"}}, nil
}

// medianPlacement returns the median time of a plan in milliseconds.
func medianPlacement(s affinitytest.Scenario) float64 {
	const plans = 41
	var took []time.Duration
	for range plans {
		start := time.Now()
		affinity.Place(s.Node, s.VMs)
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	return float64(percentile(took, 0.5)) / float64(time.Millisecond)
}

// measureAffinityGap compares plans for small random nodes with the best of all that
// could be made, of those that meet as many of the owners' wishes.
func measureAffinityGap(ctx context.Context, env environment) ([]figure, error) {
	const nodes, percent = 600, 100
	worst, sum := 0.0, 0.0
	for seed := range nodes {
		s := affinitytest.Small(rand.New(rand.NewPCG(benchSeed+uint64(seed), 6)))
		got, err := s.Predict(affinity.Place(s.Node, s.VMs).Decisions)
		if err != nil {
			return nil, err
		}
		best := s.Optimum()
		if got.Unmet != best.Unmet {
			return nil, fmt.Errorf("node %d: %d wishes are unmet, %d could be", seed, got.Unmet, best.Unmet)
		}
		worst, sum = max(worst, got.Price/best.Price-1), sum+got.Price/best.Price-1
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
	fmt.Fprintf(env.progress, "bench: plans of %d nodes with up to 5 vCPUs cost at most %.3f %% more than the best, %.4f %% on average\n",
		nodes, percent*worst, percent*sum/nodes)
	return []figure{{"affinity_gap_to_optimum_pct", percent * worst, "%"}}, nil
}
