package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/planner/traffic"
	"github.com/joulevirt/joulevirt/internal/planner/traffic/traffictest"
	"github.com/joulevirt/joulevirt/internal/power"
	"github.com/joulevirt/joulevirt/internal/power/curve"
	"github.com/joulevirt/joulevirt/internal/power/prior"
	"github.com/joulevirt/joulevirt/internal/power/whatif"
	"github.com/joulevirt/joulevirt/internal/units"
	"github.com/joulevirt/joulevirt/test/simulated"
)

const mbit = traffictest.Mbit

// measureTrafficPlan times one plan for a group of 10,000 VMs, with weights and
// with equal shares, and tells the longer.
func measureTrafficPlan(_ context.Context, env environment) ([]figure, error) {
	group, err := largeGroup(rand.New(rand.NewPCG(benchSeed, 0)))
	if err != nil {
		return nil, err
	}
	worst := 0.0
	for _, granularity := range []traffic.Granularity{traffic.Weighted, traffic.Equal} {
		group.Granularity = granularity
		planned, err := traffic.Allocate(group)
		if err != nil {
			return nil, err
		}
		if planned.Reason != model.ReasonSkewed {
			return nil, fmt.Errorf("the plan of %d VMs is %s: nothing was to be measured by it", len(group.Members), planned.Reason)
		}
		took, err := medianPlan(group)
		if err != nil {
			return nil, err
		}
		name := map[traffic.Granularity]string{traffic.Weighted: "weights", traffic.Equal: "equal shares"}[granularity]
		fmt.Fprintf(env.progress, "bench: a plan of %s for %d VMs takes %.1f ms\n", name, len(group.Members), took)
		worst = max(worst, took)
	}
	return []figure{{"traffic_plan_10k_ms", worst, "ms"}}, nil
}

// medianPlan returns the median time of a plan in milliseconds: other work on the
// machine makes single ones several times longer.
func medianPlan(group traffic.Group) (float64, error) {
	const plans = 41
	var took []time.Duration
	for range plans {
		start := time.Now()
		if _, err := traffic.Allocate(group); err != nil {
			return 0, err
		}
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	return float64(percentile(took, 0.5)) / float64(time.Millisecond), nil
}

// largeGroup returns 10,000 VMs of five classes on 200 nodes, each of which has
// cost curves of its own.
func largeGroup(r *rand.Rand) (traffic.Group, error) {
	const vms, nodes, each = 10_000, 200, 90 * mbit
	group := traffic.Group{
		Total: vms * each, MinActive: 2, MinDomains: 2, SpareLargest: true, MaxStep: 0.1, MinSaving: 0.01,
	}
	priors, err := prior.Default()
	if err != nil {
		return group, err
	}
	curves, err := curve.New(curve.Options{Prior: priors.Curve})
	if err != nil {
		return group, err
	}
	var topology model.Topology
	for cpu := range 16 {
		topology.Cores = append(topology.Cores, model.Core{CPUs: units.NewCPUSet(cpu)})
	}
	host := whatif.Host{Model: power.NewNodeModel(priors.Node(topology)), Curves: curves}
	classes := []int{1, 2, 4, 8, 16}
	for range nodes {
		for _, vcpus := range classes {
			// Nodes differ by the size of their packets.
			table, err := host.CostTable(curve.Key{Class: curve.ClassOf(vcpus, true)}, 4000+8000*r.Float64(), 10*each)
			if err != nil {
				return group, err
			}
			group.Curves = append(group.Curves, table.At)
		}
	}
	for i := range vms {
		node := r.IntN(nodes)
		m := traffic.Member{
			Name: fmt.Sprintf("vm-%05d", i), Domain: fmt.Sprintf("zone-%d", node%3), Share: 1.0 / vms, Rate: each,
			Limit: each * units.BitsPerSecond(2+8*r.Float64()), Curve: node*len(classes) + r.IntN(len(classes)),
		}
		if r.IntN(5) == 0 {
			m.Floor = each / 20
		}
		group.Members = append(group.Members, m)
	}
	return group, nil
}

// measureTrafficGap compares plans for random groups of up to 12 VMs with what
// trying everything finds.
func measureTrafficGap(ctx context.Context, env environment) ([]figure, error) {
	const largest, perSize, percent = 12, 40, 100
	worst, groups := 0.0, 0
	for n := 2; n <= largest; n++ {
		for seed := range perSize {
			for _, granularity := range []traffic.Granularity{traffic.Weighted, traffic.Equal} {
				r := rand.New(rand.NewPCG(benchSeed+uint64(seed), uint64(n)))
				group := traffictest.Random(r, n, 1+r.IntN(n), granularity)
				best, feasible := traffictest.Optimum(group)
				if !feasible {
					continue
				}
				planned, err := traffic.Allocate(group)
				if err != nil {
					return nil, err
				}
				groups++
				worst = max(worst, traffictest.Cost(group, traffictest.Goals(group, planned))/best-1)
			}
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
	fmt.Fprintf(env.progress, "bench: plans of %d groups of 2 to %d VMs compared with their optimum\n", groups, largest)
	return []figure{{"traffic_gap_to_optimum_pct", percent * worst, "%"}}, nil
}

// measureTrafficSaving lets the manager learn simulated hosts of five VMs that send
// 900 Mbit/s, and plan. The figure is of the study's host with KVM.
func measureTrafficSaving(_ context.Context, env environment) ([]figure, error) {
	const percent = 100
	var figures []figure
	for _, s := range simulated.StudiedHosts(benchSeed) {
		o, err := s.Plan()
		if err != nil {
			return nil, err
		}
		saving := percent * o.Planned.Saved(o.Balanced)
		fmt.Fprintf(env.progress, "simulated %s, Mbit/s of five VMs:\n", s.Name)
		for _, split := range simulated.StudiedSplits() {
			drawn, err := s.Draw(split)
			if err != nil {
				return nil, err
			}
			fmt.Fprintf(env.progress, "%v  %5.1f %% less\n", drawn, percent*drawn.Saved(o.Balanced))
		}
		fmt.Fprintf(env.progress, "%v  %5.1f %% less: planned in %d rounds, up to 31.6 %% in the study\n", o.Planned, saving, len(o.Rounds))
		if figures == nil {
			figures = []figure{{"traffic_sim_saving_pct", saving, "%"}}
		}
	}
	return figures, nil
}
