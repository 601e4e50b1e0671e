package gateway

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/routing"
	"github.com/joulevirt/joulevirt/internal/routing/pods"
)

// reverted tells whether somebody else changed what was written, and who.
func (w *Writer) reverted(ctx context.Context, v *view, services map[string]map[string]string) (bool, string, error) {
	if is, by := v.routeReverted(); is {
		return true, by, nil
	}
	if is, by, err := w.podReverted(ctx, v); is || err != nil {
		return is, by, err
	}
	for _, name := range slices.Sorted(maps.Keys(services)) {
		have := v.services[name]
		if have == nil || v.sameService(have, services[name]) {
			continue
		}
		// Only the API server knows for sure who owns which field.
		var service corev1.Service
		err := w.live.Get(ctx, client.ObjectKeyFromObject(have), &service)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return false, "", fmt.Errorf("get Service %s/%s, which somebody changed: %w", have.Namespace, name, err)
		}
		for _, field := range []string{"f:selector", "f:ports"} {
			if !ours(&service, "f:spec", field) {
				return true, routing.ForeignManager(&service, "f:spec", field), nil
			}
		}
	}
	return false, "", nil
}

// routeReverted looks at who owns the route's fields. Rules that somebody else
// owns on a route that was not generated are never taken back: see checkOwner.
func (v *view) routeReverted() (bool, string) {
	if v.route == nil {
		return false, ""
	}
	fields := []string{"f:rules"}
	switch {
	case !v.generated():
		if v.route.GetAnnotations()[v1alpha1.AnnotationProfile] == "" {
			return false, "" // it was never ours
		}
	case len(v.group.Target.Route.Hostnames) > 0 && len(v.spec.Hostnames) > 0:
		fields = append(fields, "f:parentRefs", "f:hostnames")
	default:
		fields = append(fields, "f:parentRefs")
	}
	for _, field := range fields {
		if !ours(v.route, "f:spec", field) {
			return true, routing.ForeignManager(v.route, "f:spec", field)
		}
	}
	return false, ""
}

// podReverted finds a pod that was put into a fold and is in none of ours.
func (w *Writer) podReverted(ctx context.Context, v *view) (bool, string, error) {
	lost := func(pod *corev1.Pod) bool {
		mark := pods.MarkOf(pod)
		_, known := v.folds[mark.Fold]
		return mark.Profile == v.group.Profile.Name && mark.Serving != v1alpha1.ServingStandby && !known
	}
	for i := range v.members {
		for _, pod := range v.members[i].pods {
			if !lost(pod) {
				continue
			}
			// The cache may lag behind, and need not keep who owns what.
			var now corev1.Pod
			err := w.live.Get(ctx, client.ObjectKeyFromObject(pod), &now)
			if client.IgnoreNotFound(err) != nil {
				return false, "", fmt.Errorf("get pod %s/%s, which somebody changed: %w", pod.Namespace, pod.Name, err)
			}
			if err == nil && lost(&now) {
				return true, routing.ForeignManager(&now, "f:metadata", "f:labels", "f:"+v1alpha1.LabelFold), nil
			}
		}
	}
	return false, "", nil
}

// ours tells whether we own a field, alone or with others who want the same.
func ours(object client.Object, path ...string) bool {
	return slices.Contains(routing.FieldManagers(object, path...), routing.FieldOwner)
}
