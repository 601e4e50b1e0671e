package policy

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/controllers/group"
	"github.com/joulevirt/joulevirt/controllers/objects"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/observe"
	"github.com/joulevirt/joulevirt/internal/observe/rates"
	"github.com/joulevirt/joulevirt/internal/power"
	"github.com/joulevirt/joulevirt/internal/units"
	"github.com/joulevirt/joulevirt/test/controllertest"
)

// policyScene has node a in zone x, metered, with three VMs of which one is in
// force, and node b in zone y, whose report is old.
func policyScene(policies ...v1alpha1.EnergyPolicy) policyView {
	node := func(name, zone string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"zone": zone}}}
	}
	clock := testingclock.NewFakePassiveClock(controllertest.StatusTime())
	plan := controllertest.Applied(controllertest.Shaped(controllertest.PlanOf("a", true, "v", "w:CoreWouldBeHot"), "w", "NothingToShape"), 2, "v", v1alpha1.LeverInForce, "Applied")
	return policyView{
		policies: observe.NewPolicies(policies), now: controllertest.StatusTime(),
		powers: &observe.Powers{Rates: rates.NewStore(clock, time.Minute, time.Minute), Meters: controllertest.MetersByURL{}, Clock: clock},
		nodes:  []*corev1.Node{node("a", "x"), node("b", "y")},
		reports: map[string]*v1alpha1.NodeReport{
			"a": controllertest.ReportOf(v1alpha1.PowerRAPL, ptr.To[int64](120), time.Minute, 3),
			"b": controllertest.ReportOf(v1alpha1.PowerRAPL, ptr.To[int64](80), time.Hour, 0),
		},
		plans: map[string]*objects.IndexedPlan{
			"a": {NodePlan: controllertest.Buffered(plan, "w", v1alpha1.ReasonFewPackets, nil)},
		},
	}
}

func TestPolicyStatus(t *testing.T) {
	policy := controllertest.PolicyOf("p", 0, "")
	got := policyStatus(&policy, policyScene(policy))
	got.Conditions = nil
	want := v1alpha1.EnergyPolicyStatus{
		ObservedGeneration: 3,
		Nodes:              v1alpha1.NodeCounts{Selected: 2, Governed: 2, Reporting: 1, Metered: 1},
		Watts:              ptr.To[int64](120),
		EnergySources: []v1alpha1.EnergySourceStatus{
			{Type: "RAPL", Nodes: 1, Reason: "NoMeter", Message: "node b: the node's agent does not report: look whether it runs there, and at NodeReport b"},
			{Type: "Model", Reason: "NoModel", Message: "node b: the node's agent does not report: look whether it runs there, and at NodeReport b"},
		},
		Coverage: []v1alpha1.LeverCoverage{
			{Lever: "Affinity", ReachedVMs: 1, Reasons: []v1alpha1.ReasonCount{{Reason: "CoreWouldBeHot", Count: 1}, {Reason: "NoProfile", Count: 1}}},
			{Lever: "Buffering", Reasons: []v1alpha1.ReasonCount{{Reason: "FewPackets", Count: 1}, {Reason: "NoProfile", Count: 1}, {Reason: "NothingToDo", Count: 1}}},
			{Lever: "Shaping", Reasons: []v1alpha1.ReasonCount{{Reason: "NoProfile", Count: 1}, {Reason: "NothingToDo", Count: 1}, {Reason: "NothingToShape", Count: 1}}},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestPolicyConditions(t *testing.T) {
	invalid := controllertest.PolicyOf("invalid", 0, "")
	invalid.Spec.NodeSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "zone", Operator: "Near"}}}
	for name, tc := range map[string]struct {
		policy                  v1alpha1.EnergyPolicy
		others                  []v1alpha1.EnergyPolicy
		ready, contested, meter string
		words                   []string
	}{
		"governs": {controllertest.PolicyOf("p", 0, "x"), nil, "True GoverningNodes", "False NotContested", "True MeterFound",
			[]string{"governs"}},
		"unknown node": {controllertest.PolicyOf("p", 0, "misspelt"), nil, "False NoNodesSelected", "False NotContested", "False NoMeter",
			[]string{"spec.nodeSelector", "zone=misspelt", "kubevirt.io/schedulable"}},
		"loses all": {controllertest.PolicyOf("p", 0, "x"), []v1alpha1.EnergyPolicy{controllertest.PolicyOf("q", 1, "")}, "False OtherPolicyWins", "True OtherPolicyWins", "False NoMeter",
			[]string{"EnergyPolicy q", "spec.priority"}},
		"loses some": {controllertest.PolicyOf("p", 0, ""), []v1alpha1.EnergyPolicy{controllertest.PolicyOf("q", 1, "x")}, "True GoverningNodes", "True OtherPolicyWins", "False NoMeter",
			[]string{"such as a", "EnergyPolicy q", "1 of 2", "such as b, mode Enforce", "spec.energy.allowModelled", "NodeReport b"}},
		"invalid": {invalid, nil, "False InvalidSelector", "False NotContested", "False NoMeter", []string{"spec.nodeSelector", "Near"}},
	} {
		status := policyStatus(&tc.policy, policyScene(append(tc.others, tc.policy)...))
		controllertest.CheckConditions(t, name, status.Conditions,
			map[string]string{"Ready": tc.ready, "NodesContested": tc.contested, "MeterAvailable": tc.meter}, tc.words)
	}
}

func TestPolicyTellsOfGroups(t *testing.T) {
	steered := objects.LeverState{State: v1alpha1.LeverInForce, Reason: "Skewed"}
	view := group.Summary{
		States: map[types.NamespacedName]objects.LeverState{
			{Namespace: "ns", Name: "a"}: steered, {Namespace: "ns", Name: "b"}: steered,
			{Namespace: "ns", Name: "c"}: {State: v1alpha1.LeverBlocked, Reason: v1alpha1.ReasonGroupNotFound},
		},
		Savings: map[string]power.Estimate{"n": {Watts: 4, StdErr: 1}},
	}
	plan := controllertest.PlanOf("n", true, "a", "c", "d")
	rates := &model.NodeRates{Node: "n"}
	for name, bits := range map[string]units.BitsPerSecond{"a": 3e6, "c": 1e6, "d": 0} {
		vm := model.VMRates{Namespace: "ns", Name: name, Taps: []model.TapRates{{}}}
		vm.Taps[0].FromVM.BitsPerSecond = bits
		rates.VMs = append(rates.VMs, vm)
	}
	policy := controllertest.PolicyOf("p", 0, "x")
	policy.Spec.Levers = []v1alpha1.Lever{v1alpha1.LeverTrafficShare}
	tally := policyTally{levers: map[v1alpha1.Lever]*leverTally{v1alpha1.LeverTrafficShare: {reasons: map[string]int32{}}}}
	tally.bytes.add(rates, false, 3)
	tally.addGroups(view, "n", &objects.IndexedPlan{NodePlan: plan}, rates)
	status := v1alpha1.EnergyPolicyStatus{Coverage: coverage(&policy, tally)}
	tally.groups.write(&status)
	want := v1alpha1.EnergyPolicyStatus{
		Coverage: []v1alpha1.LeverCoverage{{
			Lever: v1alpha1.LeverTrafficShare, ReachedVMs: 1, ReachedBytesPercent: ptr.To(int32(75)),
			Reasons: []v1alpha1.ReasonCount{{Reason: "GroupNotFound", Count: 1}, {Reason: "NoGroup", Count: 1}},
		}},
		Potential: []v1alpha1.Saving{{Lever: v1alpha1.LeverTrafficShare, Watts: v1alpha1.Estimate{Value: "4", Low: "2", High: "6"}}},
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

// A change of a node, its report or its plan concerns the policies that select the node alone.
func TestPoliciesConcernedByANode(t *testing.T) {
	scheme, err := objects.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	east, all, west := controllertest.PolicyOf("east", 0, "east"), controllertest.PolicyOf("all", 0, ""), controllertest.PolicyOf("west", 0, "west")
	node, report := controllertest.NodeOf("n", "east"), controllertest.ReportOf(v1alpha1.PowerRAPL, nil, 0, 1)
	report.Name = "n"
	r := &Reconciler{Client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(&east, &all, &west, node).Build()}
	names := func(requests []reconcile.Request) (names []string) {
		for _, request := range requests {
			names = append(names, request.Name)
		}
		slices.Sort(names)
		return names
	}
	plan := controllertest.PlanOf("n", true)
	plan.Spec.Policy = "east"
	gone := controllertest.ReportOf(v1alpha1.PowerRAPL, nil, 0, 1)
	gone.Name = "gone"
	for name, tc := range map[string]struct {
		got  []reconcile.Request
		want []string
	}{
		"node":                  {r.ofNode(t.Context(), node), []string{"all", "east"}},
		"its report":            {r.ofNode(t.Context(), report), []string{"all", "east"}},
		"report of a gone node": {r.ofNode(t.Context(), gone), []string{"all", "east", "west"}},
		"plan":                  {ofPlan(t.Context(), plan), []string{"east"}},
	} {
		if diff := cmp.Diff(tc.want, names(tc.got)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// Each lever's share of bytes is that of the VMs that it reaches, of the traffic of all VMs;
// not known where a node with VMs is not heard, and as it was reported while one is awaited.
func TestReachedBytes(t *testing.T) {
	policy := controllertest.PolicyOf("p", 0, "")
	view := policyScene(policy)
	percents := func() map[v1alpha1.Lever]int32 {
		out := map[v1alpha1.Lever]int32{}
		for _, c := range policyStatus(&policy, view).Coverage {
			if c.ReachedBytesPercent != nil {
				out[c.Lever] = *c.ReachedBytesPercent
			}
		}
		return out
	}
	hear := func(node string, bits map[string]units.BitsPerSecond) {
		heard := &model.NodeRates{Node: node, Time: controllertest.StatusTime()}
		for uid, each := range bits {
			vm := model.VMRates{PodUID: uid, Taps: []model.TapRates{{}}}
			vm.Taps[0].ToVM.BitsPerSecond = each
			heard.VMs = append(heard.VMs, vm)
		}
		view.powers.Rates.(*rates.Store).Put(heard)
	}
	view.powers.Rates = rates.NewStore(testingclock.NewFakePassiveClock(controllertest.StatusTime()), time.Minute, time.Minute)
	if diff := cmp.Diff(map[v1alpha1.Lever]int32{}, percents()); diff != "" {
		t.Errorf("no node is heard (-want +got):\n%s", diff)
	}
	hear("a", map[string]units.BitsPerSecond{"pod-v": 3e6, "pod-w": 1e6, "without a profile": 1e6})
	want := map[v1alpha1.Lever]int32{"Affinity": 60, "Buffering": 0, "Shaping": 0}
	if diff := cmp.Diff(want, percents()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	view.reports["b"].Status.VMs = 1
	if diff := cmp.Diff(map[v1alpha1.Lever]int32{}, percents()); diff != "" {
		t.Errorf("node b has a VM and is not heard (-want +got):\n%s", diff)
	}
	hear("b", map[string]units.BitsPerSecond{"pod-x": 1e6})
	want["Affinity"] = 50
	if diff := cmp.Diff(want, percents()); diff != "" {
		t.Errorf("node b is heard (-want +got):\n%s", diff)
	}
	policy.Status = policyStatus(&policy, view)
	view.powers.Rates = rates.NewStore(testingclock.NewFakePassiveClock(controllertest.StatusTime()), time.Minute, time.Minute)
	for _, report := range view.reports {
		report.Status.RatesAddress = "192.0.2.1:8443"
	}
	if diff := cmp.Diff(want, percents()); diff != "" {
		t.Errorf("by a new leader (-want +got):\n%s", diff)
	}
	view.powers.Rates.(*rates.Store).Failed("b")
	if diff := cmp.Diff(map[v1alpha1.Lever]int32{}, percents()); diff != "" {
		t.Errorf("node b was asked in vain (-want +got):\n%s", diff)
	}
}
