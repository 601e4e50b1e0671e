package main

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/internal/power"
	"github.com/joulevirt/joulevirt/internal/power/curve"
	"github.com/joulevirt/joulevirt/internal/power/learn"
	"github.com/joulevirt/joulevirt/internal/power/prior"
	"github.com/joulevirt/joulevirt/internal/units"
	"github.com/joulevirt/joulevirt/test/simulated"
)

// benchSeed makes simulated figures comparable from run to run.
const benchSeed = 1

// measureModelUpdate times what the manager does with one pull of a node of 100
// VMs: rounds of a simulated node, taken in turn, so that figures change.
func measureModelUpdate(_ context.Context, env environment) ([]figure, error) {
	const vms, rounds = 100, 64
	fmt.Fprintf(env.progress, "bench: learning from rounds of a simulated node with %d VMs\n", vms)
	priors, err := prior.Default()
	if err != nil {
		return nil, err
	}
	fleet, err := simulated.New(simulated.Options{Seed: benchSeed, Nodes: 1, VMs: vms})
	if err != nil {
		return nil, err
	}
	node := fleet.Nodes[0]
	topology, err := node.Host.Topology()
	if err != nil {
		return nil, err
	}
	learner, err := learn.New(learn.Options{Power: priors.Node(topology), Curve: priors.Curve})
	if err != nil {
		return nil, err
	}
	samples := make([]learn.Sample, rounds)
	for i := range samples {
		if err := fleet.Run(1); err != nil {
			return nil, err
		}
		watts := units.Watts(node.Host.Truth().Packages)
		samples[i] = learn.Sample{
			Seconds: 1, Load: power.LoadOf(node.Rates, topology), Watts: &watts,
			VMs: learn.Observations([]curve.Observation{}, node.Rates.VMs, simulated.Unbuffered),
		}
		learner.Update(samples[i])
	}
	i := 0
	result := testing.Benchmark(func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			learner.Update(samples[i%rounds])
			i++
		}
	})
	if result.N == 0 {
		return nil, errors.New("the benchmark of learning did not run")
	}
	return []figure{
		{"model_update_us", float64(result.T) / float64(result.N) / float64(time.Microsecond), "us"},
		{"model_update_allocs", float64(result.AllocsPerOp()), "allocations"},
	}, nil
}

// measureSim times simulated nodes with what their agents do each second.
func measureSim(ctx context.Context, env environment) ([]figure, error) {
	const nodes, vms, warm, rounds = 1000, 100, 3, 20
	fmt.Fprintf(env.progress, "bench: %d simulated nodes with %d VMs each\n", nodes, vms)
	fleet, err := simulated.New(simulated.Options{Seed: benchSeed, Nodes: nodes, VMs: vms})
	if err != nil {
		return nil, err
	}
	if err := fleet.Run(warm); err != nil {
		return nil, err
	}
	speed := func(run func(int) error) (float64, error) {
		start := time.Now()
		if err := errors.Join(run(rounds), ctx.Err()); err != nil {
			return 0, err
		}
		return rounds / time.Since(start).Seconds(), nil
	}
	whole, err := speed(fleet.Run)
	if err != nil {
		return nil, err
	}
	physics, err := speed(fleet.Advance)
	if err != nil {
		return nil, err
	}
	return []figure{{"sim_speed_x", whole, "x"}, {"sim_physics_speed_x", physics, "x"}}, nil
}

// measureModelError lets the manager learn 10 minutes of simulated nodes whose
// power has effects that its model does not know, and compares what it foretells
// of the next 10 with the truth.
func measureModelError(_ context.Context, env environment) ([]figure, error) {
	const nodes, vms, learning = 100, 100, 10 * time.Minute
	fmt.Fprintf(env.progress, "bench: foretelling the power of %d simulated nodes\n", nodes)
	fleet, err := simulated.New(simulated.Options{Seed: benchSeed, Nodes: nodes, VMs: vms})
	if err != nil {
		return nil, err
	}
	off, err := fleet.Foretell(learning)
	if err != nil {
		return nil, err
	}
	const percent = 100
	return []figure{
		{"model_error_median_pct", percent * off.Median, "%"},
		{"model_error_p95_pct", percent * off.P95, "%"},
		{"model_error_constant_median_pct", percent * off.ConstantMedian, "%"},
		{"model_error_constant_p95_pct", percent * off.ConstantP95, "%"},
	}, nil
}
