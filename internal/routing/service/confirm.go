package service

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// confirm asks the API server itself whether pods serve, before others are put on
// standby. The cache may lag behind: that a pod was put on standby a moment ago, by
// us or by the manager before, need not be in it yet, and then nobody would be
// left. It returns what is waited for; empty: nothing is.
func (w *Writer) confirm(ctx context.Context, v *view, serving []*pod) (waits string, err error) {
	key := client.ObjectKeyFromObject(v.service)
	all, err := readyEndpoints(ctx, w.live, key)
	if err != nil {
		return "", err
	}
	ready := map[types.UID]bool{}
	for _, endpoint := range all {
		if endpoint.TargetRef != nil {
			ready[endpoint.TargetRef.UID] = true
		}
	}
	// What was just taken out may still be an endpoint: labels tell it.
	var list metav1.PartialObjectMetadataList
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodList"))
	if err := w.live.List(ctx, &list, client.InNamespace(key.Namespace), client.MatchingLabels(v.service.Spec.Selector)); err != nil {
		return "", fmt.Errorf("list pods of Service %s: %w", key, err)
	}
	selected := map[types.UID]bool{}
	for i := range list.Items {
		selected[list.Items[i].UID] = list.Items[i].DeletionTimestamp == nil
	}
	for _, p := range serving {
		if !ready[p.UID] || !selected[p.UID] {
			return fmt.Sprintf("waits until it is known that pod %s serves: what is known of it is old", p.Name), nil
		}
	}
	return "", nil
}
