package main

import (
	"context"
	"fmt"
	"math"
	"runtime/debug"
	"strings"
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/test/loop"
)

// measureLoop lets a simulated fleet run for three days under the product's planner, agents,
// experiments and ledger, and compares what it saves with an oracle that knows beforehand
// which levers save on which node. A figure of hours is infinite when the lever was never
// adopted. The error tells of classes that adopted what costs energy on them; figures come
// with it.
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
	wrong := o.Wrong()
	fmt.Fprintf(env.progress, "simulated: wrong: %v\n", &wrong)
	figures := []figure{
		{"loop_saving_vs_oracle_pct", o.OfOracle(), "%"},
		{"loop_exploring_cost_pct", o.Exploring(), "%"},
		{"service_broken_pct", o.BrokenShare(), "%"},
		{"loop_wrong_adoptions", float64(len(wrong.Adoptions)), "verdicts"},
		{"loop_wrong_rejections", float64(len(wrong.Rejections)), "verdicts"},
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
	if len(wrong.Classes) > 0 {
		return figures, fmt.Errorf("classes adopted what costs energy on them: %s: see what their trials told above", strings.Join(wrong.Classes, "; "))
	}
	return figures, nil
}

// measureLoopCoverage counts on how many fleets of surrogates the ledger's interval covers
// the truth: nodes that draw what simulated ones were measured to draw, with levers that are
// adopted, rejected and held back by the product's experiments.
func measureLoopCoverage(ctx context.Context, env environment) ([]figure, error) {
	const fleets, percent, confidence = 1000, 100, 0.95
	c := loop.Default(1)
	c.Nodes, c.Hours, c.Judged = 12, 48, 12
	fmt.Fprintf(env.progress, "bench: the ledgers of %d fleets of %d surrogates of simulated nodes, for %d hours\n", fleets, c.Nodes, c.Hours)
	begin := time.Now()
	of, err := loop.Cover(ctx, c, fleets, env.progress)
	if err != nil {
		return nil, err
	}
	low, high := of.Interval(confidence)
	fmt.Fprintf(env.progress, "simulated: the ledger covers the truth of %d of %d fleets, by chance from %.1f to %.1f %%; it tells %.2f %% too much, half of its interval is %.1f %%; wrong are %d adoptions and %d rejections, and %d classes adopted what costs; that took %v\n",
		of.Covered, of.Fleets, percent*low, percent*high, percent*of.Off, percent*of.Width, of.Adoptions, of.Rejections, of.Classes, time.Since(begin).Round(time.Second))
	return []figure{
		{"loop_ledger_coverage_pct", percent * float64(of.Covered) / float64(of.Fleets), "%"},
		{"loop_ledger_coverage_low_pct", percent * low, "%"},
		{"loop_ledger_coverage_high_pct", percent * high, "%"},
		{"loop_ledger_booked_pct", percent * of.Booked, "%"},
	}, nil
}
