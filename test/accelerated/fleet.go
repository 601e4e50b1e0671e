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

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/units"
	"github.com/joulevirt/joulevirt/test/cluster"
	"github.com/joulevirt/joulevirt/test/cluster/stack"
	"github.com/joulevirt/joulevirt/test/fleet"
	"github.com/joulevirt/joulevirt/test/sim"
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
	// Mixed is true when one VM in three computes instead of sending.
	Mixed bool
	// Groups of VMs behind Services run beside them.
	Groups []Group
	Seed   uint64
	// Dir is for the agents' journals.
	Dir string
	Log logr.Logger
}

// Fleet is simulated nodes with their agents, and the manager's controllers.
type Fleet struct {
	clock   *clocktesting.FakeClock
	nodes   []*node
	groups  []*group
	manager *fleet.Manager
	// launchers are watched until end is called.
	launchers client.Reader
	end       context.CancelFunc
	// lead starts the controllers.
	lead func(context.Context) error
	// seconds that passed.
	seconds int
	// asked of the API server by controllers and agents.
	asked requests
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
	if _, err := f.addNodes(ctx, &o, part{name: "fleet", nodes: o.Nodes, vms: o.VMs, labels: o.Labels, swings: true, mixed: o.Mixed}); err != nil {
		return err
	}
	watching, end := context.WithCancel(context.WithoutCancel(ctx))
	f.end = end
	var err error
	if f.launchers, err = watchLaunchers(watching, o.Cluster, o.Namespace); err != nil {
		return err
	}
	for _, g := range o.Groups {
		if err := f.addGroup(ctx, &o, g); err != nil {
			return err
		}
	}
	for _, n := range f.nodes {
		if err := n.waitSynced(ctx); err != nil {
			return err
		}
	}
	timing := fleet.Shipped()
	timing.Clock = f.clock
	timing.FiguresDelay = figuresDelay
	timing.Traffic.Figures = time.Hour
	f.lead = func(ctx context.Context) error {
		var err error
		config := f.asked.count(o.Cluster.AsServiceAccount(stack.Namespace, "joulevirt-manager"))
		f.manager, err = fleet.StartManager(ctx, config, clientsOf(f.nodes), timing, o.Log)
		return err
	}
	return f.lead(ctx)
}

// part is nodes with equal VMs.
type part struct {
	name       string
	nodes, vms int
	labels     map[string]string
	// swings is true when each VM's traffic goes up and down by itself.
	swings bool
	// mixed is true when one VM in three computes instead of sending.
	mixed bool
	// unmetered is true when the nodes have no energy counters, and sleep in shallow states only.
	unmetered bool
}

// addNodes seeds nodes and VMIs, and starts the agents.
func (f *Fleet) addNodes(ctx context.Context, o *Options, p part) ([]*node, error) {
	names, err := o.Cluster.AddSimulatedNodes(ctx, p.nodes, cluster.SimulatedNodes{Prefix: p.name, Labels: map[string]string{LabelPart: p.name}})
	if err != nil {
		return nil, err
	}
	_, err = o.Cluster.SeedVMIs(ctx, cluster.Seed{
		Namespace: o.Namespace, Prefix: p.name, Count: p.nodes * p.vms, Nodes: names, Cores: vCPUs,
		Labels: func(int) map[string]string { return p.labels },
	})
	if err != nil {
		return nil, err
	}
	var pods corev1.PodList
	if err := o.Cluster.Client().List(ctx, &pods, client.InNamespace(o.Namespace)); err != nil {
		return nil, fmt.Errorf("list launcher pods: %w", err)
	}
	var added []*node
	for _, name := range names {
		number := len(f.nodes)
		options := nodeOptions{
			name: name, seed: o.Seed + uint64(number), clock: f.clock, config: f.asked.count(o.Cluster.RESTConfig()),
			dir: filepath.Join(o.Dir, name), pods: podsOn(pods.Items, name), swings: p.swings, mixed: p.mixed, meter: sim.Meter{Platform: true, Absent: p.unmetered},
		}
		n, err := newNode(options)
		if err != nil {
			return nil, fmt.Errorf("simulated node %s: %w", name, err)
		}
		f.nodes, added = append(f.nodes, n), append(added, n)
	}
	return added, nil
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

// figuresDelay is how long statuses wait for further figures, by the wall's clock: what
// the product waits is an hour of the fleet's.
const figuresDelay = 300 * time.Millisecond

func podsOn(pods []corev1.Pod, node string) (on []corev1.Pod) {
	for i := range pods {
		if pods[i].Spec.NodeName == node {
			on = append(on, pods[i])
		}
	}
	return on
}

// IsMeasuredTotal returns true for what levers were measured to save in all the time, once enough is
// booked. A month's savings begin anew with the month, which is the fleet's.
func IsMeasuredTotal(s v1alpha1.Savings) bool {
	return s.Basis == v1alpha1.BasisMeasured && s.Period == "Total" && len(s.Levers) > 0
}

// Now is the fleet's time.
func (f *Fleet) Now() time.Time { return f.clock.Now() }

// Run lets time of the fleet pass, a pull of the agents' rates at a time. Each takes at
// least a pause, in which the controllers follow, and as much more as the API server keeps
// them waiting. after is called with the fleet's time after each.
func (f *Fleet) Run(ctx context.Context, d, pause time.Duration, after func(time.Time) error) error {
	for range int(d / pull) {
		rest := time.After(pause)
		for _, g := range f.groups {
			if err := g.follow(ctx, f.clock.Now()); err != nil {
				return err
			}
		}
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
		if err := f.asked.settle(ctx); err != nil {
			return err
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
func (f *Fleet) Truth() (with, without units.Joules) { return truthOf(f.nodes) }

// TruthOf is the same of the nodes of a group.
func (f *Fleet) TruthOf(name string) (with, without units.Joules) {
	for _, g := range f.groups {
		if g.Name == name {
			return truthOf(g.nodes)
		}
	}
	return 0, 0
}

func truthOf(nodes []*node) (with, without units.Joules) {
	for _, n := range nodes {
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
	if f.end != nil {
		f.end()
	}
	return errors.Join(problems...)
}
