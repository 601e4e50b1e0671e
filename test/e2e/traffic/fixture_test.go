package traffic

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/test/cluster/handler"
	"github.com/joulevirt/joulevirt/test/dataplane/load"
	"github.com/joulevirt/joulevirt/test/dataplane/product"
	"github.com/joulevirt/joulevirt/test/dataplane/world"
)

const (
	// peak and usual are requests a second: what VMs were seen to carry well at the
	// peak bounds what they are given afterwards.
	peak, usual = 1000, 400
	// clients ask at once.
	clients = 16
	// points that a measured split may be off the plan.
	points = 5
)

// labels are those of all VMs here.
var labels = map[string]string{"app": "web", v1alpha1.LabelServing: v1alpha1.ServingActive}

// figures has splits measured over as many requests as docs/benchmarks.md says: make bench.
var figures = flag.Bool("figures", false, "measure the splits of docs/benchmarks.md")

// allowed lets the product steer traffic, once for all stories.
var allowed sync.Once

// story is one test's VMs, in a namespace of their own.
type story struct {
	*testing.T
	namespace string
	names     []string
	// worst is how far a split was from its plan, in points.
	worst float64
}

func newStory(t *testing.T, count int) *story {
	t.Helper()
	allowed.Do(func() {
		err := suite.Client().Create(t.Context(), &v1alpha1.EnergyPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: "steer"},
			Spec: v1alpha1.EnergyPolicySpec{
				Mode: v1alpha1.ModeEnforce, Levers: []v1alpha1.Lever{v1alpha1.LeverTrafficShare},
				Energy: v1alpha1.EnergySettings{AllowModelled: true},
				// Whatever meter the machine has, traffic is to move at once.
				Verification: v1alpha1.Verification{Trials: v1alpha1.TrialsDisabled},
			},
		})
		if err != nil {
			t.Fatal(err)
		}
	})
	s := &story{T: t}
	var err error
	if s.namespace, err = suite.NewNamespace(t.Context(), "traffic"); err != nil {
		t.Fatal(err)
	}
	if s.names, err = suite.StartVMs(t.Context(), s.namespace, count, labels); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *story) key(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: s.namespace, Name: name}
}

// create creates an object and deletes it at the story's end.
func (s *story) create(o client.Object) {
	s.Helper()
	if err := suite.Client().Create(s.Context(), o); err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { s.remove(o) })
}

func (s *story) remove(o client.Object) {
	s.Helper()
	if err := client.IgnoreNotFound(suite.Client().Delete(context.WithoutCancel(s.Context()), o)); err != nil {
		s.Error(err)
	}
}

// service creates a Service of some VMs and returns its URL when it answers.
func (s *story) service(name string, selector map[string]string, vms int) string {
	s.Helper()
	url, err := suite.NewService(s.Context(), s.key(name), selector)
	if err == nil {
		err = suite.WaitEndpoints(s.Context(), s.key(name), vms)
	}
	if err != nil {
		s.Fatal(err)
	}
	s.answers(suite.Clients(1, url))
	return url
}

// profile declares the VMs a group.
func (s *story) profile(name string, group v1alpha1.TrafficGroup) *v1alpha1.VMNetworkProfile {
	s.Helper()
	profile := &v1alpha1.VMNetworkProfile{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name},
		Spec: v1alpha1.VMNetworkProfileSpec{
			Selector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, Group: &group,
		},
	}
	s.create(profile)
	return profile
}

// ask starts clients, until the story ends.
func (s *story) ask(o load.Options, perSecond int) *load.Load {
	o.PerSecond = perSecond
	l := load.Start(o)
	s.Cleanup(func() { l.Stop() })
	return l
}

// learnPeak shows the product how much the VMs carry well, and what they cost at
// different rates.
func (s *story) learnPeak(o load.Options) {
	s.Helper()
	for range 2 {
		s.askFor(o, peak, 13*peak)
		s.askFor(o, usual/4, 4*usual/4)
	}
}

// askFor makes so many requests, none of which may fail.
func (s *story) askFor(o load.Options, perSecond, requests int) {
	s.Helper()
	o.PerSecond = perSecond
	counts, err := load.Burst(s.Context(), o, requests)
	if err != nil {
		s.Fatal(err)
	}
	s.Logf("%d a second: %s", perSecond, counts)
	if err := counts.NoFailures(); err != nil {
		s.Error(err)
	}
}

// follows waits until the split follows a plan that is as wanted.
func (s *story) follows(what string, g *product.Group, wanted func(product.Plan) error) product.Plan {
	s.Helper()
	split, err := g.WaitSplit(s.Context(), points, wanted)
	if err != nil {
		s.Fatalf("%s: %v", what, err)
	}
	if *figures {
		// What was still on its way to the plan is not its split.
		g.Samples = 5000
		if split, err = g.Measure(s.Context(), wanted); err != nil {
			s.Fatalf("%s: %v", what, err)
		}
	}
	s.worst = max(s.worst, split.Error())
	s.Logf("%s: %.1f points from the plan %v: %s", what, split.Error(), split.Plan.Shares, split.Counts)
	return split.Plan
}

// fewer wants some of the VMs to get nothing.
func (s *story) fewer(p product.Plan) error {
	if p.Active() == 0 || p.Active() >= len(s.names) {
		return fmt.Errorf("%d of %d VMs have a share", p.Active(), len(s.names))
	}
	return nil
}

// without wants VMs to get nothing.
func without(names ...string) func(product.Plan) error {
	return func(p product.Plan) error {
		for _, name := range names {
			if p.Shares[name] > 0 {
				return fmt.Errorf("%s has a share", name)
			}
		}
		return nil
	}
}

// active are the VMs with a share, sorted.
func active(p product.Plan) []string {
	var names []string
	for name := range p.Shares {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// setReady makes a VM fail its readiness probe, or pass it again.
func (s *story) setReady(name string, ready bool) {
	s.Helper()
	fault := handler.VMFault{NotReady: !ready}
	if err := suite.Handler().SetVMFault(s.Context(), s.key(name), fault); err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() {
		if err := suite.Handler().SetVMFault(context.WithoutCancel(s.Context()), s.key(name), handler.VMFault{}); err != nil {
			s.Error(err)
		}
	})
}

// eventually waits until a condition holds.
func (s *story) eventually(what string, condition func(context.Context) error) {
	s.Helper()
	if err := suite.WaitFor(s.Context(), world.Timeout, what, condition); err != nil {
		s.Fatal(err)
	}
}

// splitIs is satisfied when new requests are split so.
func splitIs(asking *load.Load, shares map[string]float64) func(context.Context) error {
	return func(ctx context.Context) error {
		counts, err := asking.Window(ctx, 2000)
		if err != nil {
			return err
		}
		if off := counts.Error(shares); off > points {
			return fmt.Errorf("the split is %.1f points from %v: %s", off, shares, counts)
		}
		return nil
	}
}

// uneven wants some VM to get clearly more than another.
func (s *story) uneven(p product.Plan) error {
	least, most := 1.0, 0.0
	for _, name := range s.names {
		least, most = min(least, p.Shares[name]), max(most, p.Shares[name])
	}
	if most-least < 0.1 {
		return fmt.Errorf("the shares are from %.2f to %.2f", least, most)
	}
	return nil
}
