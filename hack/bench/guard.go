package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/joulevirt/joulevirt/test/simulated"
)

// measureGuard has agents guard simulated nodes whose VMs' traffic and work come and go
// within seconds, and makes pins bad.
func measureGuard(ctx context.Context, env environment) ([]figure, error) {
	// Some three of ten pins that are chosen are of a VM that is busy then.
	const nodes, vms, bad, least, percentile = 4, 24, 200, 200, 0.99
	const quiet = 4 * time.Hour
	g, err := simulated.Guard(simulated.Options{Seed: benchSeed, Nodes: nodes, VMs: vms}, quiet, bad)
	if err := errors.Join(err, ctx.Err()); err != nil {
		return nil, err
	}
	if g.Missed > 0 || len(g.Undone) < least {
		return nil, fmt.Errorf("simulated: %d bad pins undone, of %d at least, and %d missed; trips %v, %v, %v in %.1f VM-days", len(g.Undone), least, g.Missed, g.Right, g.False, g.Over, g.VMDays)
	}
	slices.Sort(g.Undone)
	undone := g.Undone[int(math.Ceil(percentile*float64(len(g.Undone))))-1]
	fmt.Fprintf(env.progress, "simulated: %.1f VM-days with %v trips that were right (%.2f a day), %v that did not help and %v of what was over by itself; %d bad pins undone after %v (median) to %v\n",
		g.VMDays, g.Right, g.RightTrips(), g.False, g.Over, len(g.Undone), g.Undone[len(g.Undone)/2], g.Undone[len(g.Undone)-1])
	return []figure{
		{"guard_undo_p99_ms", float64(undone) / float64(time.Millisecond), "ms"},
		{"guard_false_trips_per_vm_day", g.FalseTrips(), "trips"},
	}, nil
}
