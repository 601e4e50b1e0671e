// Package controllertest has objects for tests of the controllers.
package controllertest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/controllers/collect"
	"github.com/joulevirt/joulevirt/controllers/objects"
	"github.com/joulevirt/joulevirt/internal/energy"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/observe"
	"github.com/joulevirt/joulevirt/internal/observe/rates"
	"github.com/joulevirt/joulevirt/internal/observe/vmstate"
	"github.com/joulevirt/joulevirt/internal/units"
)

// StatusTime is the time at which the tests write statuses.
func StatusTime() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }

// VMIOn returns a VMI of namespace ns that runs on the node, with label app.
func VMIOn(name, app, node string) virtv1.VirtualMachineInstance {
	vmi := virtv1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, Labels: map[string]string{"app": app}}}
	vmi.Status.Phase = virtv1.Running
	vmi.Status.NodeName = node
	vmi.Status.ActivePods = map[types.UID]string{types.UID("pod-" + name): node}
	return vmi
}

// ProfileOf returns a profile of the VMs with label app, created the age before StatusTime.
func ProfileOf(name, app string, age time.Duration) v1alpha1.VMNetworkProfile {
	return v1alpha1.VMNetworkProfile{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: name, UID: types.UID(name), Generation: 3,
			CreationTimestamp: metav1.NewTime(StatusTime().Add(-age)),
		},
		Spec: v1alpha1.VMNetworkProfileSpec{
			Selector:      metav1.LabelSelector{MatchLabels: map[string]string{"app": app}},
			ServiceLevels: v1alpha1.ServiceLevels{MaxStealPercent: 5}, // the API's default
		},
	}
}

// PlanOf plans pins for the VMs named, and a reason for those after a colon.
func PlanOf(node string, apply bool, vms ...string) *v1alpha1.NodePlan {
	plan := &v1alpha1.NodePlan{ObjectMeta: metav1.ObjectMeta{Name: node, Generation: 2}}
	plan.Spec.Apply = apply
	for _, text := range vms {
		name, reason, unpinned := strings.Cut(text, ":")
		vm := v1alpha1.VMPlan{VMReference: v1alpha1.VMReference{Namespace: "ns", Name: name, PodUID: types.UID("pod-" + name)}}
		if !unpinned {
			reason = v1alpha1.ReasonPinned
			vm.Affinity = &v1alpha1.AffinityAction{VCPUs: []v1alpha1.VCPUPin{{CPUs: "0"}}}
		}
		vm.Reasons = []v1alpha1.LeverReason{{Lever: v1alpha1.LeverAffinity, Reason: reason}}
		plan.Spec.VMs = append(plan.Spec.VMs, vm)
	}
	return plan
}

// Applied adds to the plan's status what the agent did with lever Affinity for a VM, and which
// generation of the plan it had read.
func Applied(plan *v1alpha1.NodePlan, generation int64, vm string, state v1alpha1.LeverState, reason string) *v1alpha1.NodePlan {
	plan.Status.ObservedGeneration = generation
	plan.Status.VMs = append(plan.Status.VMs, v1alpha1.VMApplied{
		VMReference: v1alpha1.VMReference{PodUID: types.UID("pod-" + vm), Name: vm, Namespace: "ns"},
		LeverReason: v1alpha1.LeverReason{Lever: v1alpha1.LeverAffinity, Reason: reason},
		State:       state,
	})
	return plan
}

// Shaped adds to the plan why lever Shaping acts on a VM or not, and the action if it does.
func Shaped(plan *v1alpha1.NodePlan, vm string, reason string) *v1alpha1.NodePlan {
	for i := range plan.Spec.VMs {
		if planned := &plan.Spec.VMs[i]; planned.Name == vm {
			planned.Reasons = append(planned.Reasons, v1alpha1.LeverReason{Lever: v1alpha1.LeverShaping, Reason: reason})
			if reason == v1alpha1.ReasonTakesTurns || reason == v1alpha1.ReasonCeiling {
				planned.Shaping = &v1alpha1.ShapingAction{}
			}
		}
	}
	return plan
}

// CheckConditions also wants every word in some message, and the generation of
// the spec.
func CheckConditions(t *testing.T, name string, conditions []metav1.Condition, want map[string]string, words []string) {
	t.Helper()
	var messages string
	for kind, text := range want {
		got := meta.FindStatusCondition(conditions, kind)
		if got == nil || fmt.Sprintf("%s %s", got.Status, got.Reason) != text || got.ObservedGeneration != 3 || !got.LastTransitionTime.Time.Equal(StatusTime()) {
			t.Errorf("%s: condition %s is %+v, want %s", name, kind, got, text)
			continue
		}
		messages += got.Message + "\n"
	}
	for _, word := range words {
		if !strings.Contains(messages, word) {
			t.Errorf("%s: no message has %q:\n%s", name, word, messages)
		}
	}
}

// PolicyOf returns a policy that enforces, for the nodes of a zone. Empty: for all nodes.
func PolicyOf(name string, priority int32, zone string) v1alpha1.EnergyPolicy {
	policy := v1alpha1.EnergyPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Generation: 3},
		Spec: v1alpha1.EnergyPolicySpec{
			Priority: priority, Mode: v1alpha1.ModeEnforce, Levers: []v1alpha1.Lever{v1alpha1.LeverShaping, v1alpha1.LeverAffinity, v1alpha1.LeverBuffering},
			// The defaults that the API server sets.
			Energy: v1alpha1.EnergySettings{Sources: []v1alpha1.EnergySource{
				{Type: v1alpha1.PowerRAPL, Freshness: &metav1.Duration{Duration: 2 * time.Minute}},
				{Type: v1alpha1.PowerModel, Freshness: &metav1.Duration{Duration: 2 * time.Minute}},
			}},
			Guardrails:             v1alpha1.Guardrails{MaxCoreUtilizationPercent: 85, SiblingSharing: v1alpha1.ShareWithinNamespace},
			Budgets:                v1alpha1.Budgets{MaxNodesChanging: 10},
			Verification:           v1alpha1.Verification{HoldBackPercent: ptr.To(int32(5))},
			RecommendationValidity: &metav1.Duration{Duration: 24 * time.Hour},
		},
	}
	if zone != "" {
		policy.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"zone": zone}}
	}
	return policy
}

// ReportOf returns the report of a node with so many running VMs, reported the age before
// StatusTime. Nil watts: its power is not known.
func ReportOf(source v1alpha1.PowerSource, watts *int64, age time.Duration, running int32) *v1alpha1.NodeReport {
	reported := metav1.NewTime(StatusTime().Add(-age))
	report := &v1alpha1.NodeReport{}
	report.Status.ReportedAt = &reported
	report.Status.Power = v1alpha1.Power{Source: source, Watts: watts}
	report.Status.VMs = running
	return report
}

// NodeOf returns a node of a zone that can run VMs, with addresses that follow from its name.
func NodeOf(name, zone string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"zone": zone, virtv1.NodeSchedulable: "true"}},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{
			{Type: corev1.NodeInternalIP, Address: "10.0.0." + name}, {Type: corev1.NodeHostName, Address: name + ".example"},
			{Type: corev1.NodeExternalIP, Address: "192.0.2.1"},
		}},
	}
}

// Buffered adds what a plan says of lever Buffering, and what the agent read back. Nil: it
// did not act.
func Buffered(plan *v1alpha1.NodePlan, vm, reason string, back *v1alpha1.BufferingReadBack) *v1alpha1.NodePlan {
	for i := range plan.Spec.VMs {
		planned := &plan.Spec.VMs[i]
		if planned.Name != vm {
			continue
		}
		planned.Reasons = append(planned.Reasons, v1alpha1.LeverReason{Lever: v1alpha1.LeverBuffering, Reason: reason, Message: "words of the plan"})
		switch reason {
		case v1alpha1.ReasonBuffered:
			planned.Buffering = &v1alpha1.BufferingAction{WindowMicroseconds: ptr.To[int32](250), OnPacketsPerSecond: 10_000}
		case v1alpha1.ReasonFloodDefenceOnly:
			planned.Buffering = &v1alpha1.BufferingAction{FloodWindowMicroseconds: ptr.To[int32](500), OnPacketsPerSecond: 10_000}
		}
	}
	if back != nil {
		plan.Status.ObservedGeneration = plan.Generation
		plan.Status.VMs = append(plan.Status.VMs, v1alpha1.VMApplied{
			VMReference: v1alpha1.VMReference{PodUID: types.UID("pod-" + vm), Name: vm, Namespace: "ns"},
			LeverReason: v1alpha1.LeverReason{Lever: v1alpha1.LeverBuffering, Reason: v1alpha1.ReasonApplied, Message: "words of the agent"},
			State:       v1alpha1.LeverInForce,
			Buffering:   back,
		})
	}
	return plan
}

// Disturbances are verdicts by the UID of the launcher pod.
type Disturbances map[string]model.Disturbance

// Floods are what is known by the UID of the launcher pod, of a manager that leads for long.
type Floods map[string]vmstate.Flood

// NoTunings has seen no packets.
type NoTunings struct{}

// NoCosts knows nothing of any node's power.
type NoCosts struct{}

// MetersByURL says of all nodes what a server says of any.
type MetersByURL map[string]energy.Candidate

// MetersByNode says what the server says of each node.
type MetersByNode map[string]energy.Candidate

// WithPrometheus returns the policy with a Prometheus server as its first energy source.
func WithPrometheus(policy v1alpha1.EnergyPolicy) v1alpha1.EnergyPolicy {
	policy.Spec.Energy.Sources = append([]v1alpha1.EnergySource{{
		Type: v1alpha1.PowerPrometheus, Freshness: &metav1.Duration{Duration: 2 * time.Minute},
		Prometheus: &v1alpha1.PrometheusSource{URL: "https://p"},
	}}, policy.Spec.Energy.Sources...)
	return policy
}

// Series returns the samples of metrics, one a line.
func Series(t testing.TB, gatherer prometheus.Gatherer, names []string) string {
	t.Helper()
	families, err := gatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, family := range families {
		if !slices.Contains(names, family.GetName()) {
			continue
		}
		for _, metric := range family.GetMetric() {
			var labels []string
			for _, label := range metric.GetLabel() {
				labels = append(labels, fmt.Sprintf("%s=%q", label.GetName(), label.GetValue()))
			}
			value := metric.GetGauge().GetValue() + metric.GetCounter().GetValue()
			lines = append(lines, fmt.Sprintf("%s{%s} %v", family.GetName(), strings.Join(labels, ","), value))
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// Of returns the verdict on the VM of a launcher pod.
func (d Disturbances) Of(podUID string) model.Disturbance { return d[podUID] }

// Of returns what is known of floods of the VM of a launcher pod.
func (f Floods) Of(podUID string) vmstate.Flood { return f[podUID] }

// Awaited is false: the manager leads for long enough to know of all floods.
func (f Floods) Awaited() bool { return false }

// Of returns the tuning of a VM that was not observed.
func (NoTunings) Of(string) model.Tuning { return model.Tuning{} }

// Costs returns costs that are not known.
func (NoCosts) Costs(string, model.Topology) model.PowerCosts { return model.PowerCosts{} }

// Candidate returns what the server says, whichever the node.
func (m MetersByURL) Candidate(server energy.Server, _ string) energy.Candidate { return m[server.URL] }

// Candidate returns what is said of the node, whichever the server.
func (m MetersByNode) Candidate(_ energy.Server, node string) energy.Candidate { return m[node] }

// GroupProfileOf returns a profile whose VMs are the group behind the Service of its name.
func GroupProfileOf(name string) v1alpha1.VMNetworkProfile {
	profile := ProfileOf(name, name, time.Hour)
	profile.Spec.Group = &v1alpha1.TrafficGroup{Kind: v1alpha1.GroupService, Name: name}
	return profile
}

// OneNode is node n with two cores, of which VM a needs one.
type OneNode struct {
	*testing.T
	Client  client.Client
	Clock   *testingclock.FakePassiveClock
	Metrics *collect.Metrics
	// Meters are the Prometheus servers.
	Meters MetersByURL
}

// NewOneNode returns it with a policy, a profile and a fake API server.
func NewOneNode(t *testing.T) *OneNode {
	t.Helper()
	scheme, err := objects.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	metrics, err := collect.NewMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "n"}}
	report := ReportOf(v1alpha1.PowerRAPL, nil, 0, 1)
	report.Name = "n"
	report.Status.RatesAddress = "192.0.2.1:8443"
	report.Status.Topology.CoreGroups = []v1alpha1.CoreGroup{{Cores: []string{"0", "1"}}}
	policy, profile, vmi := PolicyOf("p", 0, ""), ProfileOf("web", "web", time.Hour), VMIOn("a", "web", "n")
	c := fake.NewClientBuilder().WithScheme(scheme).
		WithObjects(node, report, &policy, &profile, &vmi).
		WithIndex(&virtv1.VirtualMachineInstance{}, observe.VMIsByNode, func(o client.Object) []string {
			return observe.NodesOf(o.(*virtv1.VirtualMachineInstance))
		}).Build()
	return &OneNode{T: t, Client: c, Clock: testingclock.NewFakePassiveClock(StatusTime()), Metrics: metrics, Meters: MetersByURL{}}
}

// Heard is what the node's agent says.
func (s *OneNode) Heard() *rates.Store {
	store := rates.NewStore(s.Clock, time.Minute, time.Minute)
	store.Put(&model.NodeRates{Node: "n", Time: StatusTime(), VMs: []model.VMRates{{
		PodUID: "pod-a", AllowedCPUs: units.NewCPUSet(0, 1),
		VCPUs: []model.VCPURates{{CPUs: units.NewCPUSet(0, 1), ThreadRates: model.ThreadRates{RunCores: 0.5}}},
	}}})
	return store
}

// VMs implements observe.Meters: nothing is known of single VMs.

// VMs implements observe.Meters: nothing is known of single VMs.
