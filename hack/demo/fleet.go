package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/units"
	"github.com/joulevirt/joulevirt/test/accelerated"
	"github.com/joulevirt/joulevirt/test/cluster"
)

const (
	fleetNodes, fleetVMs = 3, 10
	// preset is all that an admin applies.
	preset = "policies/quick.yaml"
	// longest is how long the fleet runs, by its own time, if no lever is adopted.
	longest = 24 * time.Hour
	// pause is the least time that a pull of the fleet takes.
	pause = 15 * time.Millisecond
	// peak is how long clients ask for more at the start: what a VM carried well it may carry again.
	peak = 32 * time.Minute
	// period of what clients ask for: powers are means of one.
	period = 5 * time.Minute
	// settle is how long traffic takes to move: a quarter each half minute.
	settle = 10 * time.Minute
)

// web is the group whose traffic is brought together.
func web() accelerated.Group {
	return accelerated.Group{Name: "web", Nodes: 2, VMs: 3, Total: 600e6}
}

// fleet is a second cluster, of simulated nodes.
type fleet struct {
	*cluster.Cluster
	nodes *accelerated.Fleet
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
		Groups: []accelerated.Group{web()}, Seed: 1, Dir: filepath.Join(d.dir, "journals"), Log: logr.Discard(),
	})
	return f, err
}

// stop ends what there is of the fleet.
func (f *fleet) stop() error {
	if f == nil {
		return nil
	}
	var problems []error
	if f.nodes != nil {
		problems = append(problems, f.nodes.Stop())
	}
	if f.Cluster != nil {
		problems = append(problems, f.Stop())
	}
	return errors.Join(problems...)
}

// pass lets time of the fleet pass.
func (f *fleet) pass(ctx context.Context, d time.Duration) error {
	return f.nodes.Run(ctx, d, pause, func(time.Time) error { return nil })
}

// steer shows the traffic of a Service and the power of its VMs' nodes, before and after a policy.
func (d *demo) steer(ctx context.Context) (err error) {
	d.say("   Not on the real node: what an emulated VM costs grows in proportion to its traffic, so nothing would be saved.")
	d.say("   The product's controllers and agents run on a second API server, for simulated nodes with a simulated meter,")
	d.say("   whose clock goes faster. Six VMs on two of them are behind Service web.")
	if d.fleet, err = d.startFleet(ctx); err != nil {
		return err
	}
	if err := d.fleet.pass(ctx, peak); err != nil {
		return err
	}
	before, even, _, err := d.fleet.measure(ctx)
	if err != nil {
		return err
	}
	if err := d.kubectl(ctx, d.fleet.Cluster, "apply", "-f", manifests+"traffic.yaml"); err != nil {
		return err
	}
	if err := d.fleet.pass(ctx, settle); err != nil {
		return err
	}
	after, skewed, twins, err := d.fleet.measure(ctx)
	if err != nil {
		return err
	}
	rows := []string{
		fmt.Sprintf("before\t%s\t%.1f", shares(before, before), even),
		fmt.Sprintf("after\t%s\t%.1f", shares(before, after), skewed),
	}
	err = d.table("SHARE OF\t"+strings.Join(before, "\t")+"\tNODES' WATTS", len(rows), func(i int) string { return rows[i] })
	if err != nil {
		return err
	}
	d.say("   Twins of these nodes without the product drew %.1f W at the same time.", twins)
	return nil
}

// measure returns the VMs that get traffic, the mean power of their nodes, and that of the nodes' twins.
func (f *fleet) measure(ctx context.Context) (serving []string, watts, twins float64, err error) {
	with, without := f.nodes.TruthOf(web().Name)
	err = f.pass(ctx, period)
	withNow, withoutNow := f.nodes.TruthOf(web().Name)
	mean := func(j units.Joules) float64 { return float64(j) / period.Seconds() }
	return f.nodes.Serving(web().Name), mean(withNow - with), mean(withoutNow - without), err
}

// shares of VMs: a Service spreads connections evenly over those that serve.
func shares(vms, serving []string) string {
	var all []string
	for _, vm := range vms {
		share := 0.0
		if slices.Contains(serving, vm) {
			share = 100 / float64(len(serving))
		}
		all = append(all, fmt.Sprintf("%.0f %%", share))
	}
	return strings.Join(all, "\t")
}

// firstHour prints how the levers of a preset stand on the fleet, until a verdict adopts one.
func (d *demo) firstHour(ctx context.Context) error {
	d.say("   %d more nodes of %d VMs: two in three send, one computes. Nothing is configured but this preset.", fleetNodes, fleetVMs)
	f := d.fleet
	if err := d.kubectl(ctx, f.Cluster, "apply", "-f", preset); err != nil {
		return err
	}
	start := f.nodes.Now()
	due := []time.Duration{2 * time.Minute, 10 * time.Minute, time.Hour}
	err := f.nodes.Run(ctx, longest, pause, func(now time.Time) error {
		passed := now.Sub(start)
		if passed%time.Minute != 0 {
			return nil
		}
		var policy v1alpha1.EnergyPolicy
		if err := f.Client().Get(ctx, client.ObjectKey{Name: "quick"}, &policy); err != nil {
			return err
		}
		adopted := slices.ContainsFunc(policy.Status.Trials, func(t v1alpha1.LeverTrial) bool { return t.Stance == "Adopted" })
		if adopted || len(due) > 0 && passed >= due[0] {
			d.say("   minute %4.0f: %s", passed.Minutes(), trials(&policy))
			due = due[min(1, len(due)):]
		}
		if adopted {
			return errAdopted
		}
		return nil
	})
	if err != nil && !errors.Is(err, errAdopted) {
		return err
	}
	return d.kubectl(ctx, f.Cluster, "joulevirt", "savings", "quick")
}

// errAdopted ends the fleet's run.
var errAdopted = errors.New("a lever was adopted")

// trials says how the trials of a policy stand.
func trials(policy *v1alpha1.EnergyPolicy) string {
	var stands []string
	for i := range policy.Status.Trials {
		t := &policy.Status.Trials[i]
		stand := fmt.Sprintf("%s %s", t.Lever, t.Stance)
		if saved := t.SavedPercent; saved != nil {
			stand += fmt.Sprintf(", saves %s %% (%s to %s)", saved.Value, saved.Low, saved.High)
		}
		stands = append(stands, stand)
	}
	if len(stands) == 0 {
		return "no trial yet"
	}
	return strings.Join(stands, ", ")
}
