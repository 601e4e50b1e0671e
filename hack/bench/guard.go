package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/joulevirt/joulevirt/test/simulated"
)

// measureGuard has agents guard simulated nodes whose VMs' traffic and work come and go
// within seconds, and makes pins bad.
func measureGuard(ctx context.Context, env environment) ([]figure, error) {
	const nodes, vms, bad, percentile = 3, 24, 40, 0.99
	const quiet = 4 * time.Hour
	g, err := simulated.Guard(simulated.Options{Seed: benchSeed, Nodes: nodes, VMs: vms}, quiet, bad)
	if err := errors.Join(err, ctx.Err()); err != nil {
		return nil, err
	}
	if g.Missed > 0 || len(g.Undone) == 0 {
		return nil, fmt.Errorf("simulated: %d bad pins undone, %d missed", len(g.Undone), g.Missed)
	}
	slices.Sort(g.Undone)
	undone := g.Undone[int(percentile*float64(len(g.Undone)-1))]
	fmt.Fprintf(env.progress, "simulated: %.1f VM-days with %v trips that were right (%.2f a day) and %v that were not; %d bad pins undone after %v (median) to %v\n",
		g.VMDays, g.Right, g.RightTrips(), g.False, len(g.Undone), g.Undone[len(g.Undone)/2], g.Undone[len(g.Undone)-1])
	return []figure{
		{"guard_undo_p99_ms", float64(undone) / float64(time.Millisecond), "ms"},
		{"guard_false_trips_per_vm_day", g.FalseTrips(), "trips"},
	}, nil
}
