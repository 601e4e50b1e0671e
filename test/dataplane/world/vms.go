package world

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	kubevirtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/test/cluster"
	"github.com/joulevirt/joulevirt/test/dataplane/load"
	"github.com/joulevirt/joulevirt/test/dataplane/members"
)

// Timeout bounds what a cluster on a busy machine does in some seconds.
const Timeout = 3 * time.Minute

// requestTimeout bounds one request of a client.
const requestTimeout = 10 * time.Second

// NewNamespace makes a namespace in which VMs can be created.
func (w *World) NewNamespace(ctx context.Context, prefix string) (string, error) {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: prefix + "-"}}
	if err := w.Client().Create(ctx, namespace); err != nil {
		return "", fmt.Errorf("create a namespace: %w", err)
	}
	key := client.ObjectKey{Namespace: namespace.Name, Name: "default"}
	return namespace.Name, w.WaitFor(ctx, Timeout, "service account "+key.String(), func(ctx context.Context) error {
		return w.Client().Get(ctx, key, &corev1.ServiceAccount{})
	})
}

// StartVMs creates VMs named vm-0 ... with labels, dealt out to the nodes in
// turn, and returns their names when all are ready.
func (w *World) StartVMs(ctx context.Context, namespace string, count int, labels map[string]string) ([]string, error) {
	var names []string
	for i := range count {
		name := types.NamespacedName{Namespace: namespace, Name: fmt.Sprintf("vm-%d", i)}
		vm := members.VM(name, labels, w.Nodes[i%len(w.Nodes)])
		if err := w.Client().Create(ctx, vm); err != nil {
			return nil, fmt.Errorf("create VM %s: %w", name, err)
		}
		names = append(names, name.Name)
	}
	for _, name := range names {
		if _, err := w.WaitForVMI(ctx, Timeout, types.NamespacedName{Namespace: namespace, Name: name}, cluster.Ready); err != nil {
			return nil, err
		}
	}
	return names, nil
}

// NewService creates a Service for the members with the labels and returns its
// URL, by its address.
func (w *World) NewService(ctx context.Context, name types.NamespacedName, selector map[string]string) (string, error) {
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name},
		Spec: corev1.ServiceSpec{
			Selector: selector,
			Ports:    []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(members.Port)}},
		},
	}
	if err := w.Client().Create(ctx, service); err != nil {
		return "", fmt.Errorf("create Service %s: %w", name, err)
	}
	return "http://" + net.JoinHostPort(service.Spec.ClusterIP, strconv.Itoa(80)) + "/", nil
}

// Clients are so many clients on the nodes that ask a URL, each request with a
// connection of its own.
func (w *World) Clients(count int, url string) load.Options {
	return load.Options{Dial: w.Network.Dial, URL: url, Clients: count, Timeout: requestTimeout}
}

// WaitEndpoints waits until a Service has so many ready endpoints.
func (w *World) WaitEndpoints(ctx context.Context, service types.NamespacedName, count int) error {
	return w.WaitFor(ctx, Timeout, fmt.Sprintf("Service %s has %d endpoints", service, count), func(ctx context.Context) error {
		var slices discoveryv1.EndpointSliceList
		err := w.Client().List(ctx, &slices, client.InNamespace(service.Namespace),
			client.MatchingLabels{discoveryv1.LabelServiceName: service.Name})
		if err != nil {
			return err
		}
		ready := 0
		for i := range slices.Items {
			for _, endpoint := range slices.Items[i].Endpoints {
				if endpoint.Conditions.Ready != nil && *endpoint.Conditions.Ready {
					ready++
				}
			}
		}
		if ready != count {
			return fmt.Errorf("%d are ready", ready)
		}
		return nil
	})
}

// Migrate moves a VM live and returns when it runs on the node.
func (w *World) Migrate(ctx context.Context, vmi types.NamespacedName, node string) error {
	migration := &kubevirtv1.VirtualMachineInstanceMigration{
		ObjectMeta: metav1.ObjectMeta{Namespace: vmi.Namespace, GenerateName: vmi.Name + "-"},
		Spec: kubevirtv1.VirtualMachineInstanceMigrationSpec{
			VMIName: vmi.Name, AddedNodeSelector: map[string]string{corev1.LabelHostname: node},
		},
	}
	if err := w.Client().Create(ctx, migration); err != nil {
		return fmt.Errorf("migrate VM %s: %w", vmi, err)
	}
	_, err := w.WaitForVMI(ctx, Timeout, vmi, func(v *kubevirtv1.VirtualMachineInstance) error {
		if v.Status.NodeName != node {
			return fmt.Errorf("it is on node %s, not %s", v.Status.NodeName, node)
		}
		return cluster.Ready(v)
	})
	return err
}
