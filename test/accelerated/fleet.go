// Package accelerated runs simulated nodes, each with its whole agent, and the product's
// controllers on a real API server, all by one clock that goes faster than time. What it
// shows of energy is simulated.
package accelerated

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/internal/sim"
	"github.com/joulevirt/joulevirt/internal/units"
	"github.com/joulevirt/joulevirt/test/cluster"
	"github.com/joulevirt/joulevirt/test/fleet"
)

// Options of a fleet.
type Options struct {
	// Cluster has KubeVirt's API and the product's manifests, and runs no manager.
	Cluster *cluster.Cluster
	// Namespace of the VMs, and Labels of each.
	Namespace string
	Labels    map[string]string
	// Nodes, and VMs on each.
	Nodes, VMs int
	// Harm is what levers cost on the node of a number that nobody foresees. May be nil.
	Harm func(node int) sim.Harm
	Seed uint64
	// Dir is for the agents' journals.
	Dir string
	Log logr.Logger
}

// Fleet is simulated nodes with their agents, and the manager's controllers.
type Fleet struct {
	clock   *clocktesting.FakeClock
	nodes   []*node
	manager *fleet.Manager
	// lead starts the controllers.
	lead func(context.Context) error
	// seconds that passed.
	seconds int
}

// Start seeds nodes and VMIs, and starts the agents and the controllers. The clock
// stands until Run.
func Start(ctx context.Context, o Options) (*Fleet, error) {
	f := &Fleet{clock: clocktesting.NewFakeClock(time.Now().Truncate(time.Second))}
	if err := f.start(ctx, o); err != nil {
		return nil, errors.Join(err, f.Stop())
	}
	return f, nil
}

func (f *Fleet) start(ctx context.Context, o Options) error {
	names, err := o.Cluster.AddSimulatedNodes(ctx, o.Nodes, cluster.SimulatedNodes{Prefix: "fleet"})
	if err != nil {
		return err
	}
	_, err = o.Cluster.SeedVMIs(ctx, cluster.Seed{
		Namespace: o.Namespace, Prefix: "vm", Count: o.Nodes * o.VMs, Nodes: names, Cores: vCPUs,
		Labels: func(int) map[string]string { return o.Labels },
	})
	if err != nil {
		return err
	}
	var pods corev1.PodList
	if err := o.Cluster.Client().List(ctx, &pods, client.InNamespace(o.Namespace)); err != nil {
		return fmt.Errorf("list launcher pods: %w", err)
	}
	for i, name := range names {
		n, err := newNode(nodeOptions{
			name: name, seed: o.Seed + uint64(i), harm: o.harm(i), clock: f.clock, config: o.Cluster.RESTConfig(),
			dir: filepath.Join(o.Dir, name), pods: podsOn(pods.Items, name),
		})
		if err != nil {
			return fmt.Errorf("simulated node %s: %w", name, err)
		}
		f.nodes = append(f.nodes, n)
	}
	for _, n := range f.nodes {
		if err := n.waitSynced(ctx); err != nil {
			return err
		}
	}
	timing := fleet.Shipped()
	timing.Clock = f.clock
	timing.FiguresDelay = figuresDelay
	f.lead = func(ctx context.Context) error {
		var err error
		f.manager, err = fleet.StartManager(ctx, o.Cluster.RESTConfig(), clientsOf(f.nodes), timing, o.Log)
		return err
	}
	return f.lead(ctx)
}

// Restart ends the controllers and starts them anew: what they knew is what the API
// server has.
func (f *Fleet) Restart(ctx context.Context) error {
	err := f.manager.Stop()
	f.manager = nil
	if err != nil {
		return err
	}
	return f.lead(ctx)
}

// pull is the time between two pulls of the agents' rates, as the manager does without
// flags.
const pull = 15 * time.Second

func (o *Options) harm(node int) sim.Harm {
	if o.Harm == nil {
		return sim.Harm{}
	}
	return o.Harm(node)
}

// figuresDelay is how long statuses wait for further figures, by the wall's clock: what
// the product waits is an hour of the fleet's.
const figuresDelay = 2 * time.Second

func podsOn(pods []corev1.Pod, node string) (on []corev1.Pod) {
	for i := range pods {
		if pods[i].Spec.NodeName == node {
			on = append(on, pods[i])
		}
	}
	return on
}

// Now is the fleet's time.
func (f *Fleet) Now() time.Time { return f.clock.Now() }

// Run lets time of the fleet pass, a pull of the agents' rates at a time. Each takes at
// least a pause, in which the controllers, which the API server keeps waiting, follow.
// after is called with the fleet's time after each.
func (f *Fleet) Run(ctx context.Context, d, pause time.Duration, after func(time.Time) error) error {
	for range int(d / pull) {
		rest := time.After(pause)
		for range int(pull / time.Second) {
			f.second()
		}
		for _, n := range f.nodes {
			if err := n.err(); err != nil {
				return err
			}
		}
		if err := after(f.clock.Now()); err != nil {
			return err
		}
		select {
		case <-rest:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// second lets one pass. Agents make three rounds a pull, which is a fraction of the cost:
// one that follows a new plan, and the two between which are the rates that are pulled.
// So packets, whose holding is extended in each second, are not held here.
func (f *Fleet) second() {
	for _, n := range f.nodes {
		n.host.Advance(time.Second)
		n.twin.Advance(time.Second)
	}
	f.seconds++
	const last = int(pull / time.Second)
	if of := f.seconds % last; of > 1 && of < last-1 {
		return
	}
	f.clock.SetTime(f.nodes[0].host.Now())
	for _, n := range f.nodes {
		<-n.idle
	}
}

// Truth is what the simulated machines drew since the start, and what twins of them drew
// on which the product was never installed.
func (f *Fleet) Truth() (with, without units.Joules) {
	for _, n := range f.nodes {
		with += n.host.PlatformJoules() - n.drawn
		without += n.twin.PlatformJoules() - n.drawn
	}
	return with, without
}

// Stop ends the controllers and the agents, which put everything back.
func (f *Fleet) Stop() error {
	var problems []error
	if f.manager != nil {
		problems = append(problems, f.manager.Stop())
	}
	for _, n := range f.nodes {
		problems = append(problems, n.stop())
	}
	return errors.Join(problems...)
}
