package routing

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
)

func TestRouteRefusals(t *testing.T) {
	equal := map[string]float64{"a": 0.5, "b": 0.5}
	t.Run("a route of somebody else", func(t *testing.T) {
		s := newRouteScene(t, template(), "a", "b")
		s.bareRoute()
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
	t.Run("a route without rules that was not applied server-side", func(t *testing.T) {
		s := newRouteScene(t, nil, "a", "b")
		bare := &gatewayv1.HTTPRoute{ObjectMeta: objectMeta(s.name, "web"), Spec: gatewayv1.HTTPRouteSpec{
			CommonRouteSpec: gatewayv1.CommonRouteSpec{ParentRefs: []gatewayv1.ParentReference{{Name: "edge"}}},
		}}
		s.must(suite.client.Create(t.Context(), bare, client.FieldOwner("kubectl-create")))
		_, err := s.writer.Write(t.Context(), s.group, equal)
		s.wantRefusal("Write", err, v1alpha1.ReasonForeignRules, "kubectl-create", "remove it", "--server-side")
		// What the message says helps.
		s.must(suite.client.Delete(t.Context(), bare))
		s.bareRoute()
		s.steer(equal)
	})
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
			s := newRouteScene(t, template(), "a", "b")
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
		s.group.Target.Route.ParentRefs = append(s.group.Target.Route.ParentRefs, v1alpha1.RouteParent{Name: "second"})
		s.write(equal)
		s.must(s.looks(t.Context()))
		if state := s.write(equal); state.Settled || state.Message == "" {
			t.Errorf("%+v, want that Gateway second is waited for", state)
		}
	})
}

func TestRouteNamesAnOlderRoute(t *testing.T) {
	equal := map[string]float64{"a": 0.5, "b": 0.5}
	s := newRouteScene(t, template(), "a", "b")
	s.group.Target.Route.Hostnames = []string{"rival.example"}
	older := &gatewayv1.HTTPRoute{ObjectMeta: objectMeta(s.name, "aaa-older"), Spec: gatewayv1.HTTPRouteSpec{
		CommonRouteSpec: gatewayv1.CommonRouteSpec{ParentRefs: []gatewayv1.ParentReference{{Name: "edge"}}},
		Hostnames:       []gatewayv1.Hostname{"rival.example"},
	}}
	s.must(suite.client.Create(t.Context(), older))
	s.eventually("the older route is named", func(ctx context.Context) error {
		if err := s.looks(ctx); err != nil {
			return err
		}
		s.clock.SetTime(s.clock.Now().Add(2 * time.Minute))
		_, err := s.writer.Write(ctx, s.group, equal)
		return wantReason(err, v1alpha1.ReasonRouteNotAccepted)
	})
	state, err := s.writer.Read(t.Context(), s.group)
	s.wantRefusal("Read", err, v1alpha1.ReasonRouteNotAccepted, s.name+"/aaa-older")
	s.wantShares(state, equal)

	s.must(suite.client.Delete(t.Context(), older))
	if _, err := s.writer.Read(t.Context(), s.group); err == nil {
		t.Error("all routes are listed anew within a minute")
	}
	s.clock.SetTime(s.clock.Now().Add(2 * time.Minute))
	s.steer(equal)
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
		"the selector of a Service": func() {
			s.spec(&corev1.Service{ObjectMeta: objectMeta(s.name, s.serviceOf("a"))}, map[string]any{"selector": map[string]any{"app": "other"}})
		},
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
}
