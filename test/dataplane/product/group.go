package product

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/test/dataplane/load"
)

// splitTimeout covers what the product takes for some steps on a busy machine,
// and a minute or two in which curves that were learned for minutes only say that
// nothing would be saved, see docs/limitations.md.
const splitTimeout = 8 * time.Minute

// samples is how many requests a split is measured over unless a test says more:
// by chance alone, a share is off by more than 5 points less than once in 100,000
// times.
const samples = 2000

// Group is a traffic group that the product steers: the profile declares it.
type Group struct {
	product *Product
	// Profile that declares the group.
	Profile types.NamespacedName
	// Load asks the group all the time, each request with a connection of its own.
	Load *load.Load
	// Samples is how many requests a split is measured over.
	Samples int
}

// Group returns the group of a profile, which load asks.
func (p *Product) Group(profile types.NamespacedName, asking *load.Load) *Group {
	return &Group{product: p, Profile: profile, Load: asking, Samples: samples}
}

// Plan is what the status of a group's profile says that is in force.
type Plan struct {
	Revision string
	// Shares of members by name, from 0 to 1; those without are not named.
	Shares map[string]float64
}

// Active is the number of members with a share.
func (p Plan) Active() int { return len(p.Shares) }

// Status reads what the product says of the group.
func (g *Group) Status(ctx context.Context) (*v1alpha1.TrafficStatus, error) {
	var profile v1alpha1.VMNetworkProfile
	if err := g.product.world.Client().Get(ctx, g.Profile, &profile); err != nil {
		return nil, fmt.Errorf("status of VMNetworkProfile %s: %w", g.Profile, err)
	}
	status := profile.Status.Traffic
	if status == nil || status.ObservedGeneration != profile.Generation {
		return nil, fmt.Errorf("VMNetworkProfile %s has no status.traffic of generation %d: %+v", g.Profile, profile.Generation, status)
	}
	return status, nil
}

// Plan returns the plan in force. The error says why there is none.
func (g *Group) Plan(ctx context.Context) (Plan, error) {
	status, err := g.Status(ctx)
	if err != nil {
		return Plan{}, err
	}
	if status.State != v1alpha1.LeverInForce {
		return Plan{}, fmt.Errorf("the group is not steered: %s %s: %s", status.State, status.Reason, status.Message)
	}
	plan := Plan{Revision: status.Revision, Shares: map[string]float64{}}
	for _, share := range status.Shares {
		if share.PerMille > 0 {
			plan.Shares[share.Name] = float64(share.PerMille) / 1000
		}
	}
	return plan, nil
}

// Split is a measured split and the plan that was in force meanwhile.
type Split struct {
	Plan   Plan
	Counts load.Counts
}

// Error is the largest difference between a member's measured and planned shares,
// in points.
func (s Split) Error() float64 { return s.Counts.Error(s.Plan.Shares) }

// Measure measures the split of new requests while one plan is in force that is
// as wanted; wanted may be nil. The error says why that cannot be had now.
func (g *Group) Measure(ctx context.Context, wanted func(Plan) error) (Split, error) {
	before, err := g.Plan(ctx)
	if err != nil {
		return Split{}, err
	}
	if wanted != nil {
		if err := wanted(before); err != nil {
			return Split{}, fmt.Errorf("the plan %v is not as wanted: %w", before.Shares, err)
		}
	}
	counts, err := g.Load.Window(ctx, g.Samples)
	if err != nil {
		return Split{}, err
	}
	after, err := g.Plan(ctx)
	if err != nil {
		return Split{}, err
	}
	if after.Revision != before.Revision {
		return Split{}, fmt.Errorf("the plan changed from %v to %v meanwhile", before.Shares, after.Shares)
	}
	return Split{Plan: before, Counts: counts}, nil
}

// WaitSplit waits for a plan that is as wanted and for a split that is at most so
// many points from it, and returns it.
func (g *Group) WaitSplit(ctx context.Context, points float64, wanted func(Plan) error) (Split, error) {
	var split Split
	err := g.product.world.WaitFor(ctx, splitTimeout, "the split follows the plan", func(ctx context.Context) (err error) {
		if split, err = g.Measure(ctx, wanted); err != nil {
			return err
		}
		if off := split.Error(); off > points {
			return fmt.Errorf("it is %.1f points from the plan %v: %s", off, split.Plan.Shares, split.Counts)
		}
		return nil
	})
	return split, err
}
