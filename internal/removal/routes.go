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
// reach their VMs no more, or would name Services that nobody keeps up.
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
	services, err := r.services(ctx)
	if err != nil {
		return err
	}
	routes, err := r.routes(ctx)
	if err != nil {
		return err
	}
	if names := steeredRoutes(routes, services); len(names) > 0 {
		return fmt.Errorf("nobody would keep up what these routes name: %s. Give each route backends of your own "+
			"(kubectl apply --server-side --force-conflicts with spec.rules), and try again; or delete these profiles: "+
			"the route and the Services then stay as they are, and VMs that come later get none of its traffic", few(names))
	}
	return nil
}

// routes lists the routes of all kinds that the cluster has.
func (r *remover) routes(ctx context.Context) ([]unstructured.Unstructured, error) {
	var routes []unstructured.Unstructured
	for _, kind := range []v1alpha1.GroupTargetKind{
		v1alpha1.GroupHTTPRoute, v1alpha1.GroupGRPCRoute, v1alpha1.GroupTLSRoute, v1alpha1.GroupTCPRoute,
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
	services := &metav1.PartialObjectMetadataList{}
	services.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ServiceList"))
	err := r.list(ctx, services, client.HasLabels{gateway.LabelGroup})
	return services.Items, err
}

// waitOwned waits until the garbage collector has removed what belonged to profiles, or given
// it to the routes alone that name it: when the kind goes first, it never does either.
func (r *remover) waitOwned(ctx context.Context) error {
	if r.KeepObjects {
		return nil
	}
	var stay []string
	err := r.wait(ctx, "what profiles had made is gone", func(ctx context.Context) ([]string, error) {
		services, err := r.services(ctx)
		if err != nil {
			return nil, err
		}
		routes, err := r.routes(ctx)
		if err != nil {
			return nil, err
		}
		stay = staying(services)
		return owned(routes, services), nil
	})
	if err == nil && len(stay) > 0 {
		r.Say("left are Services of profiles that are gone, for the routes that name them: %s", few(stay))
	}
	return err
}
