package dataplane

import (
	"context"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/joulevirt/joulevirt/test/dataplane/gateway"
	"github.com/joulevirt/joulevirt/test/dataplane/load"
	"github.com/joulevirt/joulevirt/test/dataplane/members"
	"github.com/joulevirt/joulevirt/test/dataplane/world"
)

// host is the name that the route serves.
const host = "weights.test"

// route is an HTTPRoute to a Service per VM, by the VM's weight.
func (s suite) route(weights map[string]int32) *gatewayv1.HTTPRoute {
	var backends []gatewayv1.HTTPBackendRef
	for _, name := range s.names {
		backends = append(backends, gatewayv1.HTTPBackendRef{BackendRef: gatewayv1.BackendRef{
			BackendObjectReference: gatewayv1.BackendObjectReference{
				Name: gatewayv1.ObjectName(name), Port: ptr.To(gatewayv1.PortNumber(80)),
			},
			Weight: ptr.To(weights[name]),
		}})
	}
	return &gatewayv1.HTTPRoute{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "weights"},
		Spec: gatewayv1.HTTPRouteSpec{
			CommonRouteSpec: gatewayv1.CommonRouteSpec{ParentRefs: []gatewayv1.ParentReference{{
				Namespace: ptr.To(gatewayv1.Namespace(gateway.Namespace)), Name: gateway.Name,
			}}},
			Hostnames: []gatewayv1.Hostname{host},
			Rules:     []gatewayv1.HTTPRouteRule{{BackendRefs: backends}},
		},
	}
}

func (s suite) testWeights(t *testing.T) {
	if err := gatewayv1.Install(s.Client().Scheme()); err != nil {
		t.Fatal(err)
	}
	for _, name := range s.names {
		s.service(t, name, map[string]string{members.VMLabel: name}, name)
	}
	first := map[string]int32{}
	for i, weight := range []int32{50, 20, 15, 10, 5} {
		first[s.names[i]] = weight
	}
	route := s.route(first)
	if err := s.Client().Create(t.Context(), route); err != nil {
		t.Fatal(err)
	}
	clients := s.Clients(8, gateway.URL)
	clients.Host = host
	s.waitRoute(t, clients, s.names)
	for _, keepAlive := range []bool{false, true} {
		clients.KeepAlive = keepAlive
		counts, err := load.Burst(t.Context(), clients, 12000)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("keep-alive %t: %s", keepAlive, counts)
		if worst := counts.Error(shares(first)); worst > 2 {
			t.Errorf("keep-alive %t: the split is %.1f points from the weights: %s", keepAlive, worst, counts)
		}
		if err := counts.NoFailures(); err != nil {
			t.Error(err)
		}
	}

	clients.PerSecond = 1000
	running := load.Start(clients)
	defer running.Stop()
	second := map[string]int32{s.names[0]: 0, s.names[1]: 0, s.names[2]: 70, s.names[3]: 20, s.names[4]: 10}
	before := route.DeepCopy()
	route.Spec = s.route(second).Spec
	if err := s.Client().Patch(t.Context(), route, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	s.waitRoute(t, clients, s.names[2:])
	counts, err := running.Window(t.Context(), 3000)
	if err != nil {
		t.Fatal(err)
	}
	t.Log("after the change:", counts)
	if worst := counts.Error(shares(second)); worst > 4 {
		t.Errorf("the split is %.1f points from the new weights: %s", worst, counts)
	}
	if err := running.Stop().NoFailures(); err != nil {
		t.Errorf("while the weights changed: %v", err)
	}
}

// waitRoute waits until exactly the names answer.
func (s suite) waitRoute(t *testing.T, clients load.Options, names []string) {
	t.Helper()
	err := s.WaitFor(t.Context(), world.Timeout, fmt.Sprintf("the route leads to %v", names), func(ctx context.Context) error {
		return answeredBy(ctx, clients, names)
	})
	if err != nil {
		t.Fatal(err)
	}
}

func shares(weights map[string]int32) map[string]float64 {
	sum := 0.0
	for _, weight := range weights {
		sum += float64(weight)
	}
	all := map[string]float64{}
	for name, weight := range weights {
		all[name] = float64(weight) / sum
	}
	return all
}
