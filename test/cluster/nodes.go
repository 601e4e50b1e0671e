package cluster

import (
	"context"
	"fmt"
	"maps"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kubevirtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// leaseDuration and leaseInterval are the kubelet's defaults.
	leaseDuration = 40 * time.Second
	leaseInterval = 10 * time.Second

	// writers bounds concurrent writes of bulk helpers.
	writers = 32
)

// SimulatedNodes describes nodes that are objects only.
type SimulatedNodes struct {
	// Prefix starts the names, which go on with -000, -001 ...; empty: "node".
	Prefix string
	// Labels are added to those of a KubeVirt node.
	Labels map[string]string
}

// capacity is a node for some dozens of small VMs: 32 CPUs, 256 GiB.
func capacity() corev1.ResourceList {
	devices := resource.MustParse("1k") // KubeVirt's device plugins offer as many
	return corev1.ResourceList{
		corev1.ResourceCPU:              resource.MustParse("32"),
		corev1.ResourceMemory:           resource.MustParse("256Gi"),
		corev1.ResourceEphemeralStorage: resource.MustParse("1Ti"),
		corev1.ResourcePods:             resource.MustParse("500"),
		"devices.kubevirt.io/kvm":       devices,
		"devices.kubevirt.io/tun":       devices,
		"devices.kubevirt.io/vhost-net": devices,
	}
}

// AddSimulatedNodes creates n ready KubeVirt nodes and returns their names. Nobody
// renews their leases: for clusters without a controller manager.
func (c *Cluster) AddSimulatedNodes(ctx context.Context, n int, description SimulatedNodes) ([]string, error) {
	prefix := description.Prefix
	if prefix == "" {
		prefix = "node"
	}
	names := make([]string, n)
	err := parallel(ctx, n, func(ctx context.Context, i int) error {
		names[i] = fmt.Sprintf("%s-%03d", prefix, i)
		node := newNode(names[i])
		maps.Copy(node.Labels, description.Labels)
		if err := c.client.Create(ctx, node); err != nil {
			return fmt.Errorf("create simulated node %s: %w", names[i], err)
		}
		return nil
	})
	return names, err
}

// AddNode creates the Node of a machine, ready, and renews its lease until the
// cluster stops.
func (c *Cluster) AddNode(ctx context.Context, name string) error {
	node := newNode(name)
	if err := c.client.Create(ctx, node); err != nil {
		return fmt.Errorf("create node %s: %w", name, err)
	}
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: corev1.NamespaceNodeLease, Name: node.Name,
			OwnerReferences: []metav1.OwnerReference{
				{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID},
			},
		},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity:       &node.Name,
			LeaseDurationSeconds: ptr.To(int32(leaseDuration.Seconds())),
			RenewTime:            &metav1.MicroTime{Time: time.Now()},
		},
	}
	if err := c.client.Create(ctx, lease); err != nil {
		return fmt.Errorf("create the lease of node %s: %w", node.Name, err)
	}
	c.tasks.Go(func() { c.renew(lease) })
	return nil
}

// renew keeps a lease fresh. A failed renewal is made up by the next one; the node
// turns NotReady after four.
func (c *Cluster) renew(lease *coordinationv1.Lease) {
	ticker := time.NewTicker(leaseInterval)
	defer ticker.Stop()
	for {
		select {
		case <-c.background.Done():
			return
		case <-ticker.C:
		}
		before := lease.DeepCopy()
		lease.Spec.RenewTime = &metav1.MicroTime{Time: time.Now()}
		_ = c.client.Patch(c.background, lease, client.MergeFrom(before))
	}
}

// newNode returns a ready node with what KubeVirt's node labeller and
// virt-handler would have written. A Node, as no other object, may be created
// with its status.
func newNode(name string) *corev1.Node {
	resources := capacity()
	now := metav1.Now()
	condition := func(kind corev1.NodeConditionType, status corev1.ConditionStatus, reason string) corev1.NodeCondition {
		return corev1.NodeCondition{
			Type: kind, Status: status, Reason: reason,
			LastHeartbeatTime: now, LastTransitionTime: now,
		}
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: name,
			Labels: map[string]string{
				corev1.LabelHostname:                               name,
				corev1.LabelOSStable:                               "linux",
				corev1.LabelArchStable:                             "amd64",
				kubevirtv1.NodeSchedulable:                         "true",
				kubevirtv1.SupportedMachineTypeLabel + "q35":       "true",
				kubevirtv1.HostModelCPULabel + "EPYC":              "true",
				kubevirtv1.CPUModelLabel + "EPYC":                  "true",
				kubevirtv1.SupportedHostModelMigrationCPU + "EPYC": "true",
			},
			Annotations: map[string]string{
				kubevirtv1.VirtHandlerHeartbeat: now.UTC().Format(time.RFC3339),
			},
		},
		Status: corev1.NodeStatus{
			Capacity: resources, Allocatable: resources,
			Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeInternalIP, Address: "127.0.0.1"},
				{Type: corev1.NodeHostName, Address: name},
			},
			Conditions: []corev1.NodeCondition{
				condition(corev1.NodeReady, corev1.ConditionTrue, "KubeletReady"),
				condition(corev1.NodeMemoryPressure, corev1.ConditionFalse, "KubeletHasSufficientMemory"),
				condition(corev1.NodeDiskPressure, corev1.ConditionFalse, "KubeletHasNoDiskPressure"),
				condition(corev1.NodePIDPressure, corev1.ConditionFalse, "KubeletHasSufficientPID"),
			},
			NodeInfo: corev1.NodeSystemInfo{OperatingSystem: "linux", Architecture: "amd64"},
		},
	}
}
