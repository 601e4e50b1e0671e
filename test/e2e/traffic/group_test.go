//go:build e2e

package traffic

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
const splitTimeout = 15 * time.Minute

// samples is how many requests a split is measured over that is waited for. One that is measured
// once takes twice as many: by chance alone, a share is off by more than 5 points less than once in
// 1,000 times.
const samples = 500

// group is a traffic group that the product steers: the profile declares it.
type group struct {
	profile types.NamespacedName
	// load asks the group all the time, each request with a connection of its own.
	load *load.Load
	// samples is how many requests a split is measured over.
	samples int
}

func (s *story) group(profile string, asking *load.Load) *group {
	return &group{profile: s.key(profile), load: asking, samples: samples}
}

// plan is what the status of a group's profile says that is in force.
type plan struct {
	revision string
	// shares of members by name, from 0 to 1; those without are not named.
	shares map[string]float64
}

// plan returns the plan in force, or an error that says why none is.
func (g *group) plan(ctx context.Context) (plan, error) {
	var profile v1alpha1.VMNetworkProfile
	if err := suite.Client().Get(ctx, g.profile, &profile); err != nil {
		return plan{}, fmt.Errorf("status of VMNetworkProfile %s: %w", g.profile, err)
	}
	status := profile.Status.Traffic
	if status == nil || status.ObservedGeneration != profile.Generation {
		return plan{}, fmt.Errorf("VMNetworkProfile %s has no status.traffic of generation %d: %+v", g.profile, profile.Generation, status)
	}
	if status.State != v1alpha1.LeverInForce {
		return plan{}, fmt.Errorf("the group is not steered: %s %s: %s; limits in bit/s: %v", status.State, status.Reason, status.Message, status.LimitsBitsPerSecond)
	}
	p := plan{revision: status.Revision, shares: map[string]float64{}}
	for _, share := range status.Shares {
		if share.PerMille > 0 {
			p.shares[share.Name] = float64(share.PerMille) / 1000
		}
	}
	return p, nil
}

// split is a measured split and the plan that was in force meanwhile.
type split struct {
	plan   plan
	counts load.Counts
}

// error is the largest difference between a member's measured and planned shares,
// in points.
func (s split) error() float64 { return s.counts.Error(s.plan.shares) }

// measure measures the split of new requests while one plan is in force that is
// as wanted. The error says why that cannot be had now.
func (g *group) measure(ctx context.Context, wanted func(plan) error) (split, error) {
	before, err := g.plan(ctx)
	if err != nil {
		return split{}, err
	}
	if err := wanted(before); err != nil {
		return split{}, fmt.Errorf("the plan %v is not as wanted: %w", before.shares, err)
	}
	counts, err := g.load.Window(ctx, g.samples)
	if err != nil {
		return split{}, err
	}
	after, err := g.plan(ctx)
	if err != nil {
		return split{}, err
	}
	if after.revision != before.revision {
		return split{}, fmt.Errorf("the plan changed from %v to %v meanwhile", before.shares, after.shares)
	}
	return split{plan: before, counts: counts}, nil
}

// waitSplit waits for a plan that is as wanted and for a split that is at most so
// many points from it, and returns it.
func (g *group) waitSplit(ctx context.Context, points float64, wanted func(plan) error) (split, error) {
	var measured split
	err := suite.WaitFor(ctx, splitTimeout, "the split follows the plan", func(ctx context.Context) (err error) {
		if measured, err = g.measure(ctx, wanted); err != nil {
			return err
		}
		if off := measured.error(); off > points {
			return fmt.Errorf("it is %.1f points from the plan %v: %s", off, measured.plan.shares, measured.counts)
		}
		return nil
	})
	return measured, err
}
