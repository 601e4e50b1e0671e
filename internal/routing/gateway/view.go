package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/routing"
	"github.com/joulevirt/joulevirt/internal/routing/pods"
)

// LabelGroup is on the Services that are created for groups, and so on their EndpointSlices.
const LabelGroup = "joulevirt.io/group"

// view is what is observed of a group.
type view struct {
	group *routing.Group
	kind  schema.GroupVersionKind
	// route is nil when it is not generated yet.
	route *unstructured.Unstructured
	spec  routeSpec
	// parents are the entries of the route's status.
	parents []gatewayv1.RouteParentStatus
	// services by name are the profile's own.
	services map[string]*corev1.Service
	// ready are the pods among a Service's ready endpoints.
	ready   map[string]map[types.UID]bool
	members []pods.Member
	// wrote is true when something was written since it was observed.
	wrote bool
}

// routeSpec is what HTTPRoutes and GRPCRoutes have in common, as far as it matters.
type routeSpec struct {
	gatewayv1.CommonRouteSpec
	Hostnames []string `json:"hostnames"`
	Rules     []struct {
		BackendRefs []gatewayv1.BackendRef `json:"backendRefs"`
	} `json:"rules"`
}

func (w *Writer) observe(ctx context.Context, group *routing.Group) (*view, error) {
	kind, err := findKind(w.cached.RESTMapper(), group)
	if err != nil {
		return nil, err
	}
	v := &view{group: group, kind: kind}
	if err := w.readRoute(ctx, v); err != nil {
		return nil, err
	}
	if v.members, _, err = pods.List(ctx, w.cached, group); err != nil {
		return nil, err
	}
	if err := w.readServices(ctx, v); err != nil {
		return nil, err
	}
	return v, nil
}

// findKind returns the version of a group's kind that the cluster prefers.
func findKind(mapper meta.RESTMapper, group *routing.Group) (schema.GroupVersionKind, error) {
	kind := schema.GroupKind{Group: gatewayv1.GroupName, Kind: string(group.Target.Kind)}
	mapping, err := mapper.RESTMapping(kind)
	if meta.IsNoMatchError(err) {
		return schema.GroupVersionKind{}, routing.Refuse(v1alpha1.ReasonKindNotServed,
			"the cluster does not have the kind %s: install the Gateway API's CustomResourceDefinitions, or use another group.kind", kind)
	}
	if err != nil {
		return schema.GroupVersionKind{}, fmt.Errorf("find the version of %s: %w", kind, err)
	}
	return mapping.GroupVersionKind, nil
}

// routeKey names a route among those that were read.
type routeKey struct {
	kind string
	types.NamespacedName
}

func (v *view) routeKey() routeKey {
	return routeKey{v.kind.String(), types.NamespacedName{Namespace: v.group.Profile.Namespace, Name: v.group.Target.Name}}
}

// getRoute returns the route, or nil if it does not exist. The API server is asked only for what the
// watch of routes' metadata shows to be new: a group is looked at again and again.
func (w *Writer) getRoute(ctx context.Context, v *view) (*unstructured.Unstructured, error) {
	key := v.routeKey()
	known := &metav1.PartialObjectMetadata{}
	known.SetGroupVersionKind(v.kind)
	if err := w.cached.Get(ctx, key.NamespacedName, known); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("get the metadata of %s: %w", v.routeName(), err)
	}
	if read, ok := w.routes.Get(key); ok && read.(*unstructured.Unstructured).GetResourceVersion() == known.ResourceVersion {
		route := read.(*unstructured.Unstructured)
		if route.GetResourceVersion() == "" {
			return nil, nil
		}
		return route, nil
	}
	route := &unstructured.Unstructured{}
	route.SetGroupVersionKind(v.kind)
	switch err := w.live.Get(ctx, key.NamespacedName, route); {
	case apierrors.IsNotFound(err):
		w.routes.Add(key, &unstructured.Unstructured{})
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("get %s: %w", v.routeName(), err)
	}
	w.routes.Add(key, route)
	return route, nil
}

// readRoute reads the route, and refuses one that is not the profile's.
func (w *Writer) readRoute(ctx context.Context, v *view) error {
	route, err := w.getRoute(ctx, v)
	switch {
	case err != nil || route == nil:
		return err
	case !v.owns(route):
		return routing.Refuse(v1alpha1.ReasonForeignObject, "%s exists and does not belong to this profile: choose another group.name", v.routeName())
	}
	var content struct {
		Spec   routeSpec             `json:"spec"`
		Status gatewayv1.RouteStatus `json:"status"`
	}
	raw, err := route.MarshalJSON()
	if err == nil {
		err = json.Unmarshal(raw, &content)
	}
	if err != nil {
		return fmt.Errorf("decode %s: %w", v.routeName(), err)
	}
	v.route, v.spec, v.parents = route, content.Spec, content.Status.Parents
	return nil
}

func (v *view) routeName() string {
	return fmt.Sprintf("%s %s/%s", v.kind.Kind, v.group.Profile.Namespace, v.group.Target.Name)
}

// owns returns whether an object is this profile's.
func (v *view) owns(object metav1.Object) bool {
	owner := metav1.GetControllerOf(object)
	return owner != nil && owner.UID == v.group.UID
}

// readServices reads the group's Services and their endpoints.
func (w *Writer) readServices(ctx context.Context, v *view) error {
	namespace := client.InNamespace(v.group.Profile.Namespace)
	labelled := client.MatchingLabels{LabelGroup: groupLabel(v.group)}
	var services corev1.ServiceList
	if err := w.cached.List(ctx, &services, namespace, labelled); err != nil {
		return fmt.Errorf("list Services of profile %s: %w", v.group.Profile, err)
	}
	v.services = map[string]*corev1.Service{}
	for i := range services.Items {
		service := &services.Items[i]
		if v.owns(service) {
			v.services[service.Name] = service
		}
	}
	// EndpointSlices have the labels of their Service.
	var endpoints discoveryv1.EndpointSliceList
	if err := w.cached.List(ctx, &endpoints, namespace, labelled); err != nil {
		return fmt.Errorf("list EndpointSlices of profile %s: %w", v.group.Profile, err)
	}
	v.ready = map[string]map[types.UID]bool{}
	for i := range endpoints.Items {
		name := endpoints.Items[i].Labels[discoveryv1.LabelServiceName]
		if v.ready[name] == nil {
			v.ready[name] = map[types.UID]bool{}
		}
		for _, endpoint := range endpoints.Items[i].Endpoints {
			if endpoint.TargetRef != nil && ptr.Deref(endpoint.Conditions.Ready, true) {
				v.ready[name][endpoint.TargetRef.UID] = true
			}
		}
	}
	return nil
}

// isReachable returns whether a pod of the member is a ready endpoint of its Service.
func (v *view) isReachable(m *pods.Member) bool {
	name := serviceName(v.group, m.Name)
	return v.services[name] != nil && slices.ContainsFunc(m.Pods, func(pod *corev1.Pod) bool { return v.ready[name][pod.UID] })
}

// backends returns the weights of the route's backends.
func (v *view) backends() map[string]int64 {
	out := map[string]int64{}
	if v.route == nil || len(v.spec.Rules) == 0 {
		return out
	}
	for _, ref := range v.spec.Rules[0].BackendRefs {
		out[string(ref.Name)] = int64(ptr.Deref(ref.Weight, 1))
	}
	return out
}

// shares returns what the route gives each member that is reachable.
func (v *view) shares() map[string]float64 {
	out := map[string]float64{}
	backends, sum := v.backends(), 0.0
	for i := range v.members {
		m := &v.members[i]
		out[m.Name] = 0
		if v.isReachable(m) {
			out[m.Name] = float64(backends[serviceName(v.group, m.Name)])
			sum += out[m.Name]
		}
	}
	if sum > 0 {
		for name := range out {
			out[name] /= sum
		}
	}
	return out
}

// checkParents reads the conditions that the route's parents set for its newest
// generation. It returns which parent has not set them yet, and a Refusal when no
// parent accepts the route or one cannot use its backends.
func (v *view) checkParents() (waits string, refusal error) {
	if v.route == nil {
		return fmt.Sprintf("%s is not generated yet: no VM of the group is reachable", v.routeName()), nil
	}
	if len(v.spec.ParentRefs) == 0 {
		return fmt.Sprintf("%s has no parentRefs: no Gateway serves it", v.routeName()), nil
	}
	accepted := 0
	var rejected error
	for i := range v.spec.ParentRefs {
		parent := &v.spec.ParentRefs[i]
		observed := false
		for j := range v.parents {
			status := &v.parents[j]
			if !v.isSameParent(parent, &status.ParentRef) || !v.isCurrent(status.Conditions) {
				continue
			}
			observed = true
			failed := failedCondition(status.Conditions)
			if failed == nil || failed.Type != string(gatewayv1.RouteConditionAccepted) {
				accepted++
			}
			if failed == nil {
				continue
			}
			err := routing.Refuse(v1alpha1.ReasonRouteNotAccepted, "Gateway %s does not serve %s: %s is %s (%s): %s",
				v.parentName(parent), v.routeName(), failed.Type, failed.Status, failed.Reason, failed.Message)
			if failed.Type == string(gatewayv1.RouteConditionAccepted) {
				rejected = err
			} else {
				refusal = err
			}
		}
		if !observed {
			waits = fmt.Sprintf("waits until Gateway %s observes %s", v.parentName(parent), v.routeName())
		}
	}
	if accepted == 0 && waits == "" && rejected != nil {
		refusal = rejected
	}
	return waits, refusal
}

// failedCondition returns the condition by which a parent does not serve all of
// the route, or nil.
func failedCondition(conditions []metav1.Condition) *metav1.Condition {
	for _, bad := range []struct {
		kind   gatewayv1.RouteConditionType
		status metav1.ConditionStatus
	}{
		{gatewayv1.RouteConditionAccepted, metav1.ConditionFalse},
		{gatewayv1.RouteConditionResolvedRefs, metav1.ConditionFalse},
		{gatewayv1.RouteConditionPartiallyInvalid, metav1.ConditionTrue},
	} {
		if c := meta.FindStatusCondition(conditions, string(bad.kind)); c != nil && c.Status == bad.status {
			return c
		}
	}
	return nil
}

// isCurrent returns whether a parent's conditions are of the route's generation.
func (v *view) isCurrent(conditions []metav1.Condition) bool {
	c := meta.FindStatusCondition(conditions, string(gatewayv1.RouteConditionAccepted))
	return c != nil && c.ObservedGeneration >= v.route.GetGeneration()
}

func (v *view) isSameParent(a, b *gatewayv1.ParentReference) bool {
	return v.parentName(a) == v.parentName(b) &&
		ptr.Deref(a.Kind, "Gateway") == ptr.Deref(b.Kind, "Gateway") &&
		ptr.Deref(a.SectionName, "") == ptr.Deref(b.SectionName, "") &&
		ptr.Deref(a.Port, 0) == ptr.Deref(b.Port, 0)
}

func (v *view) parentName(parent *gatewayv1.ParentReference) string {
	return string(ptr.Deref(parent.Namespace, gatewayv1.Namespace(v.route.GetNamespace()))) + "/" + string(parent.Name)
}
