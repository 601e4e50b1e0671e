package accelerated

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	kubevirtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/units"
	"github.com/joulevirt/joulevirt/test/cluster"
	"github.com/joulevirt/joulevirt/test/sim"
)

// LabelPart tells nodes of one group from others by its name.
const LabelPart = "test.joulevirt.io/part"

// Group is VMs behind a Service, on nodes of their own.
type Group struct {
	// Name of the Service, of the VMs' label app and of the nodes' LabelPart.
	Name string
	// Nodes, and VMs on each.
	Nodes, VMs int
	// Total is the mean of what clients ask of the Service.
	Total units.BitsPerSecond
	// Standby is what a VM computes while no new traffic comes to it, which nobody
	// foresees.
	Standby sim.Compute
	// Unmetered is true when its nodes have no energy counters, and sleep in shallow states only.
	Unmetered bool
	// Flood of small packets comes to its first VM, which answers them, and nothing else
	// does. 0: none.
	Flood units.BitsPerSecond
}

// Labels of the group's VMs.
func (g *Group) Labels() map[string]string { return map[string]string{"app": g.Name} }

const (
	// ebb is how long what clients ask for takes to fall and rise by ebbSwing.
	ebb      = 5 * time.Minute
	ebbSwing = 0.3
	// rush is how long clients ask for so many times as much at the start: what VMs carried
	// well then they are known to carry.
	rush      = 30 * time.Minute
	rushTimes = 2
)

// group plays what makes the Service's endpoints of labels, what spreads new connections
// over them, and the clients, whose connections are short.
type group struct {
	Group
	namespace string
	api       client.Client
	// launchers are watched, as endpoint controllers do.
	launchers client.Reader
	nodes     []*node
	slice     *discoveryv1.EndpointSlice
	// at is the node of each pod.
	at map[types.UID]*node
	// serving are the pods among the endpoints.
	serving map[types.UID]bool
	start   time.Time
}

// addGroup seeds a group's nodes, VMs and Service.
func (f *Fleet) addGroup(ctx context.Context, o *Options, of Group) error {
	g := &group{
		Group: of, namespace: o.Namespace, api: o.Cluster.Client(), launchers: f.launchers,
		at: map[types.UID]*node{}, start: f.clock.Now(),
	}
	labels := of.Labels()
	labels[v1alpha1.LabelServing] = v1alpha1.ServingActive
	var err error
	if g.nodes, err = f.addNodes(ctx, o, part{name: of.Name, nodes: of.Nodes, vms: of.VMs, labels: labels, unmetered: of.Unmetered}); err != nil {
		return err
	}
	for _, n := range g.nodes {
		for i := range n.pods {
			g.at[n.pods[i].UID] = n
		}
	}
	selector := maps.Clone(labels)
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: of.Name},
		Spec:       corev1.ServiceSpec{Selector: selector, Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(8080)}}},
	}
	if err := g.api.Create(ctx, service); err != nil {
		return fmt.Errorf("create Service %s: %w", of.Name, err)
	}
	g.slice = &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: o.Namespace, Name: of.Name, Labels: map[string]string{discoveryv1.LabelServiceName: of.Name}},
		AddressType: discoveryv1.AddressTypeIPv4,
	}
	if err := g.api.Create(ctx, g.slice); err != nil {
		return fmt.Errorf("create EndpointSlice %s: %w", of.Name, err)
	}
	f.groups = append(f.groups, g)
	return nil
}

// watchLaunchers returns launcher pods as a watch has them.
func watchLaunchers(ctx context.Context, c *cluster.Cluster, namespace string) (client.Reader, error) {
	pods, err := cache.New(c.RESTConfig(), cache.Options{
		Scheme: c.Client().Scheme(), Mapper: c.Client().RESTMapper(), DefaultNamespaces: map[string]cache.Config{namespace: {}},
	})
	if err != nil {
		return nil, fmt.Errorf("watch launcher pods: %w", err)
	}
	if _, err := pods.GetInformer(ctx, &corev1.Pod{}); err != nil {
		return nil, fmt.Errorf("watch launcher pods: %w", err)
	}
	go func() { _ = pods.Start(ctx) }() // it ends with the context
	if !pods.WaitForCacheSync(ctx) {
		return nil, fmt.Errorf("watch launcher pods: %w", ctx.Err())
	}
	return pods, nil
}

// follow has the endpoints follow the pods' labels, and the traffic the endpoints.
func (g *group) follow(ctx context.Context, now time.Time) error {
	var pods corev1.PodList
	active := client.MatchingLabels{"app": g.Name, v1alpha1.LabelServing: v1alpha1.ServingActive}
	if err := g.launchers.List(ctx, &pods, client.InNamespace(g.namespace), active, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list launcher pods of Service %s: %w", g.Name, err)
	}
	serving := map[types.UID]bool{}
	for i := range pods.Items {
		serving[pods.Items[i].UID] = true
	}
	if g.serving == nil || !maps.Equal(g.serving, serving) {
		if err := g.write(ctx, pods.Items); err != nil {
			return err
		}
		g.serving = serving
	}
	return g.spread(now)
}

// write makes the endpoints.
func (g *group) write(ctx context.Context, pods []corev1.Pod) error {
	g.slice.Endpoints = nil
	for i := range pods {
		pod := &pods[i]
		g.slice.Endpoints = append(g.slice.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{pod.Status.PodIP}, NodeName: ptr.To(pod.Spec.NodeName), Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)},
			TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
		})
	}
	if err := g.api.Update(ctx, g.slice); err != nil {
		return fmt.Errorf("write EndpointSlice %s: %w", g.Name, err)
	}
	return nil
}

// spread gives each endpoint the same of what clients ask for now, and each VM of the twins
// the same.
func (g *group) spread(now time.Time) error {
	phase := 2 * math.Pi * now.Sub(g.start).Seconds() / ebb.Seconds()
	asked := g.Total * units.BitsPerSecond(1+ebbSwing*math.Sin(phase))
	if now.Sub(g.start) < rush {
		asked *= rushTimes
	}
	for uid, n := range g.at {
		traffic, compute := sim.Traffic{}, g.Standby
		if g.serving[uid] {
			traffic.FromVM, compute = asked/units.BitsPerSecond(len(g.serving)), sim.Compute{}
		}
		without := sim.Traffic{FromVM: asked / units.BitsPerSecond(len(g.at))}
		if g.Flood > 0 && uid == g.nodes[0].pods[0].UID {
			traffic, without = sim.Flood(g.Flood), sim.Flood(g.Flood)
		}
		err := n.host.SetTraffic(string(uid), traffic)
		if err == nil {
			err = n.host.SetCompute(string(uid), compute)
		}
		if err == nil {
			err = n.twin.SetTraffic(string(uid), without)
		}
		if err != nil {
			return fmt.Errorf("service %s: %w", g.Name, err)
		}
	}
	return nil
}

// Serving names the VMs to which new traffic of a group's Service comes.
func (f *Fleet) Serving(name string) []string {
	var names []string
	for _, g := range f.groups {
		if g.Name != name {
			continue
		}
		for _, n := range g.nodes {
			for i := range n.pods {
				if g.serving[n.pods[i].UID] {
					names = append(names, n.pods[i].Labels[kubevirtv1.VirtualMachineInstanceIDLabel])
				}
			}
		}
	}
	slices.Sort(names)
	return names
}
