package controllers

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/energy"
	"github.com/joulevirt/joulevirt/internal/model"
)

// someStatuses shows each metric of statuses at least once.
func someStatuses(t *testing.T) *statusCollector {
	t.Helper()
	policy := policyOf("p", 0, "")
	policy.Spec.Mode = v1alpha1.ModeEnforce
	policy.Status = v1alpha1.EnergyPolicyStatus{
		Nodes: v1alpha1.NodeCounts{Selected: 4, Governed: 3, Reporting: 2, Metered: 1},
		Coverage: []v1alpha1.LeverCoverage{{
			Lever: v1alpha1.LeverAffinity, VMs: 5, ReachedVMs: 3, ReachedBytesPercent: ptr.To(int32(75)),
			Reasons: []v1alpha1.ReasonCount{{Reason: "NoProfile", Count: 2}},
		}},
		Potential: []v1alpha1.Saving{{Lever: v1alpha1.LeverAffinity, Modelled: true, Milliwatts: 4000, LowMilliwatts: -1000, HighMilliwatts: 9000}},
	}
	paused := policyOf("q", 0, "")
	paused.Spec.Paused, paused.Spec.Mode = true, v1alpha1.ModeEnforce
	plan := func(name string, observed int64, apply bool) *v1alpha1.NodePlan {
		return &v1alpha1.NodePlan{
			ObjectMeta: metav1.ObjectMeta{Name: name, Generation: 2}, Spec: v1alpha1.NodePlanSpec{Apply: apply},
			Status: v1alpha1.NodePlanStatus{
				ObservedGeneration: observed, Conditions: []metav1.Condition{{Type: v1alpha1.ConditionApplied, Status: metav1.ConditionTrue}},
			},
		}
	}
	applied, sure := plan("a", 2, true), plan("recommended", 2, false)
	applied.Spec.Policy, sure.Spec.Policy = "p", "q"
	paused.Spec.Verification.ConfidencePercent = 68
	applied.Status.VMs = []v1alpha1.VMApplied{
		{Name: "x", Lever: v1alpha1.LeverAffinity, State: v1alpha1.LeverInForce, Reason: v1alpha1.ReasonApplied},
		{Name: "y", Lever: v1alpha1.LeverAffinity, State: v1alpha1.LeverInForce, Reason: v1alpha1.ReasonApplied},
		{Name: "z", Lever: v1alpha1.LeverAffinity, State: v1alpha1.LeverBlocked, Reason: v1alpha1.ReasonContested},
	}
	group := groupProfileOf("web")
	group.Status.Traffic = &v1alpha1.TrafficStatus{
		State: v1alpha1.LeverInForce, Reason: "Skewed", Planned: &v1alpha1.TrafficSpread{SigmaBitsPerSecond: 8e6, EffectiveTalkers: resource.MustParse("1500m")},
		Saving: &v1alpha1.Saving{Milliwatts: 3000, LowMilliwatts: 1000, HighMilliwatts: 5000},
		Shares: []v1alpha1.MemberShare{{Name: "x", PerMille: 750, MeasuredPerMille: ptr.To(int32(700))}, {Name: "y", PerMille: 250}},
	}
	alone := profileOf("none", "none", 0) // without a group
	scheme, err := NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	objects := []client.Object{&policy, &paused, applied, plan("late", 1, true), sure, &group, &alone}
	potentials := newPotentialStore()
	potentials.nodes["a"] = potentialOfNode{levers: []model.Potential{
		{Lever: model.LeverAffinity, Watts: 4.5, StdErr: 2, VMs: 3, Considered: 4}, {Lever: model.LeverBuffering}, {Lever: model.LeverShaping, VMs: 2},
	}}
	potentials.nodes["late"] = potentialOfNode{levers: []model.Potential{}}
	potentials.nodes["recommended"] = potentialOfNode{levers: []model.Potential{
		{Lever: model.LeverAffinity, Considered: 2}, {Lever: model.LeverBuffering, Watts: 1, StdErr: 0.5, VMs: 1, Considered: 1},
	}}
	return newStatusCollector(fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build(), potentials, func() bool { return true }, reasonWords{})
}

func TestMetricsOfStatuses(t *testing.T) {
	collector := someStatuses(t)
	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(collector); err != nil {
		t.Fatal(err)
	}
	names := []string{
		"joulevirt_policy_info", "joulevirt_policy_hold_back_ratio", "joulevirt_policy_reached_vms", "joulevirt_policy_unreached_vms",
		"joulevirt_policy_reached_bytes_ratio", "joulevirt_policy_potential_low_watts", "joulevirt_node_potential_watts", "joulevirt_node_potential_low_watts", "joulevirt_node_potential_high_watts", "joulevirt_nodeplan_applied", "joulevirt_nodeplan_levers",
		"joulevirt_group_info", "joulevirt_group_planned_sigma_bytes_per_second", "joulevirt_group_planned_effective_talkers",
		"joulevirt_group_predicted_saving_low_watts", "joulevirt_group_predicted_saving_high_watts", "joulevirt_group_share_ratio",
	}
	const want = `joulevirt_group_info{namespace="ns",profile="web",reason="Skewed",state="InForce"} 1
joulevirt_group_planned_effective_talkers{namespace="ns",profile="web"} 1.5
joulevirt_group_planned_sigma_bytes_per_second{namespace="ns",profile="web"} 1e+06
joulevirt_group_predicted_saving_high_watts{namespace="ns",profile="web"} 5
joulevirt_group_predicted_saving_low_watts{namespace="ns",profile="web"} 1
joulevirt_group_share_ratio{name="x",namespace="ns",profile="web",share="Measured"} 0.7
joulevirt_group_share_ratio{name="x",namespace="ns",profile="web",share="Planned"} 0.75
joulevirt_group_share_ratio{name="y",namespace="ns",profile="web",share="Planned"} 0.25
joulevirt_node_potential_high_watts{lever="Affinity",node="a"} 8.419927969080106
joulevirt_node_potential_high_watts{lever="Affinity",node="recommended"} 0
joulevirt_node_potential_high_watts{lever="Buffering",node="recommended"} 1.4972289416048767
joulevirt_node_potential_low_watts{lever="Affinity",node="a"} 0.5800720309198932
joulevirt_node_potential_low_watts{lever="Affinity",node="recommended"} 0
joulevirt_node_potential_low_watts{lever="Buffering",node="recommended"} 0.5027710583951233
joulevirt_node_potential_watts{lever="Affinity",node="a"} 4.5
joulevirt_node_potential_watts{lever="Affinity",node="recommended"} 0
joulevirt_node_potential_watts{lever="Buffering",node="recommended"} 1
joulevirt_nodeplan_applied{node="a"} 1
joulevirt_nodeplan_applied{node="late"} 0
joulevirt_nodeplan_levers{lever="Affinity",node="a",reason="Applied",state="InForce"} 2
joulevirt_nodeplan_levers{lever="Affinity",node="a",reason="Contested",state="Blocked"} 1
joulevirt_policy_hold_back_ratio{policy="p"} 0.05
joulevirt_policy_hold_back_ratio{policy="q"} 0.05
joulevirt_policy_info{mode="Enforce",policy="p"} 1
joulevirt_policy_info{mode="Paused",policy="q"} 1
joulevirt_policy_potential_low_watts{lever="Affinity",policy="p"} -1
joulevirt_policy_reached_bytes_ratio{lever="Affinity",policy="p"} 0.75
joulevirt_policy_reached_vms{lever="Affinity",policy="p"} 3
joulevirt_policy_unreached_vms{lever="Affinity",policy="p",reason="NoProfile"} 2`
	if diff := cmp.Diff(want, series(t, registry, names)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	collector.leads = func() bool { return false }
	if left := series(t, registry, names); left != "" {
		t.Errorf("a manager that does not lead shows\n%s", left)
	}
}

func TestMeterWords(t *testing.T) {
	power := &model.Power{Scope: model.ScopePlatform}
	for want, choice := range map[[2]string]energy.Choice{
		{"Measured", "Platform"}: {Power: power, Metered: true},
		{"Suspect", "Platform"}:  {Power: power, Metered: true, Suspect: &energy.Attempt{}},
		{"Awaited", "Platform"}:  {Power: power, Unknown: true},
		{"Modelled", "Platform"}: {Power: power},
		{"None", "None"}:         {},
	} {
		if meter, scope := meterWords(&choice); [2]string{meter, scope} != want {
			t.Errorf("%s, %s, want %v", meter, scope, want)
		}
	}
}
