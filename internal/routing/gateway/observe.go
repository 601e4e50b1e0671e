package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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

// LabelGroup is on the Services that are made for groups, and so on their EndpointSlices.
const LabelGroup = "joulevirt.io/group"

// view is what is known of a group at one time.
type view struct {
	group *routing.Group
	kind  schema.GroupVersionKind
	// route is nil when it has yet to be generated.
	route *unstructured.Unstructured
	spec  routeSpec
	// parents say what became of the route there.
	parents []gatewayv1.RouteParentStatus
	// services are the profile's own, and those of a former one that stayed with the route,
	// by name.
	services map[string]*corev1.Service
	// ready are the pods among a Service's ready endpoints.
	ready   map[string]map[types.UID]bool
	members []member
	// others are launcher pods that are no members'.
	others []*corev1.Pod
	// folds are the numbers of folds by the names of their Services.
	folds map[string]int
	// wrote is true when something was written since.
	wrote bool
}

// member is a VM of the group with its pods that may run.
type member struct {
	name string
	// starting members are never ready.
	starting, ready bool
	pods            []*corev1.Pod
}

// routeSpec is what all kinds of routes have in common, as far as it matters.
type routeSpec struct {
	gatewayv1.CommonRouteSpec
	Hostnames []string    `json:"hostnames"`
	Rules     []routeRule `json:"rules"`
}

type routeRule struct {
	Matches     []any                  `json:"matches"`
	BackendRefs []gatewayv1.BackendRef `json:"backendRefs"`
}

// names tells whether some rule has a backend of that name.
func (s *routeSpec) names(backend string) bool {
	return slices.ContainsFunc(s.Rules, func(rule routeRule) bool {
		return slices.ContainsFunc(rule.BackendRefs, func(ref gatewayv1.BackendRef) bool { return string(ref.Name) == backend })
	})
}

func (w *Writer) observe(ctx context.Context, group *routing.Group) (*view, error) {
	kind, err := kindOf(w.cached.RESTMapper(), group)
	if err != nil {
		return nil, err
	}
	v := &view{group: group, kind: kind, folds: foldNumbers(group)}
	if err := w.readRoute(ctx, v); err != nil {
		return nil, err
	}
	launchers, err := pods.List(ctx, w.cached, group)
	if err != nil {
		return nil, err
	}
	v.addPods(launchers)
	if err := w.readServices(ctx, v); err != nil {
		return nil, err
	}
	return v, nil
}

// readRoute reads the route, and refuses one that is not ours to write.
func (w *Writer) readRoute(ctx context.Context, v *view) error {
	key := types.NamespacedName{Namespace: v.group.Profile.Namespace, Name: v.group.Target.Name}
	route := &unstructured.Unstructured{}
	route.SetGroupVersionKind(v.kind)
	err := w.live.Get(ctx, key, route)
	switch {
	case apierrors.IsNotFound(err) && v.generated():
		return nil
	case apierrors.IsNotFound(err):
		return routing.Refuse(v1alpha1.ReasonGroupNotFound,
			"%s %s does not exist: create it without rules, or give group.route to have it generated", v.kind.Kind, key)
	case err != nil:
		return fmt.Errorf("get %s %s: %w", v.kind.Kind, key, err)
	}
	v.route = route
	var content struct {
		Spec   routeSpec             `json:"spec"`
		Status gatewayv1.RouteStatus `json:"status"`
	}
	raw, err := route.MarshalJSON()
	if err == nil {
		err = json.Unmarshal(raw, &content)
	}
	if err != nil {
		return fmt.Errorf("decode %s %s: %w", v.kind.Kind, key, err)
	}
	v.spec, v.parents = content.Spec, content.Status.Parents
	return v.checkOwner(key)
}

func (v *view) checkOwner(key types.NamespacedName) error {
	if v.generated() {
		if !v.owns(v.route) {
			return routing.Refuse(v1alpha1.ReasonForeignObject,
				"%s %s exists and is not this profile's: choose another group.name, or remove group.route to steer a route without rules", v.kind.Kind, key)
		}
		return nil
	}
	if owner := routing.ForeignManager(v.route, "f:spec", "f:rules"); owner != "" {
		return routing.Refuse(v1alpha1.ReasonForeignRules,
			"%s %s has rules of %q, which are not overwritten (a route that is not created by server-side apply has rules, by default, of who created it): "+
				"remove it and make it anew by kubectl apply --server-side without spec.rules, or give group.route to have a route generated",
			v.kind.Kind, key, owner)
	}
	return nil
}

// owns tells whether an object is this profile's.
func (v *view) owns(object metav1.Object) bool {
	owner := metav1.GetControllerOf(object)
	return owner != nil && owner.UID == v.group.UID
}

// stayed tells whether a Service is of a profile that is gone, and stayed with the route
// that names it.
func (v *view) stayed(service *corev1.Service) bool {
	return service.Labels[LabelGroup] != "" && metav1.GetControllerOf(service) == nil && v.heldByRoute(service)
}

// made selects what was made for the group. Services that stayed with a route have the label
// of their former profile's group; with one that is generated none does.
func (v *view) made() client.ListOption {
	if v.generated() {
		return client.MatchingLabels{LabelGroup: groupLabel(v.group)}
	}
	return client.HasLabels{LabelGroup}
}

// heldByRoute tells whether a Service stays for as long as the route does.
func (v *view) heldByRoute(service *corev1.Service) bool {
	return !v.generated() && v.route != nil && slices.ContainsFunc(service.OwnerReferences, func(owner metav1.OwnerReference) bool {
		return owner.UID == v.route.GetUID()
	})
}

// generated tells whether the route comes from the profile's template.
func (v *view) generated() bool { return v.group.Target.Route != nil }

func (v *view) addPods(launchers []pods.Pod) {
	index := map[string]int{}
	for i := range v.group.Members {
		index[v.group.Members[i].Name] = i
		v.members = append(v.members, member{name: v.group.Members[i].Name, starting: v.group.Members[i].Starting})
	}
	for _, l := range launchers {
		if l.Member == "" {
			v.others = append(v.others, l.Pod)
			continue
		}
		m := &v.members[index[l.Member]]
		m.pods = append(m.pods, l.Pod)
		m.ready = m.ready || !m.starting && routing.IsReady(l.Pod)
	}
}

// readServices reads the profile's Services and their endpoints.
func (w *Writer) readServices(ctx context.Context, v *view) error {
	namespace := client.InNamespace(v.group.Profile.Namespace)
	made := v.made()
	var services corev1.ServiceList
	if err := w.cached.List(ctx, &services, namespace, made); err != nil {
		return fmt.Errorf("list Services of profile %s: %w", v.group.Profile, err)
	}
	v.services = map[string]*corev1.Service{}
	for i := range services.Items {
		service := &services.Items[i]
		if v.owns(service) && service.Labels[LabelGroup] == groupLabel(v.group) || v.stayed(service) {
			v.services[service.Name] = service
		}
	}
	// The labels of a Service are those of its slices.
	var endpoints discoveryv1.EndpointSliceList
	if err := w.cached.List(ctx, &endpoints, namespace, made); err != nil {
		return fmt.Errorf("list EndpointSlices of profile %s: %w", v.group.Profile, err)
	}
	v.ready = map[string]map[types.UID]bool{}
	for i := range endpoints.Items {
		name := endpoints.Items[i].Labels[discoveryv1.LabelServiceName]
		if v.services[name] == nil {
			continue
		}
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

// reachable counts a member's pods among the ready endpoints of a Service.
func (v *view) reachable(m *member, service string) int {
	count := 0
	for _, pod := range m.pods {
		if v.ready[service][pod.UID] {
			count++
		}
	}
	return count
}

// backends are those of the route, without what somebody else put there.
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

// shares returns what the route gives each member that can be reached.
func (v *view) shares() map[string]float64 {
	out := map[string]float64{}
	for i := range v.members {
		out[v.members[i].name] = 0
	}
	sum := 0.0
	for service, weight := range v.backends() {
		total := len(v.ready[service])
		for i := range v.members {
			if count := v.reachable(&v.members[i], service); count > 0 {
				share := float64(weight) * float64(count) / float64(total)
				out[v.members[i].name] += share
				sum += share
			}
		}
	}
	if sum > 0 {
		for name := range out {
			out[name] /= sum
		}
	}
	return out
}
