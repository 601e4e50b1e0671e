package top

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/cli/facts"
	"github.com/joulevirt/joulevirt/internal/cli/show"
	"github.com/joulevirt/joulevirt/test/showtest"
)

func now() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }

func ago(d time.Duration) *metav1.Time {
	at := metav1.NewTime(now().Add(-d))
	return &at
}

// scene is three nodes: one that measures, one whose power is modelled and whose plan is a
// recommendation, and one that reports no power.
func scene() *facts.Facts {
	vm := func(name string, applied bool) (v1alpha1.VMPlan, []v1alpha1.VMApplied) {
		pod := types.UID("pod-" + name)
		planned := v1alpha1.VMPlan{
			VMReference: v1alpha1.VMReference{Namespace: "shop", Name: name, PodUID: pod}, Profile: "web", Pool: v1alpha1.PoolNetwork,
			SliceMicroseconds: ptr.To(int32(1000)),
			Reasons:           []v1alpha1.LeverReason{{Lever: v1alpha1.LeverAffinity, Reason: v1alpha1.ReasonNoSaving}, {Lever: v1alpha1.LeverBuffering, Reason: v1alpha1.ReasonLeverNotAllowed}},
		}
		if !applied {
			return planned, nil
		}
		return planned, []v1alpha1.VMApplied{{VMReference: v1alpha1.VMReference{PodUID: pod, Name: name, Namespace: "shop"}, LeverReason: v1alpha1.LeverReason{Lever: v1alpha1.LeverSlice, Reason: v1alpha1.ReasonApplied}, State: v1alpha1.LeverInForce}}
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
			KernelVersion: "6.12", ReportedAt: ago(90 * time.Second), VMs: 2,
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
				Status: v1alpha1.VMNetworkProfileStatus{DisturbedVMs: []v1alpha1.DisturbedVM{
					{Name: "web-1", Node: "a", Reason: v1alpha1.CauseOwnLimit, LostCores: "0.62"},
				}, Traffic: &v1alpha1.TrafficStatus{
					Members: 3, ReadyMembers: 3, ActiveMembers: 2, State: v1alpha1.LeverInForce, Reason: "Skewed", Revision: "r-web",
					Saving: &v1alpha1.Saving{Watts: v1alpha1.Estimate{Value: "12.34"}},
				}},
			},
		},
		Policies: []v1alpha1.EnergyPolicy{{
			ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: v1alpha1.EnergyPolicySpec{Mode: v1alpha1.ModeEnforce},
			Status: v1alpha1.EnergyPolicyStatus{
				Nodes: v1alpha1.NodeCounts{Governed: 2, Metered: 1}, Watts: ptr.To(int64(180)), JoulesPerGB: "1440",
				Coverage: []v1alpha1.LeverCoverage{{Lever: v1alpha1.LeverSlice, ReachedVMs: 2}},
			},
		}},
	}
}

func TestViews(t *testing.T) {
	for name, view := range map[string]show.View{"nodes": Nodes(scene(), nil), "vms": VMs(scene(), "", live().VMs), "groups": Groups(scene()), "policies": Policies(scene())} {
		t.Run(name, func(t *testing.T) { showtest.Golden(t, name, view) })
	}
}

// live is what the manager says of the scene: it reads the power of b from a server, and knows
// VMs of which no plan has one.
func live() Live {
	return Live{
		Nodes: map[string]Power{"b": {Watts: ptr.To(58.0), Source: v1alpha1.PowerPrometheus, Basis: v1alpha1.BasisMeasured}},
		VMs: []VMPower{
			{Namespace: "shop", Name: "web-0", Node: "a", Watts: 21.5}, {Namespace: "shop", Name: "web-0", Node: "c", Watts: 1},
			{Namespace: "lab", Name: "alone", Node: "c", Watts: 3},
		},
	}
}

// The figure of a node is the one that policies use, whatever its agent reports.
func TestNodesHaveThePowerThatPoliciesUse(t *testing.T) {
	nodes := Nodes(scene(), live().Nodes).Items
	if b := nodes[1]; *b.Watts != 58 || b.Basis != v1alpha1.BasisMeasured || b.Source != v1alpha1.PowerPrometheus {
		t.Errorf("node b has %+v, want 58 W measured", b.Power)
	}
	if a := nodes[0]; *a.Watts != 180 {
		t.Errorf("node a has %+v, want its agent's 180 W", a.Power)
	}
}

// Every VM is listed: those of plans, those that the manager knows, and those that only the API
// server knows.
func TestEveryVMIsListed(t *testing.T) {
	f := scene()
	for _, name := range []string{"web-0", "web-1", "web-2", "starting"} {
		f.VMs = append(f.VMs, metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}})
	}
	var got []string
	for _, vm := range VMs(f, "", live().VMs).Items {
		got = append(got, fmt.Sprintf("%s on %s: %v W, %d levers", vm.Name, vm.Node, ptr.Deref(vm.Watts, -1), len(vm.Levers)))
	}
	want := []string{
		"starting on : -1 W, 0 levers", "web-0 on a: 21.5 W, 4 levers", "web-0 on c: 1 W, 0 levers", "web-1 on a: -1 W, 4 levers", "web-2 on b: -1 W, 4 levers",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestSelection(t *testing.T) {
	if got := VMs(scene(), "other", live().VMs).Items; len(got) != 0 {
		t.Errorf("another namespace has %v", got)
	}
	f := scene()
	f.Nodes = []metav1.PartialObjectMetadata{}
	f.VMs = []metav1.PartialObjectMetadata{{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-1"}}}
	if got := Nodes(f, nil).Items; len(got) != 0 {
		t.Errorf("a selector that selects no node shows %v", got)
	}
	if got := VMs(f, "", live().VMs).Items; len(got) != 1 || got[0].Name != "web-1" {
		t.Errorf("a selector of one VM shows %v", got)
	}
}

func TestSortByWatts(t *testing.T) {
	nodes := Nodes(scene(), nil).Items
	SortByWatts(nodes)
	if nodes[0].Name != "b" || nodes[1].Name != "a" || nodes[2].Name != "c" {
		t.Errorf("nodes %+v, want b, a, and last c, whose power is unknown", nodes)
	}
}
