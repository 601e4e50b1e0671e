package pods

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/routing"
)

// ErrChanged says that a pod is not as it was read: read again.
var ErrChanged = errors.New("the pod changed meanwhile")

// Set gives a pod a mark, and the pod the API server's answer. Nothing is
// written when the pod has the mark already, or when it is gone. The error is
// ErrChanged when the pod is no longer as it was read: somebody else's change is
// never overwritten unseen. The pod needs its labels, and the mark's annotation.
func Set(ctx context.Context, writer client.Writer, pod *corev1.Pod, mark Mark) error {
	changes := changesFor(pod, mark)
	if changes == nil {
		return nil
	}
	err := routing.Patch(ctx, writer, pod, map[string]any{"metadata": changes})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case apierrors.IsConflict(err):
		return fmt.Errorf("patch pod %s/%s: %w: %w", pod.Namespace, pod.Name, ErrChanged, err)
	case err != nil:
		return fmt.Errorf("patch pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

// changesFor returns a merge patch of the pod's metadata, for the version that
// was read. Nil: there is nothing to change.
func changesFor(pod *corev1.Pod, mark Mark) map[string]any {
	labels, annotations := map[string]any{}, map[string]any{}
	change := func(to map[string]any, have map[string]string, key, want string) {
		if have[key] == want {
			return
		}
		to[key] = nil
		if want != "" {
			to[key] = want
		}
	}
	change(labels, pod.Labels, v1alpha1.LabelServing, mark.Serving)
	change(annotations, pod.Annotations, v1alpha1.AnnotationProfile, mark.Profile)
	if len(labels)+len(annotations) == 0 {
		return nil
	}
	return map[string]any{
		"uid": pod.UID, "resourceVersion": pod.ResourceVersion, "labels": labels, "annotations": annotations,
	}
}
