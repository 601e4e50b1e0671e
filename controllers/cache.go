package controllers

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// CacheOptions keep in memory only what the controllers read. A VMI is 5 to 10
// KiB, of which they read about 500 bytes; a node's status lists its images.
func CacheOptions() cache.Options {
	return cache.Options{
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&virtv1.VirtualMachineInstance{}: {Transform: stripVMI},
			&corev1.Node{}:                   {Transform: stripNode},
			&corev1.Namespace{}:              {Transform: stripNamespace},
		},
	}
}

// stripVMI returns a new object, so that the one that was decoded is freed.
func stripVMI(in any) (any, error) {
	vmi, ok := in.(*virtv1.VirtualMachineInstance)
	if !ok {
		return in, nil
	}
	out := &virtv1.VirtualMachineInstance{ObjectMeta: stripMeta(&vmi.ObjectMeta)}
	out.Status.Phase = vmi.Status.Phase
	out.Status.NodeName = vmi.Status.NodeName
	out.Status.ActivePods = vmi.Status.ActivePods
	if vmi.IsCPUDedicated() {
		out.Spec.Domain.CPU = &virtv1.CPU{DedicatedCPUPlacement: true}
	}
	return out, nil
}

func stripNode(in any) (any, error) {
	node, ok := in.(*corev1.Node)
	if !ok {
		return in, nil
	}
	return &corev1.Node{
		ObjectMeta: stripMeta(&node.ObjectMeta),
		Spec:       corev1.NodeSpec{Unschedulable: node.Spec.Unschedulable, Taints: node.Spec.Taints},
	}, nil
}

func stripNamespace(in any) (any, error) {
	namespace, ok := in.(*corev1.Namespace)
	if !ok {
		return in, nil
	}
	return &corev1.Namespace{ObjectMeta: stripMeta(&namespace.ObjectMeta)}, nil
}

func stripMeta(meta *metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: meta.Name, Namespace: meta.Namespace, UID: meta.UID, ResourceVersion: meta.ResourceVersion,
		Generation: meta.Generation, Labels: meta.Labels,
		CreationTimestamp: meta.CreationTimestamp, DeletionTimestamp: meta.DeletionTimestamp,
	}
}
