package routing

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/routing"
	"github.com/joulevirt/joulevirt/internal/routing/gateway"
)

// routeScene is a scene whose group is an HTTPRoute. The test plays the Gateway.
type routeScene struct {
	*scene
}

func newRouteScene(t *testing.T, template *v1alpha1.RouteTemplate, vms ...string) *routeScene {
	t.Helper()
	s := &routeScene{newScene(t, gateway.New(suite.client, suite.client), v1alpha1.TrafficGroup{
		Kind: v1alpha1.GroupHTTPRoute, Name: "web", MinActive: 1, Port: ptr.To[int32](8080), Route: template,
	})}
	s.makeProfile()
	s.vms(vms...)
	return s
}

// makeProfile makes the owner of what is written, or the garbage collector would take that.
func (s *routeScene) makeProfile() {
	s.Helper()
	profile := &v1alpha1.VMNetworkProfile{
		ObjectMeta: objectMeta(s.name, "web"),
		Spec:       v1alpha1.VMNetworkProfileSpec{Selector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
	}
	s.must(suite.client.Create(s.Context(), profile))
	s.group.UID = profile.UID
}

// template names a Gateway and a host that no other scene has.
func template() *v1alpha1.RouteTemplate {
	return &v1alpha1.RouteTemplate{ParentRefs: []runtime.RawExtension{{Raw: []byte(`{"name":"edge"}`)}}, Hostnames: []string{"shop.example"}}
}

func (s *routeScene) route(ctx context.Context) (*gatewayv1.HTTPRoute, error) {
	route := &gatewayv1.HTTPRoute{}
	return route, suite.client.Get(ctx, types.NamespacedName{Namespace: s.name, Name: "web"}, route)
}

// looks lets the Gateway look at the route and say so in its status.
func (s *routeScene) looks(ctx context.Context, conditions ...metav1.Condition) error {
	route, err := s.route(ctx)
	if client.IgnoreNotFound(err) != nil || err != nil {
		return client.IgnoreNotFound(err)
	}
	if len(conditions) == 0 {
		conditions = []metav1.Condition{
			{Type: "Accepted", Status: metav1.ConditionTrue, Reason: "Accepted"},
			{Type: "ResolvedRefs", Status: metav1.ConditionTrue, Reason: "ResolvedRefs"},
		}
	}
	base := route.DeepCopy()
	status := gatewayv1.RouteParentStatus{ParentRef: gatewayv1.ParentReference{Name: "edge"}, ControllerName: "example.org/test"}
	if len(base.Status.Parents) > 0 {
		status.Conditions = base.Status.Parents[0].DeepCopy().Conditions
	}
	for _, kind := range []string{"Accepted", "ResolvedRefs", "PartiallyInvalid"} {
		if meta.FindStatusCondition(conditions, kind) == nil {
			meta.RemoveStatusCondition(&status.Conditions, kind)
		}
	}
	for _, c := range conditions {
		c.ObservedGeneration = route.Generation
		meta.SetStatusCondition(&status.Conditions, c)
	}
	route.Status.Parents = []gatewayv1.RouteParentStatus{status}
	return suite.client.Status().Patch(ctx, route, client.MergeFrom(base), client.FieldOwner("gateway"))
}

// steer writes until all is settled, while the Gateway looks on.
func (s *routeScene) steer(shares map[string]float64) routing.State {
	s.Helper()
	var state routing.State
	s.eventually(fmt.Sprintf("shares %v settle", shares), func(ctx context.Context) error {
		if err := s.looks(ctx); err != nil {
			return err
		}
		var err error
		if state, err = s.writer.Write(ctx, s.group, shares); err != nil {
			return err
		}
		if !state.Settled {
			return errors.New(state.Message)
		}
		return nil
	})
	return state
}

// weights returns the weights of the route by the names of VMs: of Services that
// select one VM.
func (s *routeScene) weights() map[string]int32 {
	s.Helper()
	route, err := s.route(s.Context())
	s.must(err)
	byService := map[string]string{}
	for i := range s.group.Members {
		vm := s.group.Members[i].Name
		byService[s.serviceOf(vm)] = vm
	}
	out := map[string]int32{}
	for _, ref := range route.Spec.Rules[0].BackendRefs {
		out[byService[string(ref.Name)]] = *ref.Weight
	}
	return out
}

// versions adds the route's.
func (s *routeScene) versions() map[string]string {
	s.Helper()
	out := s.scene.versions()
	route, err := s.route(s.Context())
	s.must(err)
	out["route"] = route.ResourceVersion
	return out
}
