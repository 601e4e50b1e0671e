package group

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/controllers/objects"
	"github.com/joulevirt/joulevirt/internal/observe"
	"github.com/joulevirt/joulevirt/internal/routing"
	"github.com/joulevirt/joulevirt/internal/routing/gateway"
	"github.com/joulevirt/joulevirt/internal/routing/service"
	"github.com/joulevirt/joulevirt/internal/units"
	"github.com/joulevirt/joulevirt/test/controllertest"
)

// requests counts what costs the API server something: reads past the cache, and writes.
type requests struct{ live, writes int }

func (r *requests) clients(t *testing.T, profiles []v1alpha1.VMNetworkProfile) (cached client.Client, live client.Client) {
	t.Helper()
	scheme, err := objects.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{{Group: gatewayGroup, Version: "v1"}})
	for kind := range scheme.AllKnownTypes() {
		mapper.Add(kind, meta.RESTScopeNamespace)
	}
	mapper.Add(schema.GroupVersionKind{Group: gatewayGroup, Version: "v1", Kind: "HTTPRoute"}, meta.RESTScopeNamespace)
	builder := fake.NewClientBuilder().WithScheme(scheme).WithRESTMapper(mapper)
	for i := range profiles {
		builder = builder.WithObjects(&profiles[i])
	}
	store := builder.Build()
	cached = interceptor.NewClient(store, interceptor.Funcs{
		SubResourceApply: func(context.Context, client.Client, string, runtime.ApplyConfiguration, ...client.SubResourceApplyOption) error {
			r.writes++
			return nil
		},
		Apply: func(context.Context, client.WithWatch, runtime.ApplyConfiguration, ...client.ApplyOption) error {
			r.writes++
			return nil
		},
	})
	live = interceptor.NewClient(store, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
			r.live++
			return c.Get(ctx, key, object, options...)
		},
	})
	return cached, live
}

// TestRequestsOfEmptyGroups: groups of one owner that select no VM, and groups that are refused,
// cost the API server next to nothing.
func TestRequestsOfEmptyGroups(t *testing.T) {
	const groups = 50 // of each kind
	clock := testingclock.NewFakePassiveClock(controllertest.StatusTime())
	var profiles []v1alpha1.VMNetworkProfile
	for i := range groups {
		route := controllertest.GroupProfileOf(fmt.Sprintf("route-%d", i))
		route.Spec.Group = &v1alpha1.TrafficGroup{Kind: v1alpha1.GroupHTTPRoute, Name: route.Name, Port: ptr.To[int32](80), Route: &v1alpha1.RouteTemplate{}}
		profiles = append(profiles, route, controllertest.GroupProfileOf(fmt.Sprintf("service-%d", i)))
	}
	var count requests
	cached, live := count.clients(t, profiles)
	r := &Reconciler{
		Client: cached, Observer: &observe.GroupObserver{Reader: cached, Clock: clock},
		Writers:  routing.Writers{Service: service.New(cached, live), Route: gateway.New(cached, live)},
		Recorder: events.NewFakeRecorder(1000), Clock: clock, Options: DefaultOptions(),
		Views: NewViews(func(context.Context) {}, func(context.Context) {}),
		kinds: &groupKinds{on: map[schema.GroupKind]bool{
			{Kind: "Pod"}: true, {Kind: "Service"}: true, {Group: "discovery.k8s.io", Kind: "EndpointSlice"}: true, {Group: gatewayGroup, Kind: "HTTPRoute"}: true,
		}},
	}
	rounds, due := 0, map[types.NamespacedName]time.Time{}
	for end := clock.Now().Add(10 * time.Minute); clock.Now().Before(end); clock.SetTime(clock.Now().Add(time.Second)) {
		for i := range profiles {
			name := client.ObjectKeyFromObject(&profiles[i])
			if due[name].After(clock.Now()) {
				continue
			}
			result, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: name})
			if err != nil {
				t.Fatal(err)
			}
			due[name] = clock.Now().Add(result.RequeueAfter)
			rounds++
		}
	}
	t.Logf("%d groups for 10 minutes: %d rounds, %d reads past the cache, %d writes", len(profiles), rounds, count.live, count.writes)
	if most := 6 * len(profiles); rounds > most || count.live > groups || count.writes > len(profiles) {
		t.Errorf("%d rounds, %d reads past the cache, %d writes of %d groups", rounds, count.live, count.writes, len(profiles))
	}
}

// TestWritesOfSteadyGroups: what a group carries always varies a little. That alone is no cause to
// write its status.
func TestWritesOfSteadyGroups(t *testing.T) {
	const groups = 1000
	var count requests
	cached, _ := count.clients(t, nil)
	clock := testingclock.NewFakePassiveClock(controllertest.StatusTime())
	r := &Reconciler{Client: cached, Recorder: events.NewFakeRecorder(2 * groups), Clock: clock, Options: DefaultOptions()}
	memories := make([]groupMemory, groups)
	random := rand.New(rand.NewPCG(1, 2))
	steady := func(factor float64) {
		for i := range memories {
			round := groupRoundOf()
			for j := range round.seen.Plan.Members {
				m := &round.seen.Plan.Members[j]
				m.Rate *= units.BitsPerSecond(factor * (1 + 0.02*random.NormFloat64()))
				m.Limit *= units.BitsPerSecond(1 + 0.01*random.NormFloat64())
				factor = 1
			}
			if err := r.tell(t.Context(), round, &memories[i]); err != nil {
				t.Fatal(err)
			}
		}
	}
	for range 20 {
		steady(1)
		clock.SetTime(clock.Now().Add(30 * time.Second))
	}
	if most := groups + groups/20; count.writes > most {
		t.Errorf("%d writes of %d steady groups in 10 minutes, want up to %d", count.writes, groups, most)
	}
	t.Logf("%d writes of %d steady groups in 10 minutes", count.writes, groups)
	before := count.writes
	clock.SetTime(clock.Now().Add(time.Hour))
	if steady(3); count.writes == before {
		t.Error("what a member carries is three times as much, and nothing is written")
	}
}
