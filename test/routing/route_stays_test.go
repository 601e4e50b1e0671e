package routing

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/routing"
)

// A route that somebody made names the profile's Services: they stay with it when the profile
// goes, as clients would reach nobody without them.
func TestARouteIsServedWithoutItsProfile(t *testing.T) {
	s := newRouteScene(t, nil, "a", "b")
	s.bareRoute()
	s.steer(map[string]float64{"a": 0.75, "b": 0.25})
	named := s.services()
	s.removeProfile()
	s.must(s.writer.Release(t.Context(), s.group))
	s.staysWithRoute(named)
	s.wantWeights(map[string]int32{"a": 500, "b": 500})

	t.Run("a new profile takes them over, and removes those of VMs that left", func(t *testing.T) {
		s.makeProfile()
		s.group.Members = s.group.Members[:1]
		s.eventually("the Services are the new profile's", func(ctx context.Context) error {
			if err := s.looks(ctx); err != nil {
				return err
			}
			state, err := s.writer.Write(ctx, s.group, map[string]float64{"a": 1})
			if left := s.services(); err == nil && (!state.Settled || len(left) != 1) {
				err = fmt.Errorf("Services %v: %s", left, state.Message)
			}
			return err
		})
		if owner := metav1.GetControllerOf(s.service(s.serviceOf("a"))); owner == nil || owner.UID != s.group.UID {
			t.Errorf("the Service is of %+v", owner)
		}
	})
	t.Run("rules of one's own free the route of them", func(t *testing.T) {
		s.eventually("the profile is left for good", func(ctx context.Context) error {
			s.apply("gitops", map[string]any{
				"parentRefs": []any{map[string]any{"name": "edge"}},
				"rules":      []any{map[string]any{"backendRefs": []any{map[string]any{"name": "web", "port": int64(80)}}}},
			})
			_, err := s.writer.Read(ctx, s.group)
			return wantReason(err, v1alpha1.ReasonForeignRules)
		})
		s.must(s.writer.Release(t.Context(), s.group))
		if left := s.services(); len(left) > 0 {
			t.Errorf("Services %v are left", left)
		}
		route, err := s.route(t.Context())
		s.must(err)
		if mark := route.GetAnnotations()[v1alpha1.AnnotationProfile]; mark != "" || len(route.Spec.Rules) != 1 || route.Spec.Rules[0].BackendRefs[0].Name != "web" {
			t.Errorf("the route is marked with %q, with rules %+v", mark, route.Spec.Rules)
		}
		for _, owner := range route.GetManagedFields() {
			if owner.Manager == routing.FieldOwner {
				t.Errorf("fields of the route are the product's still: %s", owner.FieldsV1)
			}
		}
	})
}

// Where the product is gone too, nobody but Kubernetes removes them.
func TestServicesGoWithTheRoute(t *testing.T) {
	s := newRouteScene(t, nil, "a", "b")
	s.bareRoute()
	s.steer(map[string]float64{"a": 0.5, "b": 0.5})
	named := s.services()
	s.removeProfile()
	s.staysWithRoute(named)
	s.must(suite.client.Delete(t.Context(), &gatewayv1.HTTPRoute{ObjectMeta: objectMeta(s.name, "web")}))
	s.eventually("the Services went with the route", func(context.Context) error {
		if left := s.services(); len(left) > 0 {
			return fmt.Errorf("left: %v", left)
		}
		return nil
	})
}

func (s *routeScene) removeProfile() {
	s.Helper()
	s.must(suite.client.Delete(s.Context(), &v1alpha1.VMNetworkProfile{ObjectMeta: objectMeta(s.name, "web")}))
}

// staysWithRoute waits until the garbage collector has looked at Services whose profile went.
func (s *routeScene) staysWithRoute(names []string) {
	s.Helper()
	route, err := s.route(s.Context())
	s.must(err)
	s.eventually("the Services are the route's", func(context.Context) error {
		for _, name := range names {
			owners := s.service(name).OwnerReferences
			if len(owners) != 1 || owners[0].UID != route.UID {
				return fmt.Errorf("Service %s is of %+v", name, owners)
			}
		}
		return nil
	})
}

// services names those of groups.
func (s *routeScene) services() []string {
	s.Helper()
	var list corev1.ServiceList
	s.must(suite.client.List(s.Context(), &list, client.InNamespace(s.name), client.HasLabels{"joulevirt.io/group"}))
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names
}

func (s *routeScene) service(name string) *corev1.Service {
	s.Helper()
	service := &corev1.Service{}
	s.must(suite.client.Get(s.Context(), client.ObjectKey{Namespace: s.name, Name: name}, service))
	return service
}
