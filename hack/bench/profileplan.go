package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/joulevirt/joulevirt/test/bench/profileplan"
)

// percentile returns the smallest duration that the share p of all, sorted, is
// not above: the nearest-rank method.
func percentile(sorted []time.Duration, p float64) time.Duration {
	rank := int(p*float64(len(sorted))+0.999999) - 1
	return sorted[min(max(rank, 0), len(sorted)-1)]
}

func measureProfileToPlan(ctx context.Context, env environment) ([]figure, error) {
	const nodes, vms, edits = 100, 2000, 10
	fmt.Fprintf(env.progress, "bench: %d edits of a profile, %d nodes, %d VMIs\n", edits, nodes, vms)
	took, err := profileplan.MeasureProfileToPlan(ctx, profileplan.Options{
		Binaries: env.source, Repository: ".", Nodes: nodes, VMs: vms, Edits: edits,
	})
	if err != nil {
		return nil, err
	}
	slices.Sort(took)
	milliseconds := func(p float64) float64 { return float64(percentile(took, p)) / float64(time.Millisecond) }
	return []figure{
		{"profile_to_plan_p50_ms", milliseconds(0.5), "ms"},
		{"profile_to_plan_p99_ms", milliseconds(0.99), "ms"},
	}, nil
}
