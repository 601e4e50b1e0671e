package top

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/cli/facts"
	"github.com/joulevirt/joulevirt/internal/cli/figures"
	"github.com/joulevirt/joulevirt/internal/cli/show"
	"github.com/joulevirt/joulevirt/internal/cli/show/showtest"
)

func now() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }

func ago(d time.Duration) *metav1.Time {
	at := metav1.NewTime(now().Add(-d))
	return &at
}

// scene is three nodes: one that measures, one whose power is modelled and whose plan is a
// recommendation, and one that says nothing.
func scene() *facts.Facts {
	vm := func(name string, applied bool) (v1alpha1.VMPlan, []v1alpha1.VMApplied) {
		pod := types.UID("pod-" + name)
		planned := v1alpha1.VMPlan{
			VMReference: v1alpha1.VMReference{Namespace: "shop", Name: name, PodUID: pod}, Profile: "web", Pool: v1alpha1.PoolNetwork,
			Slice:   &v1alpha1.SliceAction{Microseconds: 1000},
			Reasons: []v1alpha1.PlanReason{{Lever: v1alpha1.LeverAffinity, Reason: v1alpha1.ReasonNoSaving}, {Lever: v1alpha1.LeverBuffering, Reason: v1alpha1.ReasonLeverNotAllowed}},
		}
		if !applied {
			return planned, nil
		}
		return planned, []v1alpha1.VMApplied{{PodUID: pod, Name: name, Namespace: "shop", Lever: v1alpha1.LeverSlice, State: v1alpha1.LeverInForce, Reason: v1alpha1.ReasonApplied}}
	}
	plan := func(node string, apply bool, vms ...string) v1alpha1.NodePlan {
		p := v1alpha1.NodePlan{ObjectMeta: metav1.ObjectMeta{Name: node}}
		p.Spec = v1alpha1.NodePlanSpec{Policy: "p", Mode: v1alpha1.ModeEnforce, Revision: "r-" + node, Apply: apply}
		for _, name := range vms {
			planned, applied := vm(name, apply)
			p.Spec.VMs, p.Status.VMs = append(p.Spec.VMs, planned), append(p.Status.VMs, applied...)
		}
		return p
	}
	report := func(node string, source v1alpha1.PowerSource, watts *int64) v1alpha1.NodeReport {
		return v1alpha1.NodeReport{ObjectMeta: metav1.ObjectMeta{Name: node}, Status: v1alpha1.NodeReportStatus{
			AgentVersion: "v1", KernelVersion: "6.12", ReportedAt: ago(90 * time.Second), VMs: v1alpha1.VMCounts{Running: 2},
			Power: v1alpha1.Power{Source: source, Scope: v1alpha1.PowerScopePackage, Watts: watts, MeasuredAt: ago(95 * time.Second)},
		}}
	}
	return &facts.Facts{
		Now: now(),
		Reports: []v1alpha1.NodeReport{
			report("c", v1alpha1.PowerNone, nil), report("b", v1alpha1.PowerModel, ptr.To(int64(210))), report("a", v1alpha1.PowerRAPL, ptr.To(int64(180))),
		},
		Plans: []v1alpha1.NodePlan{plan("a", true, "web-0", "web-1"), plan("b", false, "web-2")},
		Profiles: []v1alpha1.VMNetworkProfile{
			{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "alone"}},
			{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "new"}, Spec: v1alpha1.VMNetworkProfileSpec{Group: &v1alpha1.TrafficGroup{Kind: "Service", Name: "new"}}},
			{
				ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"},
				Spec:       v1alpha1.VMNetworkProfileSpec{Group: &v1alpha1.TrafficGroup{Kind: "Service", Name: "web"}},
				Status: v1alpha1.VMNetworkProfileStatus{Traffic: &v1alpha1.TrafficStatus{
					Members: 3, ReadyMembers: 3, ActiveMembers: 2, State: v1alpha1.LeverInForce, Reason: "Skewed", Revision: "r-web",
					Now:     &v1alpha1.TrafficSpread{SigmaBitsPerSecond: 123456789, EffectiveTalkers: resource.MustParse("2.5")},
					Planned: &v1alpha1.TrafficSpread{SigmaBitsPerSecond: 999, EffectiveTalkers: resource.MustParse("2")},
					Saving:  &v1alpha1.Saving{Milliwatts: 12340},
				}},
			},
		},
		Policies: []v1alpha1.EnergyPolicy{{
			ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: v1alpha1.EnergyPolicySpec{Mode: v1alpha1.ModeEnforce},
			Status: v1alpha1.EnergyPolicyStatus{
				Nodes: v1alpha1.NodeCounts{Governed: 2, Metered: 1}, Watts: ptr.To(int64(180)), JoulesPerGB: ptr.To(resource.MustParse("1440")),
				Coverage: []v1alpha1.LeverCoverage{{Lever: v1alpha1.LeverSlice, VMs: 3, ReachedVMs: 2}},
			},
		}},
	}
}

// fast is what a Prometheus server knows: nothing of VM web-2.
func fast() *figures.Figures {
	vm := func(name, node string) figures.VMKey {
		return figures.VMKey{NamespacedName: types.NamespacedName{Namespace: "shop", Name: name}, Node: node}
	}
	return &figures.Figures{
		Nodes: map[string]figures.Node{
			"a": {Watts: ptr.To(181.5), Source: "RAPL", AgeSeconds: ptr.To(1.2), BytesPerSecond: ptr.To(125e6)},
			"c": {Watts: ptr.To(99.0), Source: "Prometheus", AgeSeconds: ptr.To(14.0), BytesPerSecond: ptr.To(10.0)},
		},
		VMs: map[figures.VMKey]figures.VM{
			vm("web-0", "a"): {Watts: ptr.To(4.25), BytesPerSecond: ptr.To(100e6)},
			vm("web-1", "a"): {Watts: ptr.To(2.0), BytesPerSecond: ptr.To(25e6)},
		},
	}
}

func TestViews(t *testing.T) {
	for name, view := range map[string]show.View{
		"nodes":         Nodes(scene(), nil, SortByName),
		"nodes-fast":    Nodes(scene(), fast(), SortByWatts),
		"vms":           VMs(scene(), nil, "", SortByName),
		"vms-fast":      VMs(scene(), fast(), "shop", SortByWatts),
		"groups":        Groups(scene(), fast()),
		"policies":      Policies(scene()),
		"vms-elsewhere": VMs(scene(), nil, "other", SortByName),
	} {
		t.Run(name, func(t *testing.T) { showtest.Golden(t, name, view) })
	}
}

// TestGroupFiguresAreWhole has a group's watts only when those of all its members are known.
func TestGroupFiguresAreWhole(t *testing.T) {
	f, known := scene(), fast()
	if got := Groups(f, known).Items[1]; got.Watts != nil || got.JoulesPerGB != nil {
		t.Errorf("watts %v of a group with an unknown member, want none", got.Watts)
	}
	f.Plans = f.Plans[:1]
	got := Groups(f, known).Items[1]
	if got.Watts == nil || *got.Watts != 6.25 || *got.JoulesPerGB != 50 {
		t.Errorf("watts %v, J/GB %v, want 6.25 and 50", got.Watts, got.JoulesPerGB)
	}
}

func TestSelectors(t *testing.T) {
	f := scene()
	f.Nodes = []metav1.PartialObjectMetadata{}
	f.VMs = []metav1.PartialObjectMetadata{{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-1"}}}
	if got := Nodes(f, nil, SortByName).Names(); len(got) != 0 {
		t.Errorf("a selector that picks no node shows %v", got)
	}
	if diff := cmp.Diff([]string{"virtualmachineinstance.kubevirt.io/web-1"}, VMs(f, nil, "", SortByName).Names()); diff != "" {
		t.Errorf("VMs of a selector (-want +got):\n%s", diff)
	}
}
