// Package pods reads the launcher pods of groups, and changes of them what the
// manager may change: two labels and an annotation.
package pods

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/routing"
)

// launcher is the value of KubeVirt's label on the pods that run VMs.
const launcher = "virt-launcher"

// Pod is a launcher pod that may run.
type Pod struct {
	*corev1.Pod
	// Member is the name of the VM when it is one of the group's. Empty: it is not.
	Member string
}

// Mark is what the manager sets of a launcher pod. Empty fields are absent.
type Mark struct {
	// Serving and Fold are the values of the labels, Profile of the annotation.
	Serving, Fold, Profile string
}

// MarkOf returns the mark of a pod.
func MarkOf(pod *corev1.Pod) Mark {
	return Mark{
		Serving: pod.Labels[v1alpha1.LabelServing],
		Fold:    pod.Labels[v1alpha1.LabelFold],
		Profile: pod.Annotations[v1alpha1.AnnotationProfile],
	}
}

// List returns the launcher pods of a group's namespace, those of other VMs too,
// without those that have ended or are being deleted. Those that are neither of a
// member nor marked by the profile may be the cache's own: they are not to be
// changed.
func List(ctx context.Context, reader client.Reader, group *routing.Group) ([]Pod, error) {
	all, err := launchers(ctx, reader, group.Profile.Namespace)
	if err != nil {
		return nil, err
	}
	members := map[string]bool{}
	byUID := map[types.UID]string{}
	for i := range group.Members {
		members[group.Members[i].Name] = true
		for _, pod := range group.Members[i].Pods {
			byUID[pod.UID] = group.Members[i].Name
		}
	}
	var out []Pod
	for i := range all {
		pod := &all[i]
		if over(pod) {
			continue
		}
		// The caller need not know yet the pod that a migration just made.
		name := byUID[pod.UID]
		if vm := VM(pod); name == "" && members[vm] {
			name = vm
		}
		if name != "" || MarkOf(pod).Profile == group.Profile.Name {
			pod = pod.DeepCopy()
		}
		out = append(out, Pod{Pod: pod, Member: name})
	}
	return out, nil
}

// VM returns the name of the VM that a launcher pod runs. Empty: none owns it.
func VM(pod *corev1.Pod) string {
	owner := metav1.GetControllerOf(pod)
	if owner == nil || owner.Kind != virtv1.VirtualMachineInstanceGroupVersionKind.Kind {
		return ""
	}
	return owner.Name
}

// launchers of a namespace; empty: of all. They are the cache's own: a namespace
// may have 20,000, of which a group needs few.
func launchers(ctx context.Context, reader client.Reader, namespace string) ([]corev1.Pod, error) {
	var list corev1.PodList
	err := reader.List(ctx, &list, client.InNamespace(namespace), client.MatchingLabels{virtv1.AppLabel: launcher}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("list launcher pods of namespace %q: %w", namespace, err)
	}
	return list.Items, nil
}

// over tells whether a pod gets no new traffic any more.
func over(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// IsLauncher tells whether a pod runs a VM.
func IsLauncher(pod *corev1.Pod) bool { return pod.Labels[virtv1.AppLabel] == launcher }
