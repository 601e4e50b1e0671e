package policy

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/controllers/objects"
	"github.com/joulevirt/joulevirt/test/controllertest"
)

// someStatuses shows each metric of statuses at least once.
func someStatuses(t *testing.T) *statusCollector {
	t.Helper()
	policy := controllertest.PolicyOf("p", 0, "")
	policy.Spec.Mode = v1alpha1.ModeEnforce
	policy.Status = v1alpha1.EnergyPolicyStatus{
		Nodes: v1alpha1.NodeCounts{Selected: 4, Governed: 3, Reporting: 2, Metered: 1},
		Coverage: []v1alpha1.LeverCoverage{{
			Lever: v1alpha1.LeverAffinity, ReachedVMs: 3, ReachedBytesPercent: ptr.To(int32(75)),
			Reasons: []v1alpha1.ReasonCount{{Reason: "NoProfile", Count: 2}},
		}},
		Potential: []v1alpha1.Saving{{Lever: v1alpha1.LeverAffinity, Watts: v1alpha1.Estimate{Value: "4", Low: "-1", High: "9"}}},
		Findings: []v1alpha1.Finding{
			{Reason: v1alpha1.ReasonSleepHeld, Count: 2, Watts: ptr.To[int64](50), Basis: v1alpha1.BasisModelled, ChangedBy: v1alpha1.FindingOwnerClusterAdmin},
			{Reason: v1alpha1.ReasonEmulatedDisk, Count: 3, ChangedBy: v1alpha1.FindingOwnerVMOwner},
		},
	}
	paused := controllertest.PolicyOf("q", 0, "")
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
	applied.Status.VMs = []v1alpha1.VMApplied{
		{VMReference: v1alpha1.VMReference{Name: "x"}, LeverReason: v1alpha1.LeverReason{Lever: v1alpha1.LeverAffinity, Reason: v1alpha1.ReasonApplied}, State: v1alpha1.LeverInForce},
		{VMReference: v1alpha1.VMReference{Name: "y"}, LeverReason: v1alpha1.LeverReason{Lever: v1alpha1.LeverAffinity, Reason: v1alpha1.ReasonApplied}, State: v1alpha1.LeverInForce},
		{VMReference: v1alpha1.VMReference{Name: "z"}, LeverReason: v1alpha1.LeverReason{Lever: v1alpha1.LeverAffinity, Reason: v1alpha1.ReasonContested}, State: v1alpha1.LeverBlocked},
	}
	group := controllertest.GroupProfileOf("web")
	group.Status.Traffic = &v1alpha1.TrafficStatus{
		State: v1alpha1.LeverInForce, Reason: "Skewed",
		Saving: &v1alpha1.Saving{Watts: v1alpha1.Estimate{Value: "3", Low: "1", High: "5"}},
		Shares: []v1alpha1.MemberShare{{Name: "x", PerMille: 750, MeasuredPerMille: ptr.To(int32(700))}, {Name: "y", PerMille: 250}},
	}
	alone := controllertest.ProfileOf("none", "none", 0) // without a group
	scheme, err := objects.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	hybrid := &v1alpha1.HybridWorkload{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Status: v1alpha1.HybridWorkloadStatus{VMs: 3, ReadyGateways: 2},
	}
	moves := &v1alpha1.PlacementPlan{
		ObjectMeta: metav1.ObjectMeta{Name: "p"},
		Spec:       v1alpha1.PlacementPlanSpec{Revision: "r2", WattsBefore: "300", WattsAfter: "280", Moves: make([]v1alpha1.PlacementMove, 3)},
		Status: v1alpha1.PlacementPlanStatus{Moves: []v1alpha1.PlacementOutcome{
			{Revision: "r1", Phase: v1alpha1.PlacementSucceeded}, {Revision: "r1", Phase: v1alpha1.PlacementFailed}, {Revision: "r2", Phase: v1alpha1.PlacementRunning},
		}, Hosts: []v1alpha1.HostStatus{{Node: "a", State: v1alpha1.HostOn}, {Node: "b", State: v1alpha1.HostOff}, {Node: "c", State: v1alpha1.HostOn}}},
	}
	objects := []client.Object{moves, hybrid, &policy, &paused, applied, plan("late", 1, true), sure, &group, &alone}
	return NewStatusCollector(fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build(), func() bool { return true }).(*statusCollector)
}

func TestMetricsOfStatuses(t *testing.T) {
	collector := someStatuses(t)
	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(collector); err != nil {
		t.Fatal(err)
	}
	names := []string{
		"joulevirt_policy_info", "joulevirt_policy_hold_back_ratio", "joulevirt_policy_reached_vms", "joulevirt_policy_unreached_vms",
		"joulevirt_policy_reached_bytes_ratio", "joulevirt_policy_potential_watts", "joulevirt_policy_finding_objects", "joulevirt_policy_finding_watts", "joulevirt_nodeplan_applied", "joulevirt_nodeplan_levers",
		"joulevirt_placement_moves", "joulevirt_placement_planned_saving_watts", "joulevirt_hosts",
		"joulevirt_hybrid_workload_vms", "joulevirt_group_info", "joulevirt_group_predicted_saving_low_watts", "joulevirt_group_predicted_saving_high_watts", "joulevirt_group_share_ratio",
	}
	const want = `joulevirt_group_info{namespace="ns",profile="web",reason="Skewed",state="InForce"} 1
joulevirt_group_predicted_saving_high_watts{namespace="ns",profile="web"} 5
joulevirt_group_predicted_saving_low_watts{namespace="ns",profile="web"} 1
joulevirt_group_share_ratio{name="x",namespace="ns",profile="web",share="Measured"} 0.7
joulevirt_group_share_ratio{name="x",namespace="ns",profile="web",share="Planned"} 0.75
joulevirt_group_share_ratio{name="y",namespace="ns",profile="web",share="Planned"} 0.25
joulevirt_hosts{policy="p",state="Off"} 1
joulevirt_hosts{policy="p",state="On"} 2
joulevirt_hybrid_workload_vms{hybrid_workload="web",namespace="shop",state="all"} 3
joulevirt_hybrid_workload_vms{hybrid_workload="web",namespace="shop",state="offloaded"} 2
joulevirt_nodeplan_applied{node="a"} 1
joulevirt_nodeplan_applied{node="late"} 0
joulevirt_nodeplan_levers{lever="Affinity",node="a",reason="Applied",state="InForce"} 2
joulevirt_nodeplan_levers{lever="Affinity",node="a",reason="Contested",state="Blocked"} 1
joulevirt_placement_moves{phase="Failed",policy="p"} 1
joulevirt_placement_moves{phase="Pending",policy="p"} 0
joulevirt_placement_moves{phase="Planned",policy="p"} 2
joulevirt_placement_moves{phase="Running",policy="p"} 1
joulevirt_placement_moves{phase="Succeeded",policy="p"} 1
joulevirt_placement_moves{phase="Withdrawn",policy="p"} 0
joulevirt_placement_planned_saving_watts{policy="p"} 20
joulevirt_policy_finding_objects{changed_by="ClusterAdmin",policy="p",reason="SleepHeld"} 2
joulevirt_policy_finding_objects{changed_by="VMOwner",policy="p",reason="EmulatedDisk"} 3
joulevirt_policy_finding_watts{basis="Modelled",policy="p",reason="SleepHeld"} 50
joulevirt_policy_hold_back_ratio{policy="p"} 0.05
joulevirt_policy_hold_back_ratio{policy="q"} 0.05
joulevirt_policy_info{mode="Enforce",policy="p"} 1
joulevirt_policy_info{mode="Paused",policy="q"} 1
joulevirt_policy_potential_watts{lever="Affinity",policy="p"} 4
joulevirt_policy_reached_bytes_ratio{lever="Affinity",policy="p"} 0.75
joulevirt_policy_reached_vms{lever="Affinity",policy="p"} 3
joulevirt_policy_unreached_vms{lever="Affinity",policy="p",reason="NoProfile"} 2`
	if diff := cmp.Diff(want, controllertest.Series(t, registry, names)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	collector.leads = func() bool { return false }
	if left := controllertest.Series(t, registry, names); left != "" {
		t.Errorf("a manager that does not lead shows\n%s", left)
	}
}
