package controllers

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/config"
)

// CacheOptions keep in memory only what the controllers read. A VMI is 5 to 10
// KiB, of which they read about 500 bytes; a node's status lists its images, of
// which they need none.
//
// One transformation for all kinds, rather than one per kind: options per kind
// are looked up when the manager is made, which fails before KubeVirt is
// installed.
func CacheOptions() cache.Options {
	return cache.Options{DefaultTransform: strip}
}

// ControllerOptions of all controllers. The controller runtime's priority queue
// is off: shut down while items are ready, it can hand one to a worker that has
// left, with its locks held, and then the manager does not end in its grace
// period and keeps its Lease from the standby (v0.24.1, priorityqueue.go,
// handleReadyItems).
func ControllerOptions() config.Controller {
	return config.Controller{UsePriorityQueue: ptr.To(false)}
}

// strip returns a new object for the kinds that there are many of, so that the
// one that was decoded is freed.
func strip(in any) (any, error) {
	switch o := in.(type) {
	case *virtv1.VirtualMachineInstance:
		return stripVMI(o), nil
	case *corev1.Node:
		return &corev1.Node{
			ObjectMeta: stripMeta(&o.ObjectMeta),
			Spec:       corev1.NodeSpec{Unschedulable: o.Spec.Unschedulable, Taints: o.Spec.Taints},
			Status:     corev1.NodeStatus{Addresses: o.Status.Addresses},
		}, nil
	case *corev1.Namespace:
		return &corev1.Namespace{ObjectMeta: stripMeta(&o.ObjectMeta)}, nil
	}
	return cache.TransformStripManagedFields()(in)
}

func stripVMI(vmi *virtv1.VirtualMachineInstance) *virtv1.VirtualMachineInstance {
	out := &virtv1.VirtualMachineInstance{ObjectMeta: stripMeta(&vmi.ObjectMeta)}
	out.Status.Phase = vmi.Status.Phase
	out.Status.NodeName = vmi.Status.NodeName
	out.Status.ActivePods = vmi.Status.ActivePods
	if vmi.IsCPUDedicated() {
		out.Spec.Domain.CPU = &virtv1.CPU{DedicatedCPUPlacement: true}
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
