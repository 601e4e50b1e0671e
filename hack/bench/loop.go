package main

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/test/loop"
)

// measureLoop lets a small simulated fleet run for a day under the product's planner, agents,
// experiments and ledger. A figure of hours is infinite when the lever was never adopted.
func measureLoop(ctx context.Context, env environment) ([]figure, error) {
	c := loop.Default(24)
	fmt.Fprintf(env.progress, "bench: %d simulated nodes with %d VMs each, for %d hours, rounds each %v\n", c.Nodes, c.VMs, c.Hours, c.Tick)
	begin := time.Now()
	o, err := loop.Run(ctx, c, env.progress)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(env.progress, "simulated: %d strata are booked as %.0f J, from %.0f to %.0f, in truth %.0f; that took %v\n",
		o.Strata, o.Ledger.Value, o.Ledger.Low, o.Ledger.High, o.Truth, time.Since(begin).Round(time.Second))
	figures := []figure{
		{"loop_saving_pct", o.SavedPercent(), "%"},
		{"loop_saving_vs_oracle_pct", 100 * o.LateSaved / o.LateOracle, "%"},
		{"loop_exploring_cost_pct", 100 * o.Explored / o.Without, "%"},
		{"loop_wrong_adoptions", float64(o.WrongAdoptions), "adoptions"},
		{"loop_booked_vs_truth_pct", 100 * o.Ledger.Value / o.Truth, "%"},
		{"service_broken_pct", o.BrokenPercent(), "%"},
	}
	for _, one := range []struct {
		lever v1alpha1.Lever
		name  string
	}{{v1alpha1.LeverAffinity, "loop_hours_to_adopt_affinity"}, {v1alpha1.LeverBuffering, "loop_hours_to_adopt_buffering"}} {
		hours, is := o.Adopted(one.lever)
		if !is {
			hours = math.Inf(1)
		}
		figures = append(figures, figure{one.name, hours, "h"})
	}
	return figures, nil
}
