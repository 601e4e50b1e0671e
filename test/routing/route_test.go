package routing

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
)

// serviceOf returns the name of a VM's own Service, by its selector.
func (s *scene) serviceOf(vm string) string {
	s.Helper()
	var list corev1.ServiceList
	s.must(suite.client.List(s.Context(), &list, client.InNamespace(s.name)))
	for i := range list.Items {
		if list.Items[i].Spec.Selector[virtv1.VirtualMachineInstanceIDLabel] == vm {
			return list.Items[i].Name
		}
	}
	return "no Service of " + vm
}

func (s *routeScene) wantWeights(want map[string]int32) {
	s.Helper()
	if diff := cmp.Diff(want, s.weights()); diff != "" {
		s.Errorf("weights (-want +got):\n%s", diff)
	}
}

func TestRouteIsGeneratedAndFollows(t *testing.T) {
	s := newRouteScene(t, template(), "a", "b", "c")
	s.group.Target.Route.Matches = []runtime.RawExtension{{Raw: []byte(`{"path":{"type":"PathPrefix","value":"/shop"}}`)}}
	s.group.Target.Route.Filters = []runtime.RawExtension{{Raw: []byte(`{"type":"RequestHeaderModifier","requestHeaderModifier":{"add":[{"name":"x","value":"y"}]}}`)}}
	state, err := s.writer.Read(t.Context(), s.group)
	s.must(err)
	s.wantShares(state, map[string]float64{"a": 0, "b": 0, "c": 0})
	if state.Settled {
		t.Error("before the first Write it is settled")
	}

	s.steer(map[string]float64{"a": 0.5, "b": 0.3, "c": 0.2})
	s.wantWeights(map[string]int32{"a": 500, "b": 300, "c": 200})
	route, err := s.route(t.Context())
	s.must(err)
	rule := route.Spec.Rules[0]
	if len(route.Spec.Rules) != 1 || *rule.Matches[0].Path.Value != "/shop" || len(rule.Filters) != 1 ||
		route.Spec.Hostnames[0] != "shop.example" || route.OwnerReferences[0].UID != s.group.UID {
		t.Errorf("the route is not the template's: %+v", route.Spec)
	}

	before := s.versions()
	state = s.steer(map[string]float64{"a": 0.5, "b": 0.3, "c": 0.2})
	s.wantShares(state, map[string]float64{"a": 0.5, "b": 0.3, "c": 0.2})
	if state.Reverted {
		t.Errorf("nobody reverted: %+v", state)
	}
	s.unchangedRoute(before)

	s.group.Target.Route.Filters = nil
	s.steer(map[string]float64{"b": 1})
	s.wantWeights(map[string]int32{"a": 0, "b": 1000, "c": 0})
	if route, err = s.route(t.Context()); err != nil || len(route.Spec.Rules[0].Filters) != 0 {
		t.Errorf("filters that the template has no more stay: %v, %v", route.Spec.Rules[0].Filters, err)
	}
	s.must(s.writer.Release(t.Context(), s.group))
	s.wantWeights(map[string]int32{"a": 334, "b": 333, "c": 333})
}

func (s *routeScene) unchangedRoute(before map[string]string) {
	s.Helper()
	if diff := cmp.Diff(before, s.versions()); diff != "" {
		s.Errorf("objects were written (-before +after):\n%s", diff)
	}
}

func TestRouteFollowsReadiness(t *testing.T) {
	s := newRouteScene(t, template(), "a", "b", "c")
	s.group.Target.MinActive = 2
	s.steer(map[string]float64{"a": 0.6, "b": 0.4})
	s.ready("a", false)
	s.eventuallyWeights(map[string]float64{"a": 0.6, "b": 0.4}, map[string]int32{"a": 0, "b": 500, "c": 500})
	s.ready("b", false)
	s.eventuallyWeights(map[string]float64{"a": 0.6, "b": 0.4}, map[string]int32{"a": 0, "b": 0, "c": 1000})
	s.ready("c", false)
	s.eventuallyNobody()
	s.wantWeights(map[string]int32{"a": 0, "b": 0, "c": 1000}) // left as it was
	s.ready("a", true)
	s.eventuallyWeights(map[string]float64{"a": 0.6, "b": 0.4}, map[string]int32{"a": 1000, "b": 0, "c": 0})
}

func TestRouteMembersComeAndGo(t *testing.T) {
	s := newRouteScene(t, template(), "a", "b")
	s.steer(map[string]float64{"a": 0.5, "b": 0.5})
	gone := s.serviceOf("b")

	// A new VM is in the route once it can be reached, and those before it keep
	// what they have until then.
	s.vms("c")
	s.ready("c", true)
	s.steer(map[string]float64{"a": 0.5, "c": 0.5})
	s.wantWeights(map[string]int32{"a": 500, "b": 0, "c": 500})

	members := s.group.Members
	s.group.Members = append(members[:1:1], members[2])
	s.must(s.looks(t.Context()))
	state := s.write(map[string]float64{"a": 0.5, "c": 0.5})
	if state.Settled {
		t.Error("settled before the Gateway looked at the route without b")
	}
	s.write(map[string]float64{"a": 0.5, "c": 0.5})
	service := &corev1.Service{}
	s.must(suite.client.Get(t.Context(), client.ObjectKey{Namespace: s.name, Name: gone}, service))
	s.steer(map[string]float64{"a": 0.5, "c": 0.5})
	if err := suite.client.Get(t.Context(), client.ObjectKeyFromObject(service), service); !apierrors.IsNotFound(err) {
		t.Errorf("the Service of a VM that left: %v, want that it is gone", err)
	}
	s.wantWeights(map[string]int32{"a": 500, "c": 500})
}

// A GRPCRoute is like an HTTPRoute, and its Services speak HTTP/2.
func TestGRPCRoute(t *testing.T) {
	s := newRouteScene(t, template(), "a", "b")
	s.group.Target.Kind, s.group.Target.Route.Hostnames = v1alpha1.GroupGRPCRoute, []string{"grpc.example"}
	s.eventually("the route is written", func(ctx context.Context) error {
		state, err := s.writer.Write(ctx, s.group, map[string]float64{"a": 0.25, "b": 0.75})
		if err == nil && state.Shares["b"] != 0.75 {
			err = fmt.Errorf("shares %v: %s", state.Shares, state.Message)
		}
		return err
	})
	if protocol := s.service(s.serviceOf("b")).Spec.Ports[0].AppProtocol; protocol == nil || *protocol != "kubernetes.io/h2c" {
		t.Errorf("the Service's protocol is %v", protocol)
	}
}

func TestRouteRefusals(t *testing.T) {
	equal := map[string]float64{"a": 0.5, "b": 0.5}
	t.Run("a route of somebody else", func(t *testing.T) {
		s := newRouteScene(t, template(), "a", "b")
		s.must(suite.client.Create(t.Context(), &gatewayv1.HTTPRoute{ObjectMeta: objectMeta(s.name, "web")}))
		before := s.versions()
		_, err := s.writer.Write(t.Context(), s.group, equal)
		s.wantRefusal("Write", err, v1alpha1.ReasonForeignObject, "HTTPRoute "+s.name+"/web")
		s.must(s.writer.Release(t.Context(), s.group))
		s.unchangedRoute(before)
	})
	t.Run("a Service of somebody else", func(t *testing.T) {
		s := newRouteScene(t, template(), "a", "b")
		s.steer(equal)
		name := s.serviceOf("b")
		s.must(suite.client.Delete(t.Context(), &corev1.Service{ObjectMeta: objectMeta(s.name, name)}))
		s.must(suite.client.Create(t.Context(), &corev1.Service{
			ObjectMeta: objectMeta(s.name, name), Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 1}}},
		}))
		before := s.versions()
		_, err := s.writer.Write(t.Context(), s.group, equal)
		s.wantRefusal("Write", err, v1alpha1.ReasonForeignObject, "Service "+s.name+"/"+name)
		s.unchangedRoute(before)
	})
	s := newRouteScene(t, template(), "a", "b")
	for name, change := range map[string]func(*v1alpha1.RouteTemplate){
		"a value that is not allowed": func(r *v1alpha1.RouteTemplate) {
			r.Matches = []runtime.RawExtension{{Raw: []byte(`{"path":{"type":"Nonsense","value":"/"}}`)}}
		},
		"a field that does not exist": func(r *v1alpha1.RouteTemplate) {
			r.Filters = []runtime.RawExtension{{Raw: []byte(`{"nonsense":1}`)}}
		},
		"a type that is not allowed": func(r *v1alpha1.RouteTemplate) {
			r.Matches = []runtime.RawExtension{{Raw: []byte(`["path"]`)}}
		},
		"a host name that is none": func(r *v1alpha1.RouteTemplate) { r.Hostnames = []string{"not a host"} },
	} {
		t.Run(name, func(t *testing.T) {
			s.group.Target.Route = template()
			change(s.group.Target.Route)
			s.eventually("the API server refuses", func(ctx context.Context) error {
				_, err := s.writer.Write(ctx, s.group, equal)
				return wantReason(err, v1alpha1.ReasonRouteInvalid)
			})
		})
	}
}

func TestRouteStatus(t *testing.T) {
	equal := map[string]float64{"a": 0.5, "b": 0.5}
	s := newRouteScene(t, template(), "a", "b")
	s.group.Target.Route.Hostnames = []string{"status.example"}
	s.steer(equal)
	no := func(kind, reason string) metav1.Condition {
		return metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: reason, Message: "for a reason"}
	}
	yes := metav1.Condition{Type: "Accepted", Status: metav1.ConditionTrue, Reason: "Accepted"}
	for _, bad := range [][]metav1.Condition{
		{no("Accepted", "NotAllowedByListeners")},
		{yes, no("ResolvedRefs", "BackendNotFound")},
		{yes, {Type: "PartiallyInvalid", Status: metav1.ConditionTrue, Reason: "UnsupportedValue", Message: "for a reason"}},
	} {
		last := bad[len(bad)-1]
		t.Run(last.Type, func(t *testing.T) {
			s.must(s.looks(t.Context(), bad...))
			state, err := s.writer.Read(t.Context(), s.group)
			s.wantRefusal("Read", err, v1alpha1.ReasonRouteNotAccepted, s.name+"/edge", last.Reason, "for a reason")
			s.wantShares(state, equal)
		})
	}
	t.Run("a parent that was not yet asked", func(t *testing.T) {
		s.must(s.looks(t.Context()))
		s.group.Target.Route.ParentRefs = append(s.group.Target.Route.ParentRefs, runtime.RawExtension{Raw: []byte(`{"name":"second"}`)})
		s.write(equal)
		s.must(s.looks(t.Context()))
		if state := s.write(equal); state.Settled || state.Message == "" {
			t.Errorf("%+v, want that Gateway second is waited for", state)
		}
	})
}

func TestRouteTellsReversions(t *testing.T) {
	shares := map[string]float64{"a": 0.75, "b": 0.25}
	s := newRouteScene(t, template(), "a", "b")
	s.group.Target.Route.Hostnames = []string{"reverted.example"}
	s.steer(shares)
	route := func() *gatewayv1.HTTPRoute { return &gatewayv1.HTTPRoute{ObjectMeta: objectMeta(s.name, "web")} }
	for name, revert := range map[string]func(){
		"weights": func() {
			s.spec(route(), map[string]any{"rules": []any{map[string]any{"backendRefs": []any{map[string]any{"name": s.serviceOf("b"), "port": 8080}}}}})
		},
		"host names": func() { s.spec(route(), map[string]any{"hostnames": []any{"elsewhere.example"}}) },
	} {
		t.Run(name, func(t *testing.T) {
			revert()
			read, err := s.writer.Read(t.Context(), s.group)
			s.must(err)
			written := s.write(shares)
			if !read.Reverted || !written.Reverted || read.RevertedBy != "kubectl-edit" || written.RevertedBy != "kubectl-edit" {
				t.Errorf("Read %+v, Write %+v, want both to say that kubectl-edit did it", read, written)
			}
			if again := s.steer(shares); again.Reverted {
				t.Errorf("after it was written anew: %+v", again)
			}
			s.wantWeights(map[string]int32{"a": 750, "b": 250})
		})
	}
	s.spec(s.service(s.serviceOf("a")), map[string]any{"selector": map[string]any{"app": "other"}})
	s.eventually("a member's Service is corrected", func(ctx context.Context) error {
		if _, err := s.writer.Write(ctx, s.group, shares); err != nil {
			return err
		}
		if name := s.serviceOf("a"); strings.HasPrefix(name, "no ") {
			return errors.New(name)
		}
		return nil
	})
	s.wantShares(s.steer(shares), shares)
}

// The 17th member: nothing is written, and Release spreads the traffic over those that are in
// the route.
func TestRouteRefusesTooManyMembers(t *testing.T) {
	s := newRouteScene(t, template())
	s.group.Target.Route.Hostnames = []string{"many.example"}
	shares, equal := map[string]float64{}, map[string]int32{}
	for i := range 16 {
		vm := fmt.Sprintf("vm-%02d", i)
		s.vms(vm)
		shares[vm], equal[vm] = float64(i), 62
	}
	s.steer(shares)
	s.vms("a-17th")
	before := s.versions()
	_, readErr := s.writer.Read(t.Context(), s.group)
	_, writeErr := s.writer.Write(t.Context(), s.group, map[string]float64{"vm-00": 1})
	for call, err := range map[string]error{"Read": readErr, "Write": writeErr} {
		s.wantRefusal(call, err, v1alpha1.ReasonTooManyMembers, "17 VMs", "HTTPRoute "+s.name+"/web", "16 backends")
	}
	s.unchangedRoute(before)
	s.must(s.writer.Release(t.Context(), s.group))
	for i := range 8 { // the remainder of 1000 / 16
		equal[fmt.Sprintf("vm-%02d", i)] = 63
	}
	s.wantWeights(equal)
}

func (s *routeScene) service(name string) *corev1.Service {
	s.Helper()
	service := &corev1.Service{}
	s.must(suite.client.Get(s.Context(), client.ObjectKey{Namespace: s.name, Name: name}, service))
	return service
}
