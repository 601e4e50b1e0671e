package routing

import (
	"context"
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

// KubeVirt before 1.7 has no label of its own for a VM's identity.
func TestRouteWithOlderKubeVirt(t *testing.T) {
	s := newRouteScene(t, template())
	host := map[string]string{"a": "a", "b": "same", "c": "same"}
	for _, vm := range []string{"a", "b", "c"} {
		s.vms(vm)
		s.label(vm, virtv1.DeprecatedVirtualMachineNameLabel, host[vm])
	}
	want := map[string]string{"a": virtv1.DeprecatedVirtualMachineNameLabel, "b": virtv1.CreatedByLabel, "c": virtv1.CreatedByLabel}
	for _, vm := range []string{"a", "b", "c"} {
		s.label(vm, virtv1.VirtualMachineInstanceIDLabel, "")
	}
	s.steer(map[string]float64{"a": 0.5, "b": 0.25, "c": 0.25})
	var list corev1.ServiceList
	s.must(suite.client.List(t.Context(), &list, client.InNamespace(s.name)))
	for i := range list.Items {
		for vm, key := range want {
			if strings.Contains(list.Items[i].Name, "-web-"+vm+"-") && list.Items[i].Spec.Selector[key] == "" {
				t.Errorf("Service of %s selects %v, want the label %s", vm, list.Items[i].Spec.Selector, key)
			}
		}
	}
	if len(list.Items) != 3 {
		t.Errorf("%d Services, want 3", len(list.Items))
	}
}

func TestRouteOfSomebodyElse(t *testing.T) {
	s := newRouteScene(t, nil, "a", "b")
	shares := map[string]float64{"a": 0.7, "b": 0.3}
	_, err := s.writer.Read(t.Context(), s.group)
	s.wantRefusal("Read", err, v1alpha1.ReasonGroupNotFound, s.name+"/web")

	s.bareRoute()
	s.steer(shares)
	s.wantWeights(map[string]int32{"a": 700, "b": 300})
	s.bareRoute() // the tool comes by
	before := s.versions()
	s.steer(shares)
	s.unchangedRoute(before)

	s.apply("gitops", map[string]any{
		"parentRefs": []any{map[string]any{"name": "edge"}},
		"rules":      []any{map[string]any{"backendRefs": []any{map[string]any{"name": "other", "port": int64(80)}}}},
	})
	before = s.versions()
	for range 2 {
		_, err = s.writer.Write(t.Context(), s.group, shares)
		s.wantRefusal("Write", err, v1alpha1.ReasonForeignRules, "gitops", "spec.rules")
	}
	s.unchangedRoute(before)
	s.must(s.writer.Release(t.Context(), s.group))
	before = s.versions() // without the mark
	s.must(s.writer.Release(t.Context(), s.group))
	if after, left := s.versions(), s.services(); after["route"] != before["route"] || len(left) > 0 {
		t.Errorf("the route is %s and was %s; Services %v are left, which it does not name", after["route"], before["route"], left)
	}
	route, err := s.route(t.Context())
	s.must(err)
	if _, marked := route.Annotations[v1alpha1.AnnotationProfile]; marked || len(route.Spec.Rules) != 1 || route.Spec.Rules[0].BackendRefs[0].Name != "other" {
		t.Errorf("the route has annotations %v and rules %+v", route.Annotations, route.Spec.Rules)
	}

	s.bareRoute() // and hands the rules over again
	s.steer(shares)
	s.wantWeights(map[string]int32{"a": 700, "b": 300})
}

// An older profile may name a route that a younger one steers: the younger gives
// it up, and leaves what the older wrote.
func TestRouteIsTakenOver(t *testing.T) {
	s := newRouteScene(t, nil, "a", "b")
	s.bareRoute()
	s.steer(map[string]float64{"a": 0.7, "b": 0.3})
	younger := s.group

	older := &v1alpha1.VMNetworkProfile{
		ObjectMeta: objectMeta(s.name, "older"),
		Spec:       v1alpha1.VMNetworkProfileSpec{Selector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
	}
	s.must(suite.client.Create(t.Context(), older))
	s.group.Profile, s.group.UID, s.group.Members = client.ObjectKeyFromObject(older), older.UID, nil
	s.vms("c", "d")
	s.steer(map[string]float64{"c": 0.6, "d": 0.4})
	before := s.versions()
	s.must(s.writer.Release(t.Context(), younger))
	s.unchangedRoute(before)
	s.wantWeights(map[string]int32{"c": 600, "d": 400})
}

// Other kinds differ in what of a template they have.
func TestRoutesOfOtherKinds(t *testing.T) {
	for kind, hosts := range map[v1alpha1.GroupTargetKind][]string{
		v1alpha1.GroupGRPCRoute: {"grpc.example"}, v1alpha1.GroupTLSRoute: {"tls.example"}, v1alpha1.GroupTCPRoute: nil,
	} {
		t.Run(string(kind), func(t *testing.T) {
			s := newRouteScene(t, template(), "a", "b")
			s.group.Target.Kind, s.group.Target.Route.Hostnames = kind, hosts
			s.eventually("the route is written", func(ctx context.Context) error {
				state, err := s.writer.Write(ctx, s.group, map[string]float64{"a": 0.25, "b": 0.75})
				if err == nil && state.Shares["b"] != 0.75 {
					err = fmt.Errorf("shares %v: %s", state.Shares, state.Message)
				}
				return err
			})
		})
	}
}
