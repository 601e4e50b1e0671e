package controllers

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/observe"
	"github.com/joulevirt/joulevirt/internal/power"
	"github.com/joulevirt/joulevirt/internal/units"
)

func groupKey(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: "ns", Name: name}
}

// someSights are of group web, which is steered, and of db, of which little is
// known.
func someSights(ctx context.Context) *trafficSights {
	sights := newTrafficSights(func(context.Context) {}, func(context.Context) {})
	sights.put(ctx, &groupSight{
		profile: groupKey("web"), state: leverState{State: v1alpha1.LeverInForce, Reason: "Skewed"},
		vms: map[string]string{"a": "n", "b": "m"}, counts: map[string]int{"all": 2, "ready": 2, "active": 1},
		spread: &v1alpha1.TrafficSpread{SigmaBitsPerSecond: 8e6, EffectiveTalkers: resource.MustParse("1500m")},
		total:  &power.Estimate{Watts: 3, StdErr: 1}, lingering: ptr.To(int32(25)),
		saving: map[string]power.Estimate{"n": {Watts: 4, StdErr: 1}, "m": {Watts: -1, StdErr: 0.5}},
	})
	sights.put(ctx, &groupSight{
		profile: groupKey("db"), state: leverState{State: v1alpha1.LeverBlocked, Reason: v1alpha1.ReasonGroupNotFound},
		vms: map[string]string{"c": "n"}, counts: map[string]int{"all": 1},
	})
	return sights
}

// Groups have series while they are there, and none of what is not known.
func TestGroupMetrics(t *testing.T) {
	sights := someSights(t.Context())
	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(newTrafficCollector(sights)); err != nil {
		t.Fatal(err)
	}
	names := []string{
		"joulevirt_group_members", "joulevirt_group_sigma_bytes_per_second", "joulevirt_group_effective_talkers",
		"joulevirt_group_predicted_saving_watts", "joulevirt_group_lingering_bytes_ratio",
	}
	want := strings.TrimSpace(`
joulevirt_group_effective_talkers{namespace="ns",profile="web"} 1.5
joulevirt_group_lingering_bytes_ratio{namespace="ns",profile="web"} 0.25
joulevirt_group_members{namespace="ns",profile="db",state="all"} 1
joulevirt_group_members{namespace="ns",profile="web",state="active"} 1
joulevirt_group_members{namespace="ns",profile="web",state="all"} 2
joulevirt_group_members{namespace="ns",profile="web",state="ready"} 2
joulevirt_group_predicted_saving_watts{namespace="ns",profile="web"} 3
joulevirt_group_sigma_bytes_per_second{namespace="ns",profile="web"} 1e+06`)
	if diff := cmp.Diff(want, series(t, registry, names)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	sights.forget(t.Context(), groupKey("web"))
	sights.forget(t.Context(), groupKey("db"))
	if left := series(t, registry, names); left != "" {
		t.Errorf("series of groups that are gone:\n%s", left)
	}
}

// Who writes statuses is told of other words at once, and of other figures apart.
func TestGroupNewsAreTold(t *testing.T) {
	words, figures := 0, 0
	sights := newTrafficSights(func(context.Context) { words++ }, func(context.Context) { figures++ })
	put := func(state v1alpha1.LeverState, watts units.Watts) {
		sights.put(t.Context(), &groupSight{
			profile: groupKey("web"), state: leverState{State: state}, vms: map[string]string{"a": "n"},
			saving: map[string]power.Estimate{"n": {Watts: watts}},
		})
	}
	put(v1alpha1.LeverPending, 1)
	put(v1alpha1.LeverPending, 1)
	put(v1alpha1.LeverInForce, 1)
	put(v1alpha1.LeverInForce, 2)
	sights.forget(t.Context(), groupKey("web"))
	sights.forget(t.Context(), groupKey("web"))
	if words != 3 || figures != 1 {
		t.Errorf("told of words %d times and of figures %d times, want 3 and 1", words, figures)
	}
}

func groupProfileOf(name string) v1alpha1.VMNetworkProfile {
	profile := profileOf(name, name, time.Hour)
	profile.Spec.Group = &v1alpha1.TrafficGroup{Kind: v1alpha1.GroupService, Name: name}
	return profile
}

func TestPolicyTellsOfGroups(t *testing.T) {
	profiles := []v1alpha1.VMNetworkProfile{groupProfileOf("web"), groupProfileOf("db"), profileOf("none", "none", time.Hour)}
	view, awaited := viewGroups(profiles, someSights(t.Context()).all())
	if awaited {
		t.Error("groups are awaited that were looked at")
	}
	if _, awaited := viewGroups(append(profiles, groupProfileOf("new")), someSights(t.Context()).all()); !awaited {
		t.Error("a group was not looked at, and is not awaited")
	}
	plan := planOf("n", true, "a", "c", "d")
	rates := &model.NodeRates{Node: "n"}
	for name, bits := range map[string]units.BitsPerSecond{"a": 3e6, "c": 1e6, "d": 0} {
		vm := model.VMRates{Namespace: "ns", Name: name, Taps: []model.TapRates{{}}}
		vm.Taps[0].FromVM.BitsPerSecond = bits
		rates.VMs = append(rates.VMs, vm)
	}
	policy := policyOf("p", 0, "x")
	policy.Spec.Levers = []v1alpha1.Lever{v1alpha1.LeverTrafficShare}
	tally := policyTally{levers: map[v1alpha1.Lever]*leverTally{v1alpha1.LeverTrafficShare: {reasons: map[string]int32{}}}, vms: 3}
	tally.bytes.add(rates, false, 3)
	tally.addGroups(view, "n", &indexedPlan{NodePlan: plan}, rates)
	status := v1alpha1.EnergyPolicyStatus{Coverage: coverage(&policy, tally)}
	tally.groups.write(&status, &policy)
	want := v1alpha1.EnergyPolicyStatus{
		Coverage: []v1alpha1.LeverCoverage{{
			Lever: v1alpha1.LeverTrafficShare, VMs: 3, ReachedVMs: 1, ReachedBytesPercent: ptr.To(int32(75)),
			Reasons: []v1alpha1.ReasonCount{{Reason: "GroupNotFound", Count: 1}, {Reason: "NoGroup", Count: 1}},
		}},
		Potential: []v1alpha1.Saving{{Lever: v1alpha1.LeverTrafficShare, Modelled: true, Milliwatts: 4000, LowMilliwatts: 2000, HighMilliwatts: 6000}},
	}
	if diff := cmp.Diff(want, status); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	// Before all were looked at, what was said stays.
	kept := v1alpha1.EnergyPolicyStatus{Coverage: []v1alpha1.LeverCoverage{{Lever: v1alpha1.LeverAffinity}, {Lever: v1alpha1.LeverTrafficShare}}}
	keepGroups(&kept, &want)
	if diff := cmp.Diff([]v1alpha1.LeverCoverage{{Lever: v1alpha1.LeverAffinity}, want.Coverage[0]}, kept.Coverage); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestErrorsWithin(t *testing.T) {
	for percent, want := range map[int32]float64{0: 1.96, 80: 1.2816, 95: 1.96, 99: 2.5758} {
		if got := errorsWithin(percent); got < want-0.001 || got > want+0.001 {
			t.Errorf("%d %%: %v standard errors, want %v", percent, got, want)
		}
	}
}

// A profile's own reconciler keeps what is said of the group, and counts its VMs.
func TestProfileStatusKeepsTraffic(t *testing.T) {
	web := groupProfileOf("web")
	web.Status.Traffic = &v1alpha1.TrafficStatus{ObservedGeneration: web.Generation, State: v1alpha1.LeverInForce, Reason: "Skewed"}
	view := profileView{disturbances: disturbances{}, floods: floods{}, profiles: observe.NewProfiles([]v1alpha1.VMNetworkProfile{web}), now: statusTime()}
	view.vmis = append(view.vmis, vmiOn("a", "web", "n"), vmiOn("b", "web", "n"))
	got := profileStatus(&web, view)
	if got.Traffic != web.Status.Traffic || got.VMsInForce != 2 {
		t.Errorf("%+v", got)
	}
	web.Generation++
	got = profileStatus(&web, view)
	for _, count := range got.Levers {
		if count.Lever == v1alpha1.LeverTrafficShare && (count.State != v1alpha1.LeverPending || count.Count != 2) {
			t.Errorf("of an older generation: %+v", count)
		}
	}
}
