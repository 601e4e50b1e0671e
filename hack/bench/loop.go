package main

import (
	"context"
	"fmt"
	"math"
	"runtime/debug"
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/test/loop"
)

// measureLoop lets a simulated fleet run for three days under the product's planner, agents,
// experiments and ledger, and compares what it saves with an oracle that knows beforehand
// which levers save on which node. A figure of hours is infinite when the lever was never
// adopted.
func measureLoop(ctx context.Context, env environment) ([]figure, error) {
	c := loop.Default(1)
	fmt.Fprintf(env.progress, "bench: %d simulated nodes with %d VMs each, for %d hours, rounds each %v, and then the oracle's\n", c.Nodes, c.VMs, c.Hours, c.Tick)
	begin := time.Now()
	// Rounds of agents leave much behind, and little stays: a tenth of the time went into that.
	const rarely = 400
	defer debug.SetGCPercent(debug.SetGCPercent(rarely))
	o, err := loop.Run(ctx, c, env.progress)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(env.progress, "%v\nsimulated: that took %v\n", &o, time.Since(begin).Round(time.Second))
	figures := []figure{
		{"loop_saving_vs_oracle_pct", o.OfOracle(), "%"},
		{"loop_exploring_cost_pct", o.Exploring(), "%"},
		{"service_broken_pct", o.BrokenShare(), "%"},
	}
	for _, one := range []struct {
		lever model.Lever
		name  string
	}{{model.LeverAffinity, "loop_hours_to_adopt_affinity"}, {model.LeverBuffering, "loop_hours_to_adopt_buffering"}, {model.LeverTrafficShare, "loop_hours_to_adopt_traffic_share"}} {
		hours, is := o.Adopted(one.lever)
		if !is {
			hours = math.Inf(1)
		}
		figures = append(figures, figure{one.name, hours, "h"})
	}
	return figures, nil
}

// measureLoopCoverage counts on how many fleets of surrogates the ledger's interval covers
// the truth: nodes that draw what simulated ones were measured to draw, with levers that are
// adopted, rejected and held back by the product's experiments.
func measureLoopCoverage(ctx context.Context, env environment) ([]figure, error) {
	const fleets, percent = 200, 100
	c := loop.Default(1)
	c.Nodes, c.Hours, c.Judged = 12, 48, 12
	fmt.Fprintf(env.progress, "bench: the ledgers of %d fleets of %d surrogates of simulated nodes, for %d hours\n", fleets, c.Nodes, c.Hours)
	of, err := loop.Cover(ctx, c, fleets, env.progress)
	return []figure{
		{"loop_ledger_coverage_pct", percent * float64(of.Covered) / float64(of.Fleets), "%"},
		{"loop_ledger_booked_pct", percent * of.Booked, "%"},
	}, err
}
