//go:build e2e

// Package nodes tests the product, as pods, on two real nodes, while KubeVirt, nodes and
// VMs change below it.
package nodes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/test/cluster"
	"github.com/joulevirt/joulevirt/test/cluster/binaries"
	"github.com/joulevirt/joulevirt/test/env/node"
	"github.com/joulevirt/joulevirt/test/env/product"
)

const (
	shop = "shop" // namespace of the VMs

	// changeTimeout covers a change's way through controllers, manager and agent on a busy
	// machine: some seconds to a minute otherwise.
	changeTimeout = 10 * time.Minute
	// rollTimeout covers the roll of a DaemonSet on two nodes, and the drain of a node, likewise.
	// virt-handler's probe waits 15 s.
	rollTimeout = "10m"
)

// web serves, bulk computes: the slices need VMs of both pools. Both start on the first
// node; spare is bulk's like on the second.
var (
	web   = types.NamespacedName{Namespace: shop, Name: "web"}
	bulk  = types.NamespacedName{Namespace: shop, Name: "bulk"}
	spare = types.NamespacedName{Namespace: shop, Name: "spare"}
)

// world is what a story sees of the cluster.
type world struct {
	*testing.T
	*node.Environment
	clients *clients
	logs    *kubeVirtLogs
}

// TestNodes tells the stories in the order in which they need the least, those with one node
// first: a VM that is started anew may go to the other. Each leaves the product installed and
// the policy in force.
//
//e2e:alone it fills a node with VMs and memory
func TestNodes(t *testing.T) {
	w := newWorld(t, binaries.FromEnvironment(os.Getenv, os.Stderr))
	for _, story := range []struct {
		name string
		tell func(*world)
	}{
		{"KubeVirtUpgrade", (*world).upgrade},
		{"Lifecycle", (*world).lifecycle},
		{"Restarts", (*world).restarts},
		{"Eviction", (*world).evict},
		{"LiveMigration", (*world).migration},
		{"Drain", (*world).drain},
		{"DedicatedCPUs", (*world).dedicated},
	} {
		t.Run(story.name, func(t *testing.T) {
			part := *w
			part.T = t
			story.tell(&part)
			part.logs.check(t)
		})
	}
}

// newWorld starts a node of these programs with two VMs, and then installs the product.
func newWorld(t *testing.T, programs binaries.Source) *world {
	t.Helper()
	w := &world{T: t}
	e := node.StartForTest(t, node.Options{
		Cluster: cluster.Options{
			Binaries: programs,
			KubeVirtConfig: func(config *kubevirtv1.KubeVirtConfiguration) {
				config.DeveloperConfiguration.FeatureGates = append(config.DeveloperConfiguration.FeatureGates, "CPUManager")
				config.VMRolloutStrategy = ptr.To(kubevirtv1.VMRolloutStrategyLiveUpdate) // so that vCPUs can be added
			},
		},
		Product: true, Node: node.NodeOptions{Kubelet: w.shortOfMemory()},
	})
	w.Environment = e
	w.check(v1alpha1.AddToScheme(e.Client().Scheme()))
	w.check(e.Client().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: shop}}))
	starts, ctx := errgroup.WithContext(t.Context())
	for _, key := range []types.NamespacedName{web, bulk} {
		starts.Go(func() error {
			_, err := e.StartVM(ctx, w.newVM(key, nil))
			return err
		})
	}
	w.check(starts.Wait())
	w.clients = askPods(t, e)
	w.logs = readKubeVirtLogs(t, e)
	w.install()
	w.logs.nothingNew(t)
	return w
}

// newVM returns a VM that a drained node may move, that no kubelet evicts, and that may get more
// sockets.
func (w *world) newVM(key types.NamespacedName, change func(*kubevirtv1.VirtualMachineInstanceTemplateSpec)) *kubevirtv1.VirtualMachine {
	return w.NewVM(key.Namespace, key.Name, func(t *kubevirtv1.VirtualMachineInstanceTemplateSpec) {
		t.Spec.EvictionStrategy = ptr.To(kubevirtv1.EvictionStrategyLiveMigrate)
		t.Spec.PriorityClassName = "system-cluster-critical"
		t.Spec.Domain.CPU = &kubevirtv1.CPU{Sockets: 1, MaxSockets: 3, Cores: 1, Threads: 1}
		if change != nil {
			change(t)
		}
	})
}

// install applies the manifests, and a policy whose only
// lever also acts on a busy machine.
func (w *world) install() {
	w.Helper()
	w.check(w.ApplyManifests(w.Context(), "../../../config/default"))
	w.check(product.ActAtOnce(w.Context(), w.Environment))
	for name, class := range map[string]v1alpha1.TrafficClass{web.Name: v1alpha1.TrafficInteractive, bulk.Name: v1alpha1.TrafficThroughput, spare.Name: v1alpha1.TrafficThroughput} {
		profile := &v1alpha1.VMNetworkProfile{
			ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: name},
			Spec: v1alpha1.VMNetworkProfileSpec{
				Selector: metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}, TrafficClass: class,
				// A busy machine has vCPUs wait, whatever the lever does.
				ServiceLevels: v1alpha1.ServiceLevels{MaxStealPercent: 100},
			},
		}
		if name == web.Name {
			profile.Spec.Group = &v1alpha1.TrafficGroup{Kind: v1alpha1.GroupService, Name: web.Name, MinActive: 1}
		}
		w.check(w.Client().Create(w.Context(), profile))
	}
	w.check(w.Client().Create(w.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: web.Name},
		Spec: corev1.ServiceSpec{
			Selector: map[string]string{"app": web.Name}, Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(80)}},
		},
	}))
	w.createPolicy()
	w.eventually("levers act on web and bulk", w.inForce(w.Nodes()[0], web, bulk))
}

// agree has the owner of web's Service agree that it is adopted.
func (w *world) agree() {
	w.Helper()
	w.kubectl("annotate", "service", web.Name, "--namespace="+shop, v1alpha1.AnnotationAdopt+"=true")
}

func (w *world) createPolicy() {
	w.Helper()
	w.check(w.Client().Create(w.Context(), &v1alpha1.EnergyPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "slice"},
		Spec: v1alpha1.EnergyPolicySpec{
			Mode: v1alpha1.ModeEnforce, Levers: []v1alpha1.Lever{v1alpha1.LeverSlice, v1alpha1.LeverTrafficShare}, Priority: 1,
			Energy:       v1alpha1.EnergySettings{AllowModelled: true},
			Verification: v1alpha1.Verification{Trials: v1alpha1.TrialsDisabled, HoldBackPercent: ptr.To[int32](0)},
		},
	}))
}

func (w *world) check(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) kubectl(args ...string) string {
	w.Helper()
	out, err := w.RunKubectl(w.Context(), args...)
	w.check(err)
	return out
}

// eventually waits for a condition. When it does not come, the failure has what the product
// planned, did and logged.
func (w *world) eventually(what string, condition func(context.Context) error) {
	w.Helper()
	if err := w.WaitFor(w.Context(), changeTimeout, what, condition); err != nil {
		w.Log(w.state())
		w.Fatal(err)
	}
}

// state is what there is of the product, for people.
func (w *world) state() string { return product.State(w.Context(), w.Environment) }

// inForce is satisfied when the agent of a node acts on these VMs and on no other, and the
// kernel says so too.
func (w *world) inForce(n *node.Node, vms ...types.NamespacedName) func(context.Context) error {
	return func(ctx context.Context) error {
		plan, err := product.InForce(ctx, w.Client(), n.Name)
		if err != nil {
			return err
		}
		acted := product.InForceOn(plan, v1alpha1.LeverSlice)
		if len(acted) != len(vms) || slices.ContainsFunc(vms, func(vm types.NamespacedName) bool { return !slices.Contains(acted, vm) }) {
			return fmt.Errorf("levers act on %v of node %s, want %v: plan %s: %s", acted, n.Name, vms, plan.Spec.Reason, plan.Spec.Message)
		}
		for _, vm := range vms {
			qemu, err := n.QEMU(vm)
			if err != nil {
				return err
			}
			if set, err := isSliced(qemu); err != nil || !set {
				return errors.Join(err, fmt.Errorf("threads of VM %s have no slice, whatever the status says", vm))
			}
		}
		return nil
	}
}

// agentPod returns the pod of a node's agent.
func (w *world) agentPod(ctx context.Context, n *node.Node) (*corev1.Pod, error) {
	return product.Agent(ctx, w.Client(), n.Name)
}

// sameAgent returns a check that the agent of a node has run all along.
func (w *world) sameAgent(n *node.Node) (check func()) {
	w.Helper()
	before, err := w.agentPod(w.Context(), n)
	w.check(err)
	return func() {
		w.Helper()
		after, err := w.agentPod(w.Context(), n)
		w.check(err)
		if after.UID != before.UID {
			w.Errorf("the agent's pod on node %s was %s and is %s", n.Name, before.Name, after.Name)
			return
		}
		if was, is := before.Status.ContainerStatuses[0], after.Status.ContainerStatuses[0]; is.RestartCount != was.RestartCount {
			w.Errorf("the agent on node %s was restarted: %+v", n.Name, is)
		}
	}
}
