package pods

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
)

// Released returns the mark of a pod that no profile steers any more: the Service
// selects it. A pod without the label does not get it.
func Released(mark Mark) Mark {
	if mark.Serving == v1alpha1.ServingStandby {
		mark.Serving = v1alpha1.ServingActive
	}
	mark.Profile = ""
	return mark
}

// Release gives the pods of a profile back: those that name it, and those of
// VMs in members that name no profile.
func Release(ctx context.Context, c client.Client, profile types.NamespacedName, members map[string]bool) error {
	return release(ctx, c, profile.Namespace, func(pod *corev1.Pod) (Mark, bool) {
		mark := MarkOf(pod)
		ours := mark.Profile == profile.Name || mark.Profile == "" && members[VM(pod)]
		return Released(mark), ours
	})
}

// ReleaseOrphans gives back the pods of all namespaces whose profile does not steer
// a Service any more, as it was deleted or changed while no manager ran. Pods that no VMI
// owns are left alone: anybody may label a pod.
func ReleaseOrphans(ctx context.Context, c client.Client, steersService func(profile types.NamespacedName) bool) error {
	return release(ctx, c, "", func(pod *corev1.Pod) (Mark, bool) {
		mark := MarkOf(pod)
		orphan := VM(pod) != "" && mark.Profile != "" && !steersService(types.NamespacedName{Namespace: pod.Namespace, Name: mark.Profile})
		return Released(mark), orphan
	})
}

// release sets the marks that decide returns with true. It goes on after errors.
func release(ctx context.Context, c client.Client, namespace string, decide func(*corev1.Pod) (Mark, bool)) error {
	all, err := launchers(ctx, c, namespace)
	if err != nil {
		return err
	}
	var failed []error
	for i := range all {
		mark, ours := decide(&all[i])
		if ours && !IsEnding(&all[i]) && mark != MarkOf(&all[i]) {
			failed = append(failed, Set(ctx, c, all[i].DeepCopy(), mark))
		}
	}
	return errors.Join(failed...)
}
