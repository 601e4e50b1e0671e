package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/sim"
	"github.com/joulevirt/joulevirt/test/accelerated"
	"github.com/joulevirt/joulevirt/test/cluster"
	"github.com/joulevirt/joulevirt/test/cluster/binaries"
)

const (
	fleetNodes, fleetVMs = 8, 10
	// longest is how long the fleet runs, by its own time, and afterwards how long it goes
	// on once its levers are decided: what is held back is booked some hours late.
	longest, afterwards = 24 * time.Hour, 10 * time.Hour
	// pause is the least time that a pull of the fleet takes.
	pause = 15 * time.Millisecond
	// readEvery and printEvery are the fleet's time between two reads of the policy, and between
	// two reports of its trials.
	readEvery, printEvery = 5 * time.Minute, 2 * time.Hour
	// hidden is what lever Affinity costs on the last node, which no model knows of.
	hidden = 0.35
)

// errDecided ends the fleet's run early.
var errDecided = errors.New("decided")

// fleet is the second cluster of the demo.
type fleet struct {
	*cluster.Cluster
	nodes *accelerated.Fleet
}

// live shows the fleet's levers prove themselves, beside this machine's VMs.
func (d *demo) live(ctx context.Context) (err error) {
	if err := d.apply(ctx, "2-profile.yaml"); err != nil {
		return err
	}
	if err := d.waitInForce(ctx, len(d.vms)); err != nil {
		return err
	}
	d.say("   a second API server, with the product's controllers and %d simulated nodes of %d VMs each, whose clock goes faster;", fleetNodes, fleetVMs)
	d.say("   on the last of them pins cost %.0f %% more energy than any model knows. The simulation keeps this machine's", 100*hidden)
	d.say("   cores busy, so its own VMs may lose their pins meanwhile (CoreWouldBeHot)")
	f, err := d.startFleet(ctx)
	if err != nil {
		return err
	}
	d.fleet = f
	return d.watch(ctx, f)
}

func (d *demo) startFleet(ctx context.Context) (f *fleet, err error) {
	f = &fleet{}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.stop())
		}
	}()
	if f.Cluster, err = accelerated.StartCluster(ctx, binaries.FromEnvironment(os.Getenv, io.Discard)); err != nil {
		return f, err
	}
	f.nodes, err = accelerated.Start(ctx, accelerated.Options{
		Cluster: f.Cluster, Namespace: namespace, Labels: map[string]string{"app": "web"},
		Nodes: fleetNodes, VMs: fleetVMs, Seed: 1, Dir: filepath.Join(d.manifests, "journals"), Log: logr.Discard(),
		Harm: func(node int) sim.Harm {
			if node == fleetNodes-1 {
				return sim.Harm{Affinity: hidden}
			}
			return sim.Harm{}
		},
	})
	if err != nil {
		return f, err
	}
	manifest := filepath.Join(d.manifests, "4-fleet.yaml")
	d.say("$ kubectl apply -f hack/demo/manifests/4-fleet.yaml")
	_, err = f.RunKubectl(ctx, "apply", "-f", manifest)
	return f, err
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

// watch runs the fleet until its levers are decided, and prints how trials stand.
func (d *demo) watch(ctx context.Context, f *fleet) error {
	start := f.nodes.Now()
	var read, printed, decided time.Time
	err := f.nodes.Run(ctx, longest, pause, func(now time.Time) error {
		if now.Sub(read) < readEvery {
			return nil
		}
		read = now
		var policy v1alpha1.EnergyPolicy
		if err := f.Client().Get(ctx, client.ObjectKey{Name: "fleet"}, &policy); err != nil {
			return err
		}
		if now.Sub(printed) >= printEvery {
			printed = now
			d.say("   after %s of the fleet's time:", now.Sub(start).Round(time.Minute))
			for _, trial := range policy.Status.Trials {
				saved := "unknown"
				if s := trial.SavedPercent; s != nil {
					saved = fmt.Sprintf("%s %% (%s to %s)", s.Value, s.Low, s.High)
				}
				d.say("     %s on %s: %s, %d of %d pairs, saves %s", trial.Lever, trial.Class, trial.Stance, trial.Pairs, trial.PlannedPairs, saved)
			}
		}
		switch {
		case !isDecided(&policy):
			decided = time.Time{}
		case decided.IsZero():
			decided = now
		case now.Sub(decided) >= afterwards:
			return errDecided
		}
		return nil
	})
	if err != nil && !errors.Is(err, errDecided) {
		return err
	}
	return d.summarise(ctx, f)
}

// isDecided returns true if no lever is on trial or waits for one.
func isDecided(policy *v1alpha1.EnergyPolicy) bool {
	for i := range policy.Status.Trials {
		switch policy.Status.Trials[i].Stance {
		case v1alpha1.Stance(model.StanceAdopted), v1alpha1.Stance(model.StanceRejected), v1alpha1.Stance(model.StanceUndecided):
		default:
			return false
		}
	}
	return len(policy.Status.Trials) > 0
}

// summarise prints what the product booked, and what the simulator knows.
func (d *demo) summarise(ctx context.Context, f *fleet) error {
	d.say("\n   The fleet's own API server: export KUBECONFIG=%s", f.Kubeconfig())
	for _, args := range [][]string{
		{"get", "energypolicies,energyledgers,nodeplans"},
		{"get", "energypolicy", "fleet", "-o", `jsonpath={range .status.savings[?(@.period=="Total")]}{.basis}{": kWh "}{.kilowattHours}{"\n"}{end}`},
		{"get", "energypolicy", "fleet", "-o", `jsonpath={range .status.trials[*]}{.lever}{" "}{.class}{": "}{.message}{"\n"}{end}`},
	} {
		d.say("$ kubectl %s", pasted(args))
		out, err := f.RunKubectl(ctx, args...)
		if err != nil {
			return err
		}
		d.print(out)
	}
	const joulesPerKWh = 3.6e6
	with, without := f.nodes.Truth()
	d.say("   What the simulator knows, from twins without the product: %.4f kWh saved of %.3f (%.1f %%)",
		float64(without-with)/joulesPerKWh, float64(without)/joulesPerKWh, 100*float64((without-with)/without))
	return nil
}
