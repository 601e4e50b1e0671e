// Package trafficsplit measures how closely the traffic of a Service follows its
// plan, on a real kube-proxy with the real manager.
package trafficsplit

import (
	"context"
	"errors"
	"fmt"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/test/cluster/binaries"
	"github.com/joulevirt/joulevirt/test/cluster/handler"
	"github.com/joulevirt/joulevirt/test/dataplane/load"
	"github.com/joulevirt/joulevirt/test/dataplane/product"
	"github.com/joulevirt/joulevirt/test/dataplane/world"
)

const (
	name    = "split"
	vms     = 6
	clients = 16
	// peak and usual are requests a second: at the peak, and with few between, it is
	// learned how much the VMs carry well, and what they cost.
	peak, usual, few = 1000, 400, 100
	peakSeconds      = 13
	fewSeconds       = 4
	// samples is how many connections a split is measured over.
	samples = 5000
	// settled is how close a split must be before it is measured.
	settled = 5
)

// Options of a measurement.
type Options struct {
	Binaries binaries.Source
	// Progress gets a line for each split.
	Progress io.Writer
}

// MeasureSplit returns the largest difference, in points, between the measured
// and the planned share of a VM's new connections, over the plan for all VMs and
// those for a VM that fails and comes back.
func MeasureSplit(ctx context.Context, o Options) (points float64, err error) {
	w, err := world.Start(ctx, world.Options{
		Binaries: o.Binaries, Zones: map[string]string{"a": "zone-1", "b": "zone-1", "c": "zone-2"},
	})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, w.Stop()) }()
	p, err := product.Start(ctx, w)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, p.Stop()) }()
	b := &bench{Options: o, world: w, product: p}
	group, err := b.populate(ctx)
	if err != nil {
		return 0, err
	}
	defer group.Load.Stop()
	return b.measure(ctx, group)
}

type bench struct {
	Options
	world     *world.World
	product   *product.Product
	namespace string
}

// populate makes a group that is steered.
func (b *bench) populate(ctx context.Context) (*product.Group, error) {
	var err error
	if b.namespace, err = b.world.NewNamespace(ctx, name); err != nil {
		return nil, err
	}
	labels := map[string]string{"app": name, v1alpha1.LabelServing: v1alpha1.ServingActive}
	if _, err := b.world.StartVMs(ctx, b.namespace, vms, labels); err != nil {
		return nil, err
	}
	url, err := b.world.NewService(ctx, b.key(name), labels)
	if err != nil {
		return nil, err
	}
	if err := b.world.WaitEndpoints(ctx, b.key(name), vms); err != nil {
		return nil, err
	}
	// Nodes are learned of while a policy governs them.
	if err := b.allow(ctx); err != nil {
		return nil, err
	}
	asked := b.world.Clients(clients, url)
	for range 2 {
		asked.PerSecond = peak
		if _, err := load.Burst(ctx, asked, peak*peakSeconds); err != nil {
			return nil, err
		}
		asked.PerSecond = few
		if _, err := load.Burst(ctx, asked, few*fewSeconds); err != nil {
			return nil, err
		}
	}
	if err := b.declare(ctx); err != nil {
		return nil, err
	}
	asked.PerSecond = usual
	group := b.product.Group(b.key(name), load.Start(asked))
	group.Samples = samples
	return group, nil
}

func (b *bench) key(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: b.namespace, Name: name}
}

func (b *bench) allow(ctx context.Context) error {
	policy := &v1alpha1.EnergyPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.EnergyPolicySpec{
			Mode: v1alpha1.ModeEnforce, Levers: []v1alpha1.Lever{v1alpha1.LeverTrafficShare},
			Energy: v1alpha1.EnergySettings{AllowModelled: true},
			// What is timed is not to wait for experiments.
			Verification: v1alpha1.Verification{Trials: v1alpha1.TrialsDisabled},
		},
	}
	if err := b.world.Client().Create(ctx, policy); err != nil {
		return fmt.Errorf("create EnergyPolicy: %w", err)
	}
	return nil
}

func (b *bench) declare(ctx context.Context) error {
	profile := &v1alpha1.VMNetworkProfile{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: name},
		Spec: v1alpha1.VMNetworkProfileSpec{
			Selector: metav1.LabelSelector{MatchLabels: map[string]string{"app": name}},
			Group:    &v1alpha1.TrafficGroup{Kind: v1alpha1.GroupService, Name: name},
		},
	}
	if err := b.world.Client().Create(ctx, profile); err != nil {
		return fmt.Errorf("create VMNetworkProfile: %w", err)
	}
	return nil
}

// measure returns the worst of the splits.
func (b *bench) measure(ctx context.Context, group *product.Group) (points float64, err error) {
	one := func(wanted func(product.Plan) error) (product.Plan, error) {
		// What is still on its way to the plan is not its split.
		if _, err := group.WaitSplit(ctx, settled, wanted); err != nil {
			return product.Plan{}, err
		}
		split, err := group.Measure(ctx, wanted)
		if err != nil {
			return product.Plan{}, err
		}
		fmt.Fprintf(b.Progress, "bench: %.2f points from the plan %v: %s\n", split.Error(), split.Plan.Shares, split.Counts)
		points = max(points, split.Error())
		return split.Plan, split.Counts.NoFailures()
	}
	fewer := func(p product.Plan) error {
		if p.Active() == 0 || p.Active() == vms {
			return fmt.Errorf("%d of %d VMs have a share", p.Active(), vms)
		}
		return nil
	}
	plan, err := one(fewer)
	if err != nil {
		return 0, err
	}
	var failing string
	for failing = range plan.Shares {
		break
	}
	for _, ready := range []bool{false, true} {
		if err := b.world.Handler().SetVMFault(ctx, b.key(failing), handler.VMFault{NotReady: !ready}); err != nil {
			return 0, err
		}
		if _, err := one(func(p product.Plan) error {
			if !ready && p.Shares[failing] > 0 {
				return fmt.Errorf("%s has a share", failing)
			}
			return fewer(p)
		}); err != nil {
			return 0, err
		}
	}
	return points, nil
}
