//go:build e2e

package traffic

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	kubevirtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/test/dataplane/load"
)

const (
	// peak and usual are requests a second: what VMs were seen to carry well at the
	// peak bounds what they are given afterwards. Emulated guests answer about 400 together
	// when nothing else runs.
	peak, usual = 150, 60
	// port of the guests and of the Service.
	port = 80
	// clients ask at once.
	clients = 16
	// points that a measured split may be off the plan.
	points = 5
	// answerTimeout is more than a machine stands still, and less than a connection is tried for to a
	// VM that is gone.
	answerTimeout = time.Minute
)

// labels are those of all VMs here.
var labels = map[string]string{"app": "web", v1alpha1.LabelServing: v1alpha1.ServingActive}

// figures has splits measured over as many requests as docs/benchmarks.md says: make bench.
var figures = flag.Bool("figures", false, "measure the splits of docs/benchmarks.md")

// story is of VMs in a namespace of their own.
type story struct {
	*testing.T
	namespace string
	names     []string
	// worst is how far a split was from its plan, in points.
	worst float64
}

func newStory(t *testing.T, count int) *story {
	t.Helper()
	if err := suite.Client().Create(t.Context(), &v1alpha1.EnergyPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "steer"},
		Spec: v1alpha1.EnergyPolicySpec{
			Mode: v1alpha1.ModeEnforce, Levers: []v1alpha1.Lever{v1alpha1.LeverTrafficShare},
			Energy: v1alpha1.EnergySettings{AllowModelled: true},
			// Whatever meter the machine has, traffic is to move at once.
			Verification: v1alpha1.Verification{Trials: v1alpha1.TrialsDisabled, HoldBackPercent: ptr.To[int32](0)},
		},
	}); err != nil {
		t.Fatal(err)
	}
	s := &story{T: t}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "traffic-"}}
	if err := suite.Client().Create(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	s.namespace = namespace.Name
	s.startVMs(count)
	return s
}

// part tells a part of the story.
func (s *story) part(name string, tell func(*story)) {
	s.Run(name, func(t *testing.T) {
		part := *s
		part.T = t
		tell(&part)
	})
}

// startVMs starts VMs that may migrate, dealt out to the nodes in turn.
func (s *story) startVMs(count int) {
	s.Helper()
	starts, ctx := errgroup.WithContext(s.Context())
	for i := range count {
		name := fmt.Sprintf("vm-%d", i)
		s.names = append(s.names, name)
		on := suite.Nodes()[i%len(suite.Nodes())].Name
		vm := suite.NewVM(s.namespace, name, func(t *kubevirtv1.VirtualMachineInstanceTemplateSpec) {
			maps.Copy(t.ObjectMeta.Labels, labels)
			t.Spec.Domain.CPU.Cores = 1
			t.Spec.EvictionStrategy = ptr.To(kubevirtv1.EvictionStrategyLiveMigrate)
			t.Spec.ReadinessProbe = &kubevirtv1.Probe{
				Handler:       kubevirtv1.Handler{HTTPGet: &corev1.HTTPGetAction{Path: "/ready", Port: intstr.FromInt32(port)}},
				PeriodSeconds: 1, TimeoutSeconds: 30, FailureThreshold: 5,
			}
			t.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
				PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{
					Weight: 100,
					Preference: corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{
						Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{on},
					}}},
				}},
			}}
		})
		starts.Go(func() error {
			_, err := suite.StartVM(ctx, vm)
			return err
		})
	}
	if err := starts.Wait(); err != nil {
		s.Fatal(err)
	}
}

func (s *story) key(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: s.namespace, Name: name}
}

// create creates an object and deletes it at the part's end.
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

// service creates a Service of all VMs and returns its URL when it answers.
func (s *story) service(name string) string {
	s.Helper()
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name},
		Spec: corev1.ServiceSpec{
			Selector: labels,
			Ports:    []corev1.ServicePort{{Port: port, TargetPort: intstr.FromInt32(port)}},
		},
	}
	s.create(service)
	s.eventually("the Service has all VMs", func(ctx context.Context) error {
		serving, err := s.serving(ctx, name)
		if err != nil {
			return err
		}
		if !slices.Equal(serving, s.names) {
			return fmt.Errorf("it has %v", serving)
		}
		return nil
	})
	url := "http://" + service.Spec.ClusterIP + "/"
	s.answers(asked(1, url))
	return url
}

// serving are the VMs to which a Service leads, sorted.
func (s *story) serving(ctx context.Context, service string) ([]string, error) {
	var list discoveryv1.EndpointSliceList
	if err := suite.Client().List(ctx, &list, client.InNamespace(s.namespace), client.MatchingLabels{discoveryv1.LabelServiceName: service}); err != nil {
		return nil, err
	}
	var names []string
	for i := range list.Items {
		for _, endpoint := range list.Items[i].Endpoints {
			if ptr.Deref(endpoint.Conditions.Ready, false) && endpoint.TargetRef != nil {
				name := strings.TrimPrefix(endpoint.TargetRef.Name, "virt-launcher-")
				names = append(names, name[:strings.LastIndex(name, "-")])
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil // a VM that migrates may have two pods
}

// asked are so many clients that ask a URL, each request with a connection of its own.
func asked(count int, url string) load.Options {
	return load.Options{Dial: suite.network.Dial, URL: url, Clients: count, Timeout: answerTimeout}
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

// ask starts clients, until the part ends.
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
func (s *story) follows(what string, g *group, wanted func(plan) error) plan {
	s.Helper()
	split, err := g.waitSplit(s.Context(), points, wanted)
	if err != nil {
		s.Fatalf("%s: %v", what, err)
	}
	if *figures {
		// What was still on its way to the plan is not its split.
		g.samples = 3000
		if split, err = g.measure(s.Context(), wanted); err != nil {
			s.Fatalf("%s: %v", what, err)
		}
	}
	s.worst = max(s.worst, split.error())
	s.Logf("%s: %.1f points from the plan %v: %s", what, split.error(), split.plan.shares, split.counts)
	return split.plan
}

// fewer wants some of the VMs to get nothing.
func (s *story) fewer(p plan) error {
	if len(p.shares) == 0 || len(p.shares) >= len(s.names) {
		return fmt.Errorf("%d of %d VMs have a share", len(p.shares), len(s.names))
	}
	return nil
}

// without wants VMs to get nothing.
func without(names ...string) func(plan) error {
	return func(p plan) error {
		for _, name := range names {
			if p.shares[name] > 0 {
				return fmt.Errorf("%s has a share", name)
			}
		}
		return nil
	}
}

// active are the VMs with a share, sorted.
func active(p plan) []string {
	var names []string
	for name := range p.shares {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// setReady makes a VM fail its readiness probe, or pass it again.
func (s *story) setReady(name string, ready bool) {
	s.Helper()
	vmi := &kubevirtv1.VirtualMachineInstance{}
	if err := suite.Client().Get(s.Context(), s.key(name), vmi); err != nil {
		s.Fatal(err)
	}
	address, err := suite.Address(s.Context(), vmi)
	if err != nil {
		s.Fatal(err)
	}
	response, err := http.Post(fmt.Sprintf("http://%s/ready?ready=%t", address, ready), "", http.NoBody)
	if err != nil {
		s.Fatal(err)
	}
	_ = response.Body.Close() // it is empty
	if response.StatusCode != http.StatusNoContent {
		s.Fatalf("guest %s answers %s", name, response.Status)
	}
}

// eventually waits until a condition holds.
func (s *story) eventually(what string, condition func(context.Context) error) {
	s.Helper()
	if err := suite.WaitFor(s.Context(), soon, what, condition); err != nil {
		s.Fatal(err)
	}
}

// splitIs is satisfied when new requests are split so.
func splitIs(asking *load.Load, shares map[string]float64) func(context.Context) error {
	return func(ctx context.Context) error {
		counts, err := asking.Window(ctx, samples)
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
func (s *story) uneven(p plan) error {
	least, most := 1.0, 0.0
	for _, name := range s.names {
		least, most = min(least, p.shares[name]), max(most, p.shares[name])
	}
	if most-least < 0.1 {
		return fmt.Errorf("the shares are from %.2f to %.2f", least, most)
	}
	return nil
}
