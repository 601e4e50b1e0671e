package watch

import (
	"fmt"
	"maps"
	"slices"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	kubevirtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/agent/discover"
)

// ManagerLease is the name of the Lease that the manager renews.
const ManagerLease = "joulevirt-manager"

const launcher = "virt-launcher"

// NewScheme knows the kinds that the agent reads and writes.
func NewScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, coordinationv1.AddToScheme, kubevirtv1.AddToScheme, v1alpha1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("scheme of the agent: %w", err)
		}
	}
	return scheme, nil
}

// NewMapper maps the agent's kinds to resources without asking the API server:
// the agent has to start, and to revert its node, also without one.
func NewMapper() meta.RESTMapper {
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Pod"), meta.RESTScopeNamespace)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Node"), meta.RESTScopeRoot)
	mapper.Add(coordinationv1.SchemeGroupVersion.WithKind("Lease"), meta.RESTScopeNamespace)
	mapper.Add(kubevirtv1.GroupVersion.WithKind("VirtualMachineInstance"), meta.RESTScopeNamespace)
	mapper.Add(v1alpha1.GroupVersion.WithKind("NodePlan"), meta.RESTScopeRoot)
	mapper.Add(v1alpha1.GroupVersion.WithKind("NodeReport"), meta.RESTScopeRoot)
	return mapper
}

// byObject narrows each watch to what concerns the node.
func byObject(node, namespace string) map[client.Object]cache.ByObject {
	return map[client.Object]cache.ByObject{
		&corev1.Pod{}: {
			Field:     fields.OneTermEqualSelector("spec.nodeName", node),
			Label:     labels.SelectorFromSet(labels.Set{kubevirtv1.AppLabel: launcher}),
			Transform: trimPod,
		},
		&kubevirtv1.VirtualMachineInstance{}: {
			Label:     labels.SelectorFromSet(labels.Set{kubevirtv1.NodeNameLabel: node}),
			Transform: trimVMI,
		},
		&v1alpha1.NodePlan{}: {
			Field: fields.OneTermEqualSelector(metav1.ObjectNameField, node),
		},
		&coordinationv1.Lease{}: {
			Namespaces: map[string]cache.Config{namespace: {
				FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, ManagerLease),
			}},
		},
	}
}

// trimPod leaves of a pod what podOf needs.
func trimPod(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil
	}
	return &corev1.Pod{
		TypeMeta: pod.TypeMeta,
		ObjectMeta: metav1.ObjectMeta{
			Name: pod.Name, Namespace: pod.Namespace, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
			Labels: map[string]string{
				kubevirtv1.AppLabel:       pod.Labels[kubevirtv1.AppLabel],
				kubevirtv1.CreatedByLabel: pod.Labels[kubevirtv1.CreatedByLabel],
			},
		},
	}, nil
}

func podOf(pod *corev1.Pod) discover.Pod {
	return discover.Pod{
		UID: string(pod.UID), Namespace: pod.Namespace,
		CreatedBy: pod.Labels[kubevirtv1.CreatedByLabel],
	}
}

// trimVMI leaves of a VMI what vmiOf needs.
func trimVMI(object any) (any, error) {
	vmi, ok := object.(*kubevirtv1.VirtualMachineInstance)
	if !ok {
		return object, nil
	}
	trimmed := &kubevirtv1.VirtualMachineInstance{
		TypeMeta: vmi.TypeMeta,
		ObjectMeta: metav1.ObjectMeta{
			Name: vmi.Name, Namespace: vmi.Namespace, UID: vmi.UID, ResourceVersion: vmi.ResourceVersion,
			Labels: map[string]string{kubevirtv1.NodeNameLabel: vmi.Labels[kubevirtv1.NodeNameLabel]},
		},
	}
	trimmed.Status.ActivePods = vmi.Status.ActivePods
	if cpu := vmi.Spec.Domain.CPU; cpu != nil {
		trimmed.Spec.Domain.CPU = &kubevirtv1.CPU{DedicatedCPUPlacement: cpu.DedicatedCPUPlacement}
	}
	return trimmed, nil
}

func vmiOf(vmi *kubevirtv1.VirtualMachineInstance) discover.VMI {
	v := discover.VMI{UID: string(vmi.UID), Namespace: vmi.Namespace, Name: vmi.Name}
	if cpu := vmi.Spec.Domain.CPU; cpu != nil {
		v.Dedicated = cpu.DedicatedCPUPlacement
	}
	for uid := range maps.Keys(vmi.Status.ActivePods) {
		v.ActivePods = append(v.ActivePods, string(uid))
	}
	slices.Sort(v.ActivePods)
	return v
}
