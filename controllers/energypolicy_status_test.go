package controllers

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/observe"
	"github.com/joulevirt/joulevirt/internal/observe/rates"
)

func policyOf(name string, priority int32, zone string) v1alpha1.EnergyPolicy {
	policy := v1alpha1.EnergyPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Generation: 3},
		Spec: v1alpha1.EnergyPolicySpec{
			Priority: priority, Mode: v1alpha1.ModeEnforce, Levers: []v1alpha1.Lever{v1alpha1.LeverShaping, "Sleep", v1alpha1.LeverAffinity, v1alpha1.LeverBuffering},
		},
	}
	if zone != "" {
		policy.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"zone": zone}}
	}
	return policy
}

func reportOf(source v1alpha1.PowerSource, watts *int64, age time.Duration, running int32) *v1alpha1.NodeReport {
	reported := metav1.NewTime(statusTime().Add(-age))
	report := &v1alpha1.NodeReport{}
	report.Status.ReportedAt = &reported
	report.Status.Power = v1alpha1.Power{Source: source, Watts: watts}
	report.Status.VMs.Running = running
	return report
}

// policyScene has node a in zone x, metered, with three VMs of which one is in
// force, and node b in zone y, whose report is old.
func policyScene(policies ...v1alpha1.EnergyPolicy) policyView {
	node := func(name, zone string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"zone": zone}}}
	}
	clock := testingclock.NewFakePassiveClock(statusTime())
	plan := applied(shaped(planOf("a", true, "v", "w:CoreWouldBeHot"), "w", "NothingToShape"), 2, "v", v1alpha1.LeverInForce, "Applied")
	return policyView{
		policies: observe.NewPolicies(policies), now: statusTime(),
		powers: &observe.Powers{Rates: rates.NewStore(clock, time.Minute, time.Minute), Meters: metersByURL{}, Clock: clock},
		nodes:  []*corev1.Node{node("a", "x"), node("b", "y")},
		reports: map[string]*v1alpha1.NodeReport{
			"a": reportOf(v1alpha1.PowerRAPL, ptr.To[int64](120), time.Minute, 3),
			"b": reportOf(v1alpha1.PowerRAPL, ptr.To[int64](80), time.Hour, 0),
		},
		plans: map[string]*indexedPlan{
			"a": {NodePlan: buffered(plan, "w", v1alpha1.ReasonFewPackets, nil)},
		},
	}
}

func TestPolicyStatus(t *testing.T) {
	policy := policyOf("p", 0, "")
	got := policyStatus(&policy, policyScene(policy))
	got.Conditions = nil
	want := v1alpha1.EnergyPolicyStatus{
		ObservedGeneration: 3,
		Nodes:              v1alpha1.NodeCounts{Selected: 2, Governed: 2, Reporting: 1, Metered: 1},
		UnmeteredNodes:     []string{"b"},
		Watts:              ptr.To[int64](120),
		EnergySources: []v1alpha1.EnergySourceStatus{
			{Type: "RAPL", Available: true, Nodes: 1, Reason: "NoMeter", Message: "node b: the node's agent does not report: look whether it runs there, and at NodeReport b"},
			{Type: "Model", Reason: "NoModel", Message: "node b: the node's agent does not report: look whether it runs there, and at NodeReport b"},
		},
		Coverage: []v1alpha1.LeverCoverage{
			{Lever: "Affinity", VMs: 3, ReachedVMs: 1, Reasons: []v1alpha1.ReasonCount{{Reason: "CoreWouldBeHot", Count: 1}, {Reason: "NoProfile", Count: 1}}},
			{Lever: "Buffering", VMs: 3, Reasons: []v1alpha1.ReasonCount{{Reason: "FewPackets", Count: 1}, {Reason: "NoProfile", Count: 1}, {Reason: "NothingToDo", Count: 1}}},
			{Lever: "Shaping", VMs: 3, Reasons: []v1alpha1.ReasonCount{{Reason: "NoProfile", Count: 1}, {Reason: "NothingToDo", Count: 1}, {Reason: "NothingToShape", Count: 1}}},
			{Lever: "Sleep", VMs: 3, Reasons: []v1alpha1.ReasonCount{{Reason: "NotInThisVersion", Count: 3}}},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestPolicyConditions(t *testing.T) {
	invalid := policyOf("invalid", 0, "")
	invalid.Spec.NodeSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "zone", Operator: "Near"}}}
	for name, tc := range map[string]struct {
		policy                  v1alpha1.EnergyPolicy
		others                  []v1alpha1.EnergyPolicy
		ready, contested, meter string
		words                   []string
	}{
		"governs": {policyOf("p", 0, "x"), nil, "True GoverningNodes", "False NotContested", "True MeterFound",
			[]string{"does not act on: lever Sleep"}},
		"unknown node": {policyOf("p", 0, "misspelt"), nil, "False NoNodesSelected", "False NotContested", "False NoMeter",
			[]string{"spec.nodeSelector", "zone=misspelt", "kubevirt.io/schedulable"}},
		"loses all": {policyOf("p", 0, "x"), []v1alpha1.EnergyPolicy{policyOf("q", 1, "")}, "False OtherPolicyWins", "True OtherPolicyWins", "False NoMeter",
			[]string{"EnergyPolicy q", "spec.priority"}},
		"loses some": {policyOf("p", 0, ""), []v1alpha1.EnergyPolicy{policyOf("q", 1, "x")}, "True GoverningNodes", "True OtherPolicyWins", "False NoMeter",
			[]string{"such as a", "EnergyPolicy q", "1 of 2", "such as b, mode Enforce", "spec.energy.allowModelled", "NodeReport b"}},
		"invalid": {invalid, nil, "False InvalidSelector", "False NotContested", "False NoMeter", []string{"spec.nodeSelector", "Near"}},
	} {
		status := policyStatus(&tc.policy, policyScene(append(tc.others, tc.policy)...))
		checkConditions(t, name, status.Conditions,
			map[string]string{"Ready": tc.ready, "NodesContested": tc.contested, "MeterAvailable": tc.meter}, tc.words)
	}
}

func TestStrip(t *testing.T) {
	vmi := vmiOn("a", "web", "n")
	vmi.Annotations = map[string]string{"large": "text"}
	vmi.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}
	vmi.Spec.Domain.CPU = &virtv1.CPU{DedicatedCPUPlacement: true, Cores: 4}
	vmi.Status.GuestOSInfo.Name = "linux"
	want := vmiOn("a", "web", "n")
	want.Spec.Domain.CPU = &virtv1.CPU{DedicatedCPUPlacement: true}
	got, err := strip(&vmi)
	if diff := cmp.Diff(any(&want), got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	plan := planOf("n", true, "a")
	plan.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}
	got, err = strip(plan)
	if diff := cmp.Diff(any(planOf("n", true, "a")), got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}
