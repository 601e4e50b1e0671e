package placement

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/planner/placement"
	"github.com/joulevirt/joulevirt/internal/planner/power"
)

// A node that VMs leave counts as off only where its host will be powered off.
func TestPowersDown(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*facts)
		want   bool
	}{
		"its VMs alone keep it on": {func(*facts) {}, true},
		"it is off": {func(f *facts) {
			f.hosts[0] = v1alpha1.HostStatus{Node: "m", State: v1alpha1.HostOff, Reason: power.ReasonEmpty}
		}, true},
		"it is coming back":     {func(f *facts) { f.hosts[0].State, f.hosts[0].Reason = v1alpha1.HostPoweringOn, power.ReasonNeeded }, false},
		"without hostPower":     {func(f *facts) { f.policy.Spec.HostPower = nil }, false},
		"a recommendation":      {func(f *facts) { f.policy.Spec.Mode = v1alpha1.ModeRecommend }, false},
		"nothing is reported":   {func(f *facts) { f.hosts = nil }, false},
		"control plane":         {func(f *facts) { f.hosts[0].Reason = power.ReasonNodeRole }, false},
		"it runs other pods":    {func(f *facts) { f.hosts[0].Reason = power.ReasonPods }, false},
		"nobody knows its host": {func(f *facts) { f.hosts[0].Reason = v1alpha1.ReasonHostUnknown }, false},
		"it was lately booted":  {func(f *facts) { f.hosts[0].Reason = power.ReasonBootedLately }, true},
	} {
		f := scene(t)
		f.policy.Spec.Mode, f.policy.Spec.HostPower = v1alpha1.ModeEnforce, &v1alpha1.HostPower{ReserveNodes: ptr.To(int32(1))}
		f.hosts = []v1alpha1.HostStatus{{Node: "m", State: v1alpha1.HostOn, Reason: power.ReasonVMs}}
		test.change(f)
		if got := f.problem().Nodes[0].PowersDown; got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// A third of each zone may be off, less other nodes that are not ready, and not all of the policy's.
func TestBoundHosts(t *testing.T) {
	f := scene(t)
	var nodes []corev1.Node
	add := func(zone, name string, ready corev1.ConditionStatus) {
		node := corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}}}
		node.Name, node.Labels = name, map[string]string{corev1.LabelTopologyZone: zone}
		nodes = append(nodes, node)
	}
	for _, name := range []string{"m", "n", "c", "d", "e", "f", "g", "h", "i"} {
		add("a", name, corev1.ConditionTrue)
	}
	for _, name := range []string{"o", "p", "q", "r", "s", "t"} {
		add("b", name, corev1.ConditionTrue)
	}
	f.boundHosts(nodes)
	if f.off != nil {
		t.Errorf("without hostPower: %+v", f.off)
	}
	f.policy.Spec.Mode, f.policy.Spec.HostPower = v1alpha1.ModeEnforce, &v1alpha1.HostPower{ReserveNodes: ptr.To(int32(2))}
	f.nodes[1].node.Name = "o"
	for _, name := range []string{"p", "q"} {
		f.nodes = append(f.nodes, f.nodes[1])
		f.nodes[len(f.nodes)-1].node = &corev1.Node{}
		f.nodes[len(f.nodes)-1].node.Name = name
	}
	want := func(what string, zones map[string]int) {
		t.Helper()
		f.boundHosts(nodes)
		if diff := cmp.Diff(&placement.Off{Reserve: 2, Zones: zones}, f.off); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	want("one node of nine and three of six are the policy's", map[string]int{"a": 0, "b": 2})
	nodes[9].Status.Conditions[0].Status = corev1.ConditionUnknown
	want("one is not ready", map[string]int{"a": 0, "b": 1})
	f.hosts = []v1alpha1.HostStatus{{Node: "o", State: v1alpha1.HostOff}}
	want("because its host is off", map[string]int{"a": 0, "b": 2})
}
