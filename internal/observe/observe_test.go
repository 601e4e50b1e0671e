package observe

import (
	"slices"
	"strings"
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
	"github.com/joulevirt/joulevirt/internal/units"
)

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
				SmallPacketServices: []v1alpha1.ServicePort{{Port: 5060}, {Protocol: "TCP", Port: 53}, {Protocol: "UDP", Port: 53}, {Port: 5060}},
			},
		},
	}}
	vmi := &virtv1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "vm"}}
	vmi.Status.ActivePods = map[types.UID]string{"a": "n", "b": "other"}
	want := []model.VM{{
		PodUID: "a", Namespace: "ns", Name: "vm", Profile: "backup", Affinity: v1alpha1.AffinityAuto,
		TrafficClass: v1alpha1.TrafficDeferrable, MaxDelay: time.Minute, Ceiling: 1.5e9, MaxSteal: 0.08, NamespaceSelected: true,
		LatencyBudget: 500 * time.Microsecond, OnPackets: 20_000, MaxDrops: ptr.To(20e-6), KeepThroughput: 0.95,
		Services: []model.Service{{Port: 53}, {UDP: true, Port: 53}, {UDP: true, Port: 5060}},
	}}
	if diff := cmp.Diff(want, launchers(vmi, "n", profile, true)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	plain := Profile{VMNetworkProfile: &v1alpha1.VMNetworkProfile{Spec: v1alpha1.VMNetworkProfileSpec{Bandwidth: &v1alpha1.BandwidthLimits{}}}}
	if got := launchers(vmi, "n", plain, true)[0]; got.Ceiling != 0 || got.MaxDelay != 0 || got.Defers() ||
		got.LatencyBudget != 0 || !got.DefendFloods || got.MaxDrops != nil || got.KeepThroughput != 0 || got.Services != nil {
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
			Spec:       v1alpha1.EnergyPolicySpec{Priority: priority, RecommendationValidity: &metav1.Duration{Duration: time.Hour}},
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

func TestWithoutBuffering(t *testing.T) {
	for name, tc := range map[string]struct {
		has  []v1alpha1.Capability
		want string
	}{
		"an older agent": {[]v1alpha1.Capability{{Name: "SchedSlice", Available: true}}, "the node's agent has not reported whether it can hold packets"},
		"able":           {[]v1alpha1.Capability{{Name: "SchedSlice"}, {Name: "Buffering", Available: true, Message: "by fq"}}, ""},
		"unable":         {[]v1alpha1.Capability{{Name: "Buffering", Message: "the kernel has no fq"}}, "the kernel has no fq"},
		"without a word": {[]v1alpha1.Capability{{Name: "Buffering"}}, "the node's agent says that it can hold no packets"},
	} {
		report := &v1alpha1.NodeReport{Status: v1alpha1.NodeReportStatus{Capabilities: tc.has}}
		if got := WithoutBuffering(report); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

func TestWithoutShaping(t *testing.T) {
	for want, has := range map[string][]v1alpha1.Capability{
		"":                     {{Name: "Buffering"}, {Name: "Shaping", Available: true}},
		"the kernel has no fq": {{Name: "Shaping", Message: "the kernel has no fq"}},
		"the node's agent says that it cannot shape what VMs send": {{Name: "Shaping"}},
	} {
		report := &v1alpha1.NodeReport{Status: v1alpha1.NodeReportStatus{Capabilities: has}}
		if got := WithoutShaping(report); got != want {
			t.Errorf("%+v: %q, want %q", has, got, want)
		}
	}
}

// A group's member that carries little counts as held while others are: or it would seem
// to cost something else than if it carried more.
func TestGroupsWindow(t *testing.T) {
	member := func(window int, share float64) *model.VMRates {
		return &model.VMRates{Buffering: &model.BufferingRates{WindowMicroseconds: window, ActiveShare: share}}
	}
	plain, idle, busy := &model.VMRates{}, member(500, 0.1), member(250, 0.9)
	if anyHeld([]*model.VMRates{plain, nil, idle}) || windowOf(idle, false) != 0 {
		t.Error("held where nobody's packets are")
	}
	if !anyHeld([]*model.VMRates{idle, nil, busy}) || windowOf(idle, true) != 500*time.Microsecond ||
		windowOf(busy, true) != 250*time.Microsecond || windowOf(plain, true) != 0 || windowOf(nil, true) != 0 {
		t.Error("members' windows while some are held")
	}
}

func TestTopology(t *testing.T) {
	got, err := Topology(v1alpha1.Topology{
		TakenCPUs: "0,2-4", Nested: true, CPUModel: "m",
		CoreGroups: []v1alpha1.CoreGroup{
			{Cores: []string{"1,3"}, LLC: 1, Class: v1alpha1.CorePerformance},
			{Cores: []string{"0,2"}, Package: 2, NUMANode: 3, Class: v1alpha1.CoreEfficiency},
			{Cores: []string{"4"}, LLC: 2},
		},
		NICs: []v1alpha1.NIC{{NUMANode: 1, InterruptCPUs: "1-2"}, {}},
	})
	want := model.Topology{
		Taken: units.NewCPUSet(0, 2, 3, 4), Nested: true, CPUModel: "m",
		Cores: []model.Core{
			{CPUs: units.NewCPUSet(0, 2), Package: 2, NUMANode: 3, Class: v1alpha1.CoreEfficiency},
			{CPUs: units.NewCPUSet(1, 3), LLC: 1, Class: v1alpha1.CorePerformance},
			{CPUs: units.NewCPUSet(4), LLC: 2},
		},
		NICs: []model.NIC{{NUMANode: 1, CPUs: units.NewCPUSet(1, 2)}, {}},
	}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

func TestTopologiesThatCannotBeRead(t *testing.T) {
	groups := func(cores ...string) v1alpha1.Topology {
		return v1alpha1.Topology{CoreGroups: []v1alpha1.CoreGroup{{Cores: []string{"9"}}, {Cores: cores}}}
	}
	for field, bad := range map[string]v1alpha1.Topology{
		"coreGroups[1].cores[1]": groups("0,2", "2,3"),
		"coreGroups[1].cores[0]": groups(""),
		"coreGroups[1].cores[2]": groups("0", "1", "x"),
		"takenCPUs":              {TakenCPUs: "3-1"},
	} {
		if _, err := Topology(bad); err == nil || !strings.Contains(err.Error(), "status.topology."+field+":") {
			t.Errorf("%s: %v", field, err)
		}
	}
}

func annotated(value string) *corev1.Node {
	node := &corev1.Node{}
	node.Annotations = map[string]string{v1alpha1.AnnotationOptOut: value}
	return node
}

func TestOptOut(t *testing.T) {
	levers := func(levers ...v1alpha1.Lever) model.OptOut { return model.OptOut{Levers: levers} }
	all := func(unreadable string) model.OptOut { return model.OptOut{All: true, Unreadable: unreadable} }
	for value, want := range map[string]model.OptOut{
		"true": all(""), " true ": all(""), "false": {},
		"Affinity": levers(v1alpha1.LeverAffinity), "Affinity, Buffering": levers(v1alpha1.LeverAffinity, v1alpha1.LeverBuffering),
		"TrafficShare,Slice,Shaping": levers(v1alpha1.LeverTrafficShare, v1alpha1.LeverSlice, v1alpha1.LeverShaping),
		"":                           all(`""`), "yes": all(`"yes"`), "affinity": all(`"affinity"`), "Affinity,": all(`"Affinity,"`),
		"Affinity;Slice": all(`"Affinity;Slice"`), "True": all(`"True"`), "true,Affinity": all(`"true,Affinity"`),
		strings.Repeat("x", 1000): all(`"` + strings.Repeat("x", 24) + `"`),
	} {
		if diff := cmp.Diff(want, OptOut(annotated(value))); diff != "" {
			t.Errorf("%q (-want +got):\n%s", value, diff)
		}
	}
	if got := OptOut(&corev1.Node{}); got.Keeps(v1alpha1.LeverAffinity) {
		t.Errorf("without the annotation %+v", got)
	}
	if none := (&corev1.Node{}); !OptOutChanged(none, annotated("")) || OptOutChanged(annotated("true"), annotated("true")) || !OptOutChanged(annotated("true"), none) {
		t.Error("changes of the annotation are not seen")
	}
}

// All that there is of levers can be opted out of.
func TestOptOutKnowsAllLevers(t *testing.T) {
	for _, lever := range allLevers() {
		if got := OptOut(annotated(string(lever))); got.All || !got.Keeps(lever) {
			t.Errorf("%s: %+v", lever, got)
		}
	}
}
