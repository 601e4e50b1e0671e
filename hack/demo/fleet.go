package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/test/accelerated"
	"github.com/joulevirt/joulevirt/test/cluster"
)

const (
	fleetNodes, fleetVMs = 3, 10
	// preset is all that an admin applies.
	preset = "policies/quick.yaml"
	// longest is how long the fleet runs, by its own time, if nothing is booked.
	longest = 24 * time.Hour
	// pause is the least time that a pull of the fleet takes.
	pause = 15 * time.Millisecond
	// readEvery is the fleet's time between two reads of the policy.
	readEvery = time.Minute
)

// hour is when the fleet's first hours are shown.
func hour() []time.Duration {
	return []time.Duration{2 * time.Minute, 10 * time.Minute, time.Hour, 2 * time.Hour}
}

// errBooked ends the fleet's run early.
var errBooked = errors.New("booked")

// fleet is a second cluster, of simulated nodes.
type fleet struct {
	*cluster.Cluster
	nodes *accelerated.Fleet
}

// simulate shows the first hours of a fleet to which a preset was applied, and what was booked.
func (d *demo) simulate(ctx context.Context) error {
	d.say("   The product's controllers and agents run on a second API server, for %d nodes of %d VMs with a simulated meter:", fleetNodes, fleetVMs)
	d.say("   two VMs in three send, one computes. Nothing is configured but this preset.")
	f, err := d.startFleet(ctx)
	if err != nil {
		return err
	}
	err = d.watch(ctx, f)
	return errors.Join(err, f.stop())
}

func (d *demo) startFleet(ctx context.Context) (f *fleet, err error) {
	f = &fleet{}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.stop())
		}
	}()
	if f.Cluster, err = accelerated.StartCluster(ctx, d.source); err != nil {
		return f, err
	}
	f.nodes, err = accelerated.Start(ctx, accelerated.Options{
		Cluster: f.Cluster, Namespace: namespace, Nodes: fleetNodes, VMs: fleetVMs, Mixed: true,
		Seed: 1, Dir: filepath.Join(d.dir, "journals"), Log: logr.Discard(),
	})
	if err != nil {
		return f, err
	}
	return f, d.kubectl(ctx, f.Cluster, "apply", "-f", preset)
}

// stop ends what there is of the fleet.
func (f *fleet) stop() error {
	var problems []error
	if f.nodes != nil {
		problems = append(problems, f.nodes.Stop())
	}
	if f.Cluster != nil {
		problems = append(problems, f.Stop())
	}
	return errors.Join(problems...)
}

// watch runs the fleet until a saving is booked, some hours after the verdict, and prints how levers
// stand at the times of hour and at each change.
func (d *demo) watch(ctx context.Context, f *fleet) error {
	start := f.nodes.Now()
	var read time.Time
	next, stood := hour(), ""
	err := f.nodes.Run(ctx, longest, pause, func(now time.Time) error {
		if now.Sub(read) < readEvery {
			return nil
		}
		read = now
		var policy v1alpha1.EnergyPolicy
		if err := f.Client().Get(ctx, client.ObjectKey{Name: "quick"}, &policy); err != nil {
			return err
		}
		passed, stands := now.Sub(start), trials(&policy)
		isDue := len(next) == 0 && stands != stood
		if len(next) > 0 && passed >= next[0] {
			next, isDue = next[1:], true
		}
		if isDue {
			stood = stands
			acting, err := f.acting(ctx)
			if err != nil {
				return err
			}
			d.say("   minute %4.0f: %s; %s", passed.Minutes(), acting, stands)
		}
		if len(policy.Status.Savings) > 0 && len(policy.Status.Savings[0].Levers) > 0 {
			return errBooked
		}
		return nil
	})
	if err != nil && !errors.Is(err, errBooked) {
		return err
	}
	return d.summarise(ctx, f)
}

// acting says on how many VMs levers act now.
func (f *fleet) acting(ctx context.Context) (string, error) {
	var plans v1alpha1.NodePlanList
	if err := f.Client().List(ctx, &plans); err != nil {
		return "", err
	}
	var sum int32
	for i := range plans.Items {
		sum += plans.Items[i].Status.VMsInForce
	}
	return fmt.Sprintf("levers act on %d of %d VMs", sum, fleetNodes*fleetVMs), nil
}

// trials says how the trials of a policy stand.
func trials(policy *v1alpha1.EnergyPolicy) string {
	var stands []string
	for i := range policy.Status.Trials {
		t := &policy.Status.Trials[i]
		stands = append(stands, fmt.Sprintf("%s %s", t.Lever, t.Stance))
	}
	if len(stands) == 0 {
		return "no trial yet"
	}
	return strings.Join(stands, ", ")
}

// summarise prints what the product booked, and what the simulator knows.
func (d *demo) summarise(ctx context.Context, f *fleet) error {
	if err := d.kubectl(ctx, f.Cluster, "joulevirt", "savings"); err != nil {
		return err
	}
	const joulesPerKWh = 3.6e6
	with, without := f.nodes.Truth()
	d.say("   What the simulator knows, from twins without the product: %.4f kWh saved of %.3f (%.1f %%)",
		float64(without-with)/joulesPerKWh, float64(without)/joulesPerKWh, 100*float64((without-with)/without))
	return nil
}
