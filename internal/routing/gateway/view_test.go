package gateway

import (
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/joulevirt/joulevirt/internal/routing"
)

// TestRoutesAreReadWhenTheyChange: a route costs a read past the cache when its watch shows
// something new, or lags behind, and what was read is never older than what the watch shows.
func TestRoutesAreReadWhenTheyChange(t *testing.T) {
	kind := schema.GroupVersionKind{Group: "gateway.networking.k8s.io", Version: "v1", Kind: "HTTPRoute"}
	// What the watch of metadata shows, and what the API server has. Empty: no route.
	watched, stored, reads := "", "", 0
	get := func(count *int, version *string) interceptor.Funcs {
		return interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
			*count++
			if *version == "" {
				return c.Get(ctx, key, &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}}) // not found
			}
			object.SetResourceVersion(*version)
			return nil
		}}
	}
	store := fake.NewClientBuilder().Build()
	w := New(interceptor.NewClient(store, get(new(int), &watched)), interceptor.NewClient(store, get(&reads, &stored)))
	v := &view{kind: kind, group: &routing.Group{Profile: types.NamespacedName{Namespace: "ns", Name: "web"}}}
	for _, step := range []struct {
		name            string
		watched, stored string
		reads           int
	}{
		{"no route", "", "", 1},
		{"still none", "", "", 0},
		{"the watch lags", "", "5", 0},
		{"the watch shows it", "5", "5", 1},
		{"the same", "5", "5", 0},
		{"changed", "6", "6", 1},
		{"changed, and again before it was read", "7", "8", 1},
		{"the watch still lags", "7", "8", 1},
		{"the watch caught up", "8", "8", 0},
		{"deleted", "", "", 1},
		{"still deleted", "", "", 0},
	} {
		watched, stored, reads = step.watched, step.stored, 0
		route, err := w.getRoute(t.Context(), v)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if route != nil {
			got = route.GetResourceVersion()
		}
		if reads != step.reads || got != step.watched && got != step.stored {
			t.Errorf("%s: version %q after %d reads, want %d", step.name, got, reads, step.reads)
		}
	}
	w.routes.Remove(v.routeKey()) // as when it is written
	watched, stored, reads = "", "9", 0
	if route, err := w.getRoute(t.Context(), v); err != nil || route == nil || reads != 1 {
		t.Errorf("what was just written is read %d times: %v, %v", reads, route, err)
	}
}
