// Package objects says which objects of the cluster the manager caches, and reads them.
package objects

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/observe"
)

// CacheOptions keep in memory only what the controllers read. A VMI is 5 to 10
// KiB, of which they read about 500 bytes; a node's status lists its images, of
// which they need none.
//
// One transformation for all kinds, rather than one per kind: options per kind
// are looked up when the manager is made, which fails before KubeVirt is
// installed.
//
// Of pods only launcher pods are kept, and these only once there is a group that
// needs them, see groupKinds: at 2.8 KB each, 20,000 of them take 55 MB.
func CacheOptions() cache.Options {
	launchers := labels.SelectorFromSet(labels.Set{virtv1.AppLabel: observe.Launcher})
	return cache.Options{
		DefaultTransform: Strip,
		ByObject:         map[client.Object]cache.ByObject{&corev1.Pod{}: {Label: launchers}},
	}
}

// ControllerOptions of all controllers. The controller runtime's priority queue
// is off: shut down while items are ready, it can hand one to a worker that has
// left, with its locks held, and then the manager does not end in its grace
// period and keeps its Lease from the standby (v0.24.1, priorityqueue.go,
// handleReadyItems).
//
// A manager that stands by fills its caches too, so that it can plan at once when it leads.
func ControllerOptions() config.Controller {
	return config.Controller{UsePriorityQueue: ptr.To(false), EnableWarmup: ptr.To(true)}
}

// Strip returns a new object for the kinds that there are many of, so that the
// one that was decoded is freed.
func Strip(in any) (any, error) {
	switch o := in.(type) {
	case *virtv1.VirtualMachineInstance:
		return stripVMI(o), nil
	case *corev1.Node:
		return &corev1.Node{
			ObjectMeta: stripOptOut(&o.ObjectMeta),
			Spec:       corev1.NodeSpec{Unschedulable: o.Spec.Unschedulable, Taints: o.Spec.Taints},
			Status:     corev1.NodeStatus{Addresses: o.Status.Addresses},
		}, nil
	case *corev1.Pod:
		return stripPod(o), nil
	case *discoveryv1.EndpointSlice:
		return stripSlice(o), nil
	case *corev1.Namespace:
		return &corev1.Namespace{ObjectMeta: stripMeta(&o.ObjectMeta)}, nil
	}
	return cache.TransformStripManagedFields()(in)
}

func stripVMI(vmi *virtv1.VirtualMachineInstance) *virtv1.VirtualMachineInstance {
	out := &virtv1.VirtualMachineInstance{ObjectMeta: stripOptOut(&vmi.ObjectMeta)}
	out.Status.Phase = vmi.Status.Phase
	out.Status.NodeName = vmi.Status.NodeName
	out.Status.ActivePods = vmi.Status.ActivePods
	out.Status.EvacuationNodeName = vmi.Status.EvacuationNodeName
	if state := vmi.Status.MigrationState; state != nil {
		out.Status.MigrationState = &virtv1.VirtualMachineInstanceMigrationState{Completed: state.Completed}
	}
	for i := range vmi.Status.Conditions {
		switch c := &vmi.Status.Conditions[i]; c.Type {
		case virtv1.VirtualMachineInstanceReady, virtv1.VirtualMachineInstancePaused:
			out.Status.Conditions = append(out.Status.Conditions, virtv1.VirtualMachineInstanceCondition{
				Type: c.Type, Status: c.Status, LastTransitionTime: c.LastTransitionTime,
			})
		}
	}
	if vmi.IsCPUDedicated() {
		out.Spec.Domain.CPU = &virtv1.CPU{DedicatedCPUPlacement: true}
	}
	return out
}

// stripPod keeps what groups read of launcher pods.
func stripPod(pod *corev1.Pod) *corev1.Pod {
	out := &corev1.Pod{ObjectMeta: stripMeta(&pod.ObjectMeta)}
	if profile, steered := pod.Annotations[v1alpha1.AnnotationProfile]; steered {
		out.Annotations = map[string]string{v1alpha1.AnnotationProfile: profile}
	}
	if owner := metav1.GetControllerOf(pod); owner != nil {
		out.OwnerReferences = []metav1.OwnerReference{*owner}
	}
	out.Status.Phase = pod.Status.Phase
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			out.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: condition.Status}}
		}
	}
	return out
}

// stripSlice keeps which pods are endpoints, and whether they are ready.
func stripSlice(slice *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	out := &discoveryv1.EndpointSlice{ObjectMeta: stripMeta(&slice.ObjectMeta), AddressType: slice.AddressType, Ports: slice.Ports}
	for i := range slice.Endpoints {
		endpoint := &slice.Endpoints[i]
		out.Endpoints = append(out.Endpoints, discoveryv1.Endpoint{
			Addresses: endpoint.Addresses, Conditions: endpoint.Conditions, TargetRef: endpoint.TargetRef,
		})
	}
	return out
}

// stripOptOut keeps the one annotation that is read of VMIs and nodes.
func stripOptOut(meta *metav1.ObjectMeta) metav1.ObjectMeta {
	out := stripMeta(meta)
	if value, set := meta.Annotations[v1alpha1.AnnotationOptOut]; set {
		out.Annotations = map[string]string{v1alpha1.AnnotationOptOut: value}
	}
	return out
}

func stripMeta(meta *metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: meta.Name, Namespace: meta.Namespace, UID: meta.UID, ResourceVersion: meta.ResourceVersion,
		Generation: meta.Generation, Labels: meta.Labels,
		CreationTimestamp: meta.CreationTimestamp, DeletionTimestamp: meta.DeletionTimestamp,
	}
}

// AddIndexes has the cache find VMIs by the nodes on which they are.
func AddIndexes(ctx context.Context, indexer client.FieldIndexer) error {
	byNode := func(o client.Object) []string {
		vmi, ok := o.(*virtv1.VirtualMachineInstance)
		if !ok {
			return nil
		}
		return observe.NodesOf(vmi)
	}
	if err := indexer.IndexField(ctx, &virtv1.VirtualMachineInstance{}, observe.VMIsByNode, byNode); err != nil {
		return fmt.Errorf("index VMIs by node: %w", err)
	}
	return nil
}

// NewScheme returns a scheme with all kinds that the manager reads or writes.
func NewScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, virtv1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("register the manager's kinds: %w", err)
		}
	}
	return scheme, nil
}
