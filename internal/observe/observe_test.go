package observe

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
)

// The model repeats the API's words, because it must not import the API.
func TestReasonsAreTheAPIs(t *testing.T) {
	for word, api := range map[model.Reason]string{
		model.ReasonPlanned: v1alpha1.ReasonPlanned, model.ReasonNothingToDo: v1alpha1.ReasonNothingToDo,
		model.ReasonNodeFrozen: v1alpha1.ReasonNodeFrozen, model.ReasonNoReport: v1alpha1.ReasonNoReport,
		model.ReasonReportUnreadable: v1alpha1.ReasonReportUnreadable, model.ReasonNoRates: v1alpha1.ReasonNoRates, model.ReasonNoMeter: v1alpha1.ReasonNoMeter,
		model.ReasonObserveOnly: v1alpha1.ReasonObserveOnly, model.ReasonLeverNotAllowed: v1alpha1.ReasonLeverNotAllowed,
		model.ReasonNamespaceNotSelected: v1alpha1.ReasonNamespaceNotSelected, model.ReasonPinned: v1alpha1.ReasonPinned,
		model.ReasonSharedPreferred: v1alpha1.ReasonSharedPreferred, model.ReasonDedicatedCPUs: v1alpha1.ReasonDedicatedCPUs,
		model.ReasonCoreWouldBeHot: v1alpha1.ReasonCoreWouldBeHot, model.ReasonNoAllowedCore: v1alpha1.ReasonNoAllowedCore,
		model.ReasonTakesTurns: v1alpha1.ReasonTakesTurns, model.ReasonCeiling: v1alpha1.ReasonCeiling,
		model.ReasonNothingToShape: v1alpha1.ReasonNothingToShape, model.ReasonCeilingTooLow: v1alpha1.ReasonCeilingTooLow,
		model.ReasonTrafficUnknown: v1alpha1.ReasonTrafficUnknown, model.ReasonSendsLittle: v1alpha1.ReasonSendsLittle,
		model.ReasonNoOtherSender: v1alpha1.ReasonNoOtherSender, model.ReasonNoRoom: v1alpha1.ReasonNoRoom,
		model.ReasonSeparated: v1alpha1.ReasonSeparated, model.ReasonNothingToSeparate: v1alpha1.ReasonNothingToSeparate,
		model.ReasonNoSaving: v1alpha1.ReasonNoSaving, model.ReasonSiblingsTaken: v1alpha1.ReasonSiblingsTaken,
		model.ReasonShortSlice: v1alpha1.ReasonShortSlice, model.ReasonLongSlice: v1alpha1.ReasonLongSlice,
		model.ReasonNoOtherPool: v1alpha1.ReasonNoOtherPool, model.ReasonSlicesUnsupported: v1alpha1.ReasonSlicesUnsupported,
		model.ReasonBuffered: v1alpha1.ReasonBuffered, model.ReasonFloodDefenceOnly: v1alpha1.ReasonFloodDefenceOnly,
		model.ReasonNoLatencyBudget: v1alpha1.ReasonNoLatencyBudget, model.ReasonBufferingUnsupported: v1alpha1.ReasonBufferingUnsupported,
		model.ReasonFewPackets: v1alpha1.ReasonFewPackets, model.ReasonHurts: v1alpha1.ReasonHurts, model.ReasonNoTap: v1alpha1.ReasonNoTap,
		model.ReasonNotRunning: v1alpha1.ReasonNotRunning, model.ReasonAwaitingMeter: v1alpha1.ReasonAwaitingMeter, model.ReasonAwaitingApproval: v1alpha1.ReasonAwaitingApproval,
	} {
		if string(word) != api {
			t.Errorf("the model's %q is the API's %q", word, api)
		}
	}
	for word, api := range map[string]string{
		string(model.ModeObserve): string(v1alpha1.ModeObserve), string(model.ModeRecommend): string(v1alpha1.ModeRecommend),
		string(model.ModeEnforce): string(v1alpha1.ModeEnforce), string(model.LeverAffinity): string(v1alpha1.LeverAffinity),
		string(model.AffinityAuto): string(v1alpha1.AffinityAuto), string(model.AffinityShared): string(v1alpha1.AffinityShared),
		string(model.LeverShaping): string(v1alpha1.LeverShaping), string(model.TrafficDeferrable): string(v1alpha1.TrafficDeferrable),
		string(model.LeverSlice):     string(v1alpha1.LeverSlice),
		string(model.LeverBuffering): string(v1alpha1.LeverBuffering), string(model.TrafficThroughput): string(v1alpha1.TrafficThroughput),
		string(model.TrafficInteractive): string(v1alpha1.TrafficInteractive),
		string(model.PoolNetwork):        string(v1alpha1.PoolNetwork), string(model.PoolCompute): string(v1alpha1.PoolCompute),
		string(model.ShareWithinVM): string(v1alpha1.ShareWithinVM), string(model.ShareAny): string(v1alpha1.ShareAny),
		string(model.ShareWithinNamespace): string(v1alpha1.ShareWithinNamespace),
		string(model.InterferenceStable):   string(v1alpha1.InterferenceStable), string(model.InterferenceSelf): string(v1alpha1.InterferenceSelf),
		string(model.InterferenceCoRunner): string(v1alpha1.InterferenceCoRunner),
		string(model.AffinitySeparated):    string(v1alpha1.AffinitySeparated), string(model.AffinityPinned): string(v1alpha1.AffinityPinned),
	} {
		if word != api {
			t.Errorf("the model's %q is the API's %q", word, api)
		}
	}
}

func TestLaunchers(t *testing.T) {
	ceiling := resource.MustParse("1.5G")
	profile := Profile{VMNetworkProfile: &v1alpha1.VMNetworkProfile{
		ObjectMeta: metav1.ObjectMeta{Name: "backup"},
		Spec: v1alpha1.VMNetworkProfileSpec{
			TrafficClass: v1alpha1.TrafficDeferrable, MaxDelay: &metav1.Duration{Duration: time.Minute},
			Bandwidth: &v1alpha1.BandwidthLimits{Ceiling: &ceiling}, Affinity: v1alpha1.AffinityAuto,
			ServiceLevels: v1alpha1.ServiceLevels{
				MaxStealPercent: 8, MaxDropsPerMillion: ptr.To[int32](20), MinThroughputPercent: ptr.To[int32](95),
			},
			LatencyBudget: &metav1.Duration{Duration: 500 * time.Microsecond},
			Buffering: v1alpha1.BufferingPreferences{
				OnPacketsPerSecond: 20_000, FloodDefence: v1alpha1.FloodDefenceForbid,
				SmallPacketServices: []v1alpha1.ServicePort{{Port: 5060}, {Protocol: "TCP", Port: 53}, {Protocol: "UDP", Port: 53}, {Port: 5060}, {Port: 70_000}},
			},
		},
	}}
	vmi := &virtv1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "vm"}}
	vmi.Status.ActivePods = map[types.UID]string{"a": "n", "b": "other"}
	want := []model.VM{{
		PodUID: "a", Namespace: "ns", Name: "vm", Profile: "backup", Affinity: model.AffinityAuto,
		TrafficClass: model.TrafficDeferrable, MaxDelay: time.Minute, Ceiling: 1.5e9, MaxSteal: 0.08, NamespaceSelected: true,
		LatencyBudget: 500 * time.Microsecond, OnPackets: 20_000, MaxDrops: ptr.To(20e-6), KeepThroughput: 0.95,
		Services: []model.Service{{Port: 53}, {UDP: true, Port: 53}, {UDP: true, Port: 5060}},
	}}
	if diff := cmp.Diff(want, launchers(vmi, "n", profile, true)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	plain := Profile{VMNetworkProfile: &v1alpha1.VMNetworkProfile{Spec: v1alpha1.VMNetworkProfileSpec{Bandwidth: &v1alpha1.BandwidthLimits{}}}}
	if got := launchers(vmi, "n", plain, true)[0]; got.Ceiling != 0 || got.MaxDelay != 0 || got.Defers() || got.MaxSteal != 0.05 ||
		got.LatencyBudget != 0 || got.OnPackets != 10_000 || !got.DefendFloods || got.MaxDrops != nil || got.KeepThroughput != 0 || got.Services != nil {
		t.Errorf("a profile that asks for nothing gives %+v", got)
	}
}

func at(minute int) metav1.Time {
	return metav1.NewTime(time.Date(2026, 3, 1, 12, minute, 0, 0, time.UTC))
}

func TestProfilesOrder(t *testing.T) {
	profile := func(name string, minute int, selector metav1.LabelSelector) v1alpha1.VMNetworkProfile {
		return v1alpha1.VMNetworkProfile{
			ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: at(minute)},
			Spec:       v1alpha1.VMNetworkProfileSpec{Selector: selector},
		}
	}
	web := metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	invalid := metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Near"}}}
	going := profile("going", 0, web)
	going.DeletionTimestamp = &going.CreationTimestamp
	profiles := NewProfiles([]v1alpha1.VMNetworkProfile{
		profile("young", 2, web), profile("b", 1, web), profile("a", 1, web), profile("oldest", 0, invalid), going,
	})
	var names []string
	for _, p := range profiles {
		names = append(names, p.Name)
	}
	if want := []string{"oldest", "a", "b", "young"}; !slices.Equal(names, want) {
		t.Errorf("order %v, want %v", names, want)
	}
	vmi := &virtv1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}}}
	winner, found := profiles.Governing(vmi)
	if !found || winner.Name != "a" || profiles[0].Err == nil {
		t.Errorf("winner %v, error of the oldest %v", winner.Name, profiles[0].Err)
	}
	if _, found := profiles.Governing(&virtv1.VirtualMachineInstance{}); found {
		t.Error("a VM without labels is governed")
	}
}

func TestPoliciesOrder(t *testing.T) {
	policy := func(name string, priority int32, minute int, change func(*v1alpha1.EnergyPolicySpec)) v1alpha1.EnergyPolicy {
		p := v1alpha1.EnergyPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: at(minute)},
			Spec:       v1alpha1.EnergyPolicySpec{Priority: priority},
		}
		if change != nil {
			change(&p.Spec)
		}
		return p
	}
	list := "x"
	policies := NewPolicies([]v1alpha1.EnergyPolicy{
		policy("young", 0, 2, nil), policy("old", 0, 1, nil),
		policy("zone", 5, 3, func(s *v1alpha1.EnergyPolicySpec) {
			s.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"zone": "a"}}
		}),
		policy("unreadable", 9, 0, func(s *v1alpha1.EnergyPolicySpec) { s.Guardrails.ReservedCPUs = &list }),
		policy("invalid", 9, 0, func(s *v1alpha1.EnergyPolicySpec) {
			s.NamespaceSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Near"}}}
		}),
	})
	for name, tc := range map[string]struct {
		labels map[string]string
		want   string
	}{
		"in the zone":     {map[string]string{"zone": "a"}, "zone"},
		"not in the zone": {nil, "old"},
	} {
		winner, _ := policies.Governing(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: tc.labels}})
		if winner.EnergyPolicy == nil || winner.Name != tc.want {
			t.Errorf("%s: %v wins, want %s", name, winner.EnergyPolicy, tc.want)
		}
	}
	if policies[0].Err == nil || policies[1].Err == nil {
		t.Error("policies that cannot be read have no error")
	}
}

func TestSharingOfStoredPolicies(t *testing.T) {
	for given, want := range map[v1alpha1.SiblingSharing]model.SiblingSharing{
		"": model.ShareWithinNamespace, v1alpha1.ShareWithinVM: model.ShareWithinVM, v1alpha1.ShareAny: model.ShareAny,
	} {
		policy := &v1alpha1.EnergyPolicy{Spec: v1alpha1.EnergyPolicySpec{Guardrails: v1alpha1.Guardrails{SiblingSharing: given}}}
		if got, err := Policy(policy); err != nil || got.Sharing != want {
			t.Errorf("%q is read as %q, %v; want %q", given, got.Sharing, err, want)
		}
	}
}

func TestNodes(t *testing.T) {
	cordoned := &corev1.Node{Spec: corev1.NodeSpec{Unschedulable: true}}
	draining := &corev1.Node{Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: "kubevirt.io/drain"}}}}
	if !Frozen(cordoned) || !Frozen(draining) || Frozen(&corev1.Node{}) {
		t.Error("Frozen is wrong")
	}
	off := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{virtv1.NodeSchedulable: "false"}}}
	if !RunsVMs(off, false) || !RunsVMs(&corev1.Node{}, true) || RunsVMs(&corev1.Node{}, false) {
		t.Error("RunsVMs is wrong")
	}
	migrating := &virtv1.VirtualMachineInstance{}
	migrating.Status.ActivePods = map[types.UID]string{"1": "b", "2": "a", "3": ""}
	if got := NodesOf(migrating); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("nodes %v", got)
	}
}
