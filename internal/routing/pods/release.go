package pods

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
)

// Released returns the mark of a pod that no profile steers any more: what a
// Service selects, and in no fold. A pod without the label does not get it.
func Released(mark Mark) Mark {
	if mark.Serving == v1alpha1.ServingStandby {
		mark.Serving = v1alpha1.ServingActive
	}
	mark.Fold, mark.Profile = "", ""
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

// ReleaseOrphans gives back the pods of a namespace, or of all when it is empty,
// whose profile does not steer them any more, as is found when the manager was
// away when a profile went or changed. kindOf returns the kind of a profile's
// group; empty: the profile is gone or has none.
func ReleaseOrphans(ctx context.Context, c client.Client, namespace string, kindOf func(profile types.NamespacedName) v1alpha1.GroupTargetKind) error {
	return release(ctx, c, namespace, func(pod *corev1.Pod) (Mark, bool) {
		mark := MarkOf(pod)
		if mark.Profile == "" {
			return mark, false
		}
		wanted := Released(mark)
		switch kindOf(types.NamespacedName{Namespace: pod.Namespace, Name: mark.Profile}) {
		case "":
		case v1alpha1.GroupService:
			wanted.Serving = mark.Serving
		default:
			wanted.Fold = mark.Fold
		}
		if wanted.Serving == v1alpha1.ServingStandby || wanted.Fold != "" {
			wanted.Profile = mark.Profile
		}
		return wanted, true
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
		if ours && !over(&all[i]) && mark != MarkOf(&all[i]) {
			failed = append(failed, Set(ctx, c, all[i].DeepCopy(), mark))
		}
	}
	return errors.Join(failed...)
}
