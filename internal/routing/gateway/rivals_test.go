package gateway

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

func TestRivalWins(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	path := func(value string) any {
		return map[string]any{"path": map[string]any{"type": "PathPrefix", "value": value}}
	}
	base := func(name string, age time.Duration) rival {
		return rival{
			key: types.NamespacedName{Namespace: "shop", Name: name}, created: start.Add(-age),
			parents: []gatewayv1.ParentReference{{Name: "edge", Namespace: ptr.To[gatewayv1.Namespace]("infra")}},
			hosts:   []string{"shop.example"}, matches: []any{path("/")},
		}
	}
	ours := base("web", 0)
	for _, test := range []struct {
		name   string
		change func(*rival)
		want   bool
	}{
		{"older", func(*rival) {}, true},
		{"newer", func(r *rival) { r.created = start.Add(time.Second) }, false},
		{"as old, before by name", func(r *rival) { r.created = start }, true},
		{"as old, behind by name", func(r *rival) { r.created, r.key.Name = start, "zebra" }, false},
		{"another Gateway", func(r *rival) { r.parents[0].Name = "inner" }, false},
		{"one listener of it", func(r *rival) { r.parents[0].SectionName = ptr.To[gatewayv1.SectionName]("https") }, true},
		{"another host", func(r *rival) { r.hosts = []string{"api.example"} }, false},
		{"any host", func(r *rival) { r.hosts = nil }, false},
		{"another path", func(r *rival) { r.matches = []any{path("/api")} }, false},
		{"our path too", func(r *rival) { r.matches = []any{path("/api"), path("/")} }, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			other := base("old", time.Hour)
			test.change(&other)
			if got := other.wins(&ours); got != test.want {
				t.Errorf("wins = %v, want %v", got, test.want)
			}
		})
	}
}
