// Package pods reads the launcher pods of groups, and changes of them and of their VMs what the
// manager may change: a label, and of pods an annotation.
package pods

import (
	"context"
	"fmt"
	"slices"

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

// Member is a VM of a group with its launcher pods that may run.
type Member struct {
	Name string
	// Starting members are not counted on.
	Starting bool
	Pods     []*corev1.Pod
}

// Ready returns whether the member may serve.
func (m *Member) Ready() bool {
	return !m.Starting && slices.ContainsFunc(m.Pods, routing.IsReady)
}

// Mark is the label and annotation that the manager sets on a launcher pod. Empty: absent.
type Mark struct {
	// Serving is the value of the label, Profile of the annotation.
	Serving, Profile string
}

// MarkOf returns the mark of a pod.
func MarkOf(pod *corev1.Pod) Mark {
	return Mark{
		Serving: pod.Labels[v1alpha1.LabelServing],
		Profile: pod.Annotations[v1alpha1.AnnotationProfile],
	}
}

// List returns a group's members with their launcher pods, and the other launcher pods of
// its namespace, without those that have ended or are being deleted. Of the others only those
// that are marked by the profile may be changed: the rest may be the cache's own.
func List(ctx context.Context, reader client.Reader, group *routing.Group) (members []Member, others []*corev1.Pod, err error) {
	all, err := launchers(ctx, reader, group.Profile.Namespace)
	if err != nil {
		return nil, nil, err
	}
	byName, byUID := map[string]int{}, map[types.UID]int{}
	for i := range group.Members {
		m := &group.Members[i]
		members = append(members, Member{Name: m.Name, Starting: m.Starting})
		byName[m.Name] = i
		for _, pod := range m.Pods {
			byUID[pod.UID] = i
		}
	}
	for i := range all {
		pod := &all[i]
		if IsEnding(pod) {
			continue
		}
		at, is := byUID[pod.UID]
		if !is { // the caller need not know yet the pod that a migration just made
			at, is = byName[VM(pod)]
		}
		switch {
		case is:
			members[at].Pods = append(members[at].Pods, pod.DeepCopy())
		case MarkOf(pod).Profile == group.Profile.Name:
			others = append(others, pod.DeepCopy())
		default:
			others = append(others, pod)
		}
	}
	return members, others, nil
}

// VM returns the name of the VM that a launcher pod runs. Empty: none owns it.
func VM(pod metav1.Object) string {
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

// IsEnding returns whether a pod gets no new traffic any more.
func IsEnding(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// IsLauncher returns whether a pod runs a VM.
func IsLauncher(pod *corev1.Pod) bool { return pod.Labels[virtv1.AppLabel] == launcher }
