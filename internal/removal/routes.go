package removal

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/routing/gateway"
)

// checkRoutes refuses to delete profiles whose routes would go with them, as clients would
// no longer reach their VMs.
func (r *remover) checkRoutes(ctx context.Context) error {
	if r.KeepObjects {
		return nil
	}
	var profiles v1alpha1.VMNetworkProfileList
	if err := r.list(ctx, &profiles); err != nil {
		return err
	}
	if names := generating(profiles.Items); len(names) > 0 {
		return fmt.Errorf("routes that were generated from VMNetworkProfile %s would go with it, and with them the way of clients to its VMs: "+
			"give clients another way, delete these profiles, and try again", few(names))
	}
	return nil
}

// routes lists the routes of all kinds that the cluster has.
func (r *remover) routes(ctx context.Context) ([]unstructured.Unstructured, error) {
	var routes []unstructured.Unstructured
	for _, kind := range []v1alpha1.GroupTargetKind{
		v1alpha1.GroupHTTPRoute, v1alpha1.GroupGRPCRoute,
	} {
		mapping, err := r.client.RESTMapper().RESTMapping(schema.GroupKind{Group: gatewayv1.GroupName, Kind: string(kind)})
		if meta.IsNoMatchError(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("find the version of %s: %w", kind, err)
		}
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(mapping.GroupVersionKind)
		if err := r.list(ctx, list); err != nil {
			return nil, err
		}
		routes = append(routes, list.Items...)
	}
	return routes, nil
}

// services lists those that profiles made for routes.
func (r *remover) services(ctx context.Context) ([]metav1.PartialObjectMetadata, error) {
	services := metadataList(corev1.SchemeGroupVersion.WithKind("ServiceList"))
	err := r.list(ctx, services, client.HasLabels{gateway.LabelGroup})
	return services.Items, err
}

// waitOwned waits until the garbage collector has removed what belonged to profiles: when the
// kind goes first, it never does.
func (r *remover) waitOwned(ctx context.Context) error {
	if r.KeepObjects {
		return nil
	}
	return r.wait(ctx, "what profiles had made is gone", func(ctx context.Context) ([]string, error) {
		services, err := r.services(ctx)
		if err != nil {
			return nil, err
		}
		routes, err := r.routes(ctx)
		if err != nil {
			return nil, err
		}
		return owned(routes, services), nil
	})
}
