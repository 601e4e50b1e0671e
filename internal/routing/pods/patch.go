package pods

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/routing"
)

// ErrChanged says that a pod is not as it was read: read again.
var ErrChanged = errors.New("the pod changed meanwhile")

// Set gives a pod a mark, and the pod the API server's answer. Nothing is
// written when the pod has the mark already, or when it is gone. The error is
// ErrChanged when what is to be changed is no longer as it was read.
func Set(ctx context.Context, writer client.Writer, pod *corev1.Pod, mark Mark) error {
	patch := patchFor(pod, mark)
	if len(patch) == 0 {
		return nil
	}
	raw, err := json.Marshal(patch)
	if err != nil {
		return fmt.Errorf("patch pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	err = writer.Patch(ctx, pod, client.RawPatch(types.JSONPatchType, raw), client.FieldOwner(routing.FieldOwner))
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case apierrors.IsInvalid(err), apierrors.IsConflict(err):
		return fmt.Errorf("patch pod %s/%s: %w: %w", pod.Namespace, pod.Name, ErrChanged, err)
	case err != nil:
		return fmt.Errorf("patch pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

// step is an operation of a JSON patch, RFC 6902.
type step struct {
	Op   string `json:"op"`
	Path string `json:"path"`
	// Value nil is null, by which test means absent.
	Value any `json:"value"`
}

// patchFor tests the old value of everything that it changes: another's change
// in between is not overwritten unseen. The resource version is not tested, for
// a pod's status changes all the time.
func patchFor(pod *corev1.Pod, mark Mark) []step {
	var out []step
	change := func(parent string, have map[string]string, key, want string) {
		old, is := have[key]
		if old == want && is == (want != "") {
			return
		}
		path := parent + "/" + strings.ReplaceAll(key, "/", "~1")
		if have == nil { // and so is the parent
			out = append(out, step{"test", parent, nil}, step{"add", parent, map[string]string{}})
		}
		test := step{"test", path, nil}
		if is {
			test.Value = old
		}
		out = append(out, test)
		if want == "" {
			out = append(out, step{Op: "remove", Path: path})
		} else {
			out = append(out, step{"add", path, want})
		}
	}
	change("/metadata/labels", pod.Labels, v1alpha1.LabelServing, mark.Serving)
	change("/metadata/labels", pod.Labels, v1alpha1.LabelFold, mark.Fold)
	change("/metadata/annotations", pod.Annotations, v1alpha1.AnnotationProfile, mark.Profile)
	if len(out) == 0 {
		return nil
	}
	return append([]step{{"test", "/metadata/uid", pod.UID}}, out...)
}
