package routing

import (
	"context"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// eachEvent calls check with every version of the namespace's objects of a list's kind that a client
// that watches gets. What it returns waits for the last one, and returns how many there were.
func (s *scene) eachEvent(list client.ObjectList, check func(client.Object)) (until func(last client.Object) int) {
	s.Helper()
	watcher, err := suite.client.Watch(s.Context(), list, client.InNamespace(s.name))
	s.must(err)
	const most = 1000
	versions := make(chan string, most)
	s.Cleanup(func() {
		watcher.Stop()
		for range versions { // until nobody checks any longer
		}
	})
	go func() {
		defer close(versions)
		for event := range watcher.ResultChan() {
			object, is := event.Object.(client.Object)
			switch {
			case s.Context().Err() != nil: // the test is over
				return
			case !is:
				s.Errorf("the watch failed: %+v", event.Object)
				return
			}
			check(object)
			versions <- object.GetResourceVersion()
		}
	}()
	return func(last client.Object) int {
		s.Helper()
		s.must(suite.client.Get(s.Context(), client.ObjectKeyFromObject(last), last))
		ctx, cancel := context.WithTimeout(s.Context(), soon)
		defer cancel()
		for count := 1; ; count++ {
			select {
			case <-ctx.Done():
				s.Fatalf("the watch does not show %s of version %s", last.GetName(), last.GetResourceVersion())
			case version, open := <-versions:
				if !open {
					s.Fatal("the watch ended")
				}
				if version == last.GetResourceVersion() {
					return count
				}
			}
		}
	}
}

// turns are shares of the VMs a to d, each with others than those before.
func turns() []map[string]float64 {
	return []map[string]float64{
		{"a": 0.5, "b": 0.5}, {"c": 0.5, "d": 0.5}, {"a": 1}, {"b": 0.2, "c": 0.3, "d": 0.5}, {"a": 1}, {"d": 1}, {"b": 1}, {},
		{"c": 0.9, "a": 0.1},
	}
}

// Whoever sends to a Service's endpoints has enough members at each moment.
func TestServiceKeepsMinActiveAtEachEvent(t *testing.T) {
	s := serviceScene(t, "a", "b", "c", "d")
	s.group.Target.MinActive = 2
	var slices discoveryv1.EndpointSliceList
	s.must(suite.client.List(t.Context(), &slices, client.InNamespace(s.name)))
	if len(slices.Items) != 1 {
		t.Fatalf("%d EndpointSlices, want one with all endpoints", len(slices.Items))
	}
	vms := map[types.UID]string{}
	for _, vm := range []string{"a", "b", "c", "d"} {
		vms[s.pods(vm)[0].UID] = vm
	}
	until := s.eachEvent(&slices, func(object client.Object) {
		ready := map[string]bool{}
		for _, endpoint := range object.(*discoveryv1.EndpointSlice).Endpoints {
			if *endpoint.Conditions.Ready {
				ready[vms[endpoint.TargetRef.UID]] = true
			}
		}
		if delete(ready, ""); len(ready) < int(s.group.Target.MinActive) {
			t.Errorf("only %v serve in version %s of the endpoints", ready, object.GetResourceVersion())
		}
	})
	for _, shares := range turns() {
		s.settle(shares)
	}
	s.must(s.writer.Release(t.Context(), s.group))
	s.serving("a", "b", "c", "d")
	if events := until(&slices.Items[0]); events < len(turns()) {
		t.Errorf("%d events, want one a turn or more", events)
	}
}

// Whatever a Gateway reads of a route at any moment, enough of its backends have an endpoint.
func TestRouteKeepsMinActiveAtEachEvent(t *testing.T) {
	s := newRouteScene(t, template(), "a", "b", "c", "d")
	s.group.Target.MinActive = 2
	until := s.eachEvent(&gatewayv1.HTTPRouteList{}, func(object client.Object) {
		served := 0
		for _, ref := range object.(*gatewayv1.HTTPRoute).Spec.Rules[0].BackendRefs {
			if *ref.Weight == 0 {
				continue
			}
			ready, err := s.endpoints(t.Context(), string(ref.Name))
			if err != nil {
				t.Error(err)
			}
			if len(ready) > 0 {
				served++
			}
		}
		if served < int(s.group.Target.MinActive) {
			t.Errorf("%d backends serve in version %s of the route", served, object.GetResourceVersion())
		}
	})
	for _, shares := range turns() {
		s.steer(shares)
	}
	s.must(s.writer.Release(t.Context(), s.group))
	route := &gatewayv1.HTTPRoute{ObjectMeta: objectMeta(s.name, "web")}
	if events := until(route); events < len(turns()) {
		t.Errorf("%d events, want one a turn or more", events)
	}
}
