package group

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/controllers/objects"
	"github.com/joulevirt/joulevirt/internal/planner/traffic"
	"github.com/joulevirt/joulevirt/internal/power"
	"github.com/joulevirt/joulevirt/internal/units"
	"github.com/joulevirt/joulevirt/test/controllertest"
)

func groupKey(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: "ns", Name: name}
}

// someSights are of group web, which is steered, and of db, of which little is
// known.
func someSights(ctx context.Context) *Views {
	views := NewViews(func(context.Context) {}, func(context.Context) {})
	views.put(ctx, &View{
		profile: groupKey("web"), state: objects.LeverState{State: v1alpha1.LeverInForce, Reason: "Skewed"},
		vms: map[string]string{"a": "n", "b": "m"}, counts: map[string]int{"all": 2, "ready": 2, "active": 1},
		spread: &traffic.Spread{Sigma: 8e6, Talkers: 1.5}, planned: &traffic.Spread{Sigma: 16e6, Talkers: 1},
		total: &power.Estimate{Watts: 3, StdErr: 1}, lingering: ptr.To(0.25),
		saving: map[string]power.Estimate{"n": {Watts: 4, StdErr: 1}, "m": {Watts: -1, StdErr: 0.5}},
	})
	views.put(ctx, &View{
		profile: groupKey("db"), state: objects.LeverState{State: v1alpha1.LeverBlocked, Reason: v1alpha1.ReasonGroupNotFound},
		vms: map[string]string{"c": "n"}, counts: map[string]int{"all": 1},
	})
	return views
}

// Groups have series while they are there, and none of what is not known.
func TestGroupMetrics(t *testing.T) {
	views := someSights(t.Context())
	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(NewCollector(views)); err != nil {
		t.Fatal(err)
	}
	names := []string{
		"joulevirt_group_members", "joulevirt_group_sigma_bytes_per_second", "joulevirt_group_effective_talkers",
		"joulevirt_group_predicted_saving_watts", "joulevirt_group_lingering_bytes_ratio",
	}
	want := strings.TrimSpace(`
joulevirt_group_effective_talkers{namespace="ns",profile="web",share="Measured"} 1.5
joulevirt_group_effective_talkers{namespace="ns",profile="web",share="Planned"} 1
joulevirt_group_lingering_bytes_ratio{namespace="ns",profile="web"} 0.25
joulevirt_group_members{namespace="ns",profile="db",state="all"} 1
joulevirt_group_members{namespace="ns",profile="web",state="active"} 1
joulevirt_group_members{namespace="ns",profile="web",state="all"} 2
joulevirt_group_members{namespace="ns",profile="web",state="ready"} 2
joulevirt_group_predicted_saving_watts{namespace="ns",profile="web"} 3
joulevirt_group_sigma_bytes_per_second{namespace="ns",profile="web",share="Measured"} 1e+06
joulevirt_group_sigma_bytes_per_second{namespace="ns",profile="web",share="Planned"} 2e+06`)
	if diff := cmp.Diff(want, controllertest.Series(t, registry, names)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	views.forget(t.Context(), groupKey("web"))
	views.forget(t.Context(), groupKey("db"))
	if left := controllertest.Series(t, registry, names); left != "" {
		t.Errorf("series of groups that are gone:\n%s", left)
	}
}

// Who writes statuses is called for other words at once, and of other figures apart.
func TestGroupNewsAreTold(t *testing.T) {
	words, figures := 0, 0
	views := NewViews(func(context.Context) { words++ }, func(context.Context) { figures++ })
	put := func(state v1alpha1.LeverState, watts units.Watts) {
		views.put(t.Context(), &View{
			profile: groupKey("web"), state: objects.LeverState{State: state}, vms: map[string]string{"a": "n"},
			saving: map[string]power.Estimate{"n": {Watts: watts}},
		})
	}
	put(v1alpha1.LeverPending, 1)
	put(v1alpha1.LeverPending, 1)
	put(v1alpha1.LeverInForce, 1)
	put(v1alpha1.LeverInForce, 2)
	views.forget(t.Context(), groupKey("web"))
	views.forget(t.Context(), groupKey("web"))
	if words != 3 || figures != 1 {
		t.Errorf("reported of words %d times and of figures %d times, want 3 and 1", words, figures)
	}
}

// What policies say of groups is not known before all were observed, as after a change of leader.
func TestGroupsAreAwaited(t *testing.T) {
	profiles := []v1alpha1.VMNetworkProfile{controllertest.GroupProfileOf("web"), controllertest.GroupProfileOf("db"), controllertest.ProfileOf("none", "none", time.Hour)}
	all := someSights(t.Context()).All()
	view, awaited := Summarize(profiles, all)
	if awaited || view.States[groupKey("a")].State != v1alpha1.LeverInForce || view.Savings["n"].Watts != 4 {
		t.Errorf("awaited %t, %+v", awaited, view)
	}
	if _, awaited := Summarize(append(profiles, controllertest.GroupProfileOf("new")), all); !awaited {
		t.Error("a group was not observed, and is not awaited")
	}
}
