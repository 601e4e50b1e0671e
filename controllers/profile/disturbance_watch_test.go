package profile

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/controllers/objects"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/observe"
	"github.com/joulevirt/joulevirt/internal/observe/tuning"
	"github.com/joulevirt/joulevirt/internal/observe/vmstate"
	"github.com/joulevirt/joulevirt/internal/symptoms"
	"github.com/joulevirt/joulevirt/internal/units"
	"github.com/joulevirt/joulevirt/test/controllertest"
)

// byWeight says that a VM of weight 1 is stable, and one of weight 2 disturbed.
type byWeight struct{ sample symptoms.Sample }

func (d *byWeight) Add(s symptoms.Sample) { d.sample = s }

func (d *byWeight) Disturbance() model.Disturbance {
	out := model.Disturbance{Since: controllertest.StatusTime()}
	switch {
	case d.sample.Nested: // steal is not trusted
	case d.sample.Rates.Weight == 1:
		out.Verdict = v1alpha1.CauseStable
	case d.sample.Rates.Weight == 2:
		out.Verdict, out.Heavy = v1alpha1.CauseNeighbour, d.sample.MaxSteal < 0.06
	}
	return out
}

// watched is a watch over VMs a and b of profile web on node n, d of the same profile on
// node m, and c without a profile.
type watched struct {
	*DisturbanceWatch
	client   client.Client
	clock    *testingclock.FakeClock
	reported []string
}

func newWatched(t *testing.T) *watched {
	t.Helper()
	scheme, err := objects.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	web := controllertest.ProfileOf("web", "web", time.Hour)
	web.Spec.ServiceLevels.MaxStealPercent = 8
	objects := []client.Object{&web, &v1alpha1.NodeReport{ObjectMeta: metav1.ObjectMeta{Name: "n"}}}
	for name, app := range map[string]string{"a": "web", "b": "web", "c": "db"} {
		vmi := controllertest.VMIOn(name, app, "n")
		objects = append(objects, &vmi)
	}
	elsewhere := controllertest.VMIOn("d", "web", "m")
	objects = append(objects, &elsewhere)
	w := &watched{clock: testingclock.NewFakeClock(controllertest.StatusTime())}
	w.client = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithIndex(&virtv1.VirtualMachineInstance{}, observe.VMIsByNode, func(o client.Object) []string {
			return observe.NodesOf(o.(*virtv1.VirtualMachineInstance))
		}).Build()
	w.DisturbanceWatch = NewDisturbanceWatch(DisturbanceOptions{
		Reader: w.client, Clock: w.clock, Settle: time.Minute,
		Floods: vmstate.NewFloods(w.clock, 2*time.Minute, 30*time.Second), Tuning: tuning.NewStore(w.clock, 2*time.Minute),
		Store:   vmstate.NewDisturbances(w.clock, 2*time.Minute, func() vmstate.Detector { return &byWeight{} }),
		Changed: func(_ context.Context, p types.NamespacedName) { w.reported = append(w.reported, p.String()) },
		Replan:  func(_ context.Context, node string) { w.reported = append(w.reported, "node "+node) },
	})
	return w
}

// after hears rates of VMs with these weights, and looks. It returns what was reported.
func (w *watched) after(t *testing.T, wait time.Duration, weights map[string]float64) []string {
	t.Helper()
	w.clock.Step(wait)
	rates := &model.NodeRates{Node: "n", Time: w.clock.Now(), IntervalSeconds: 1}
	for vm, weight := range weights {
		rates.VMs = append(rates.VMs, model.VMRates{PodUID: "pod-" + vm, Name: vm, Weight: weight})
	}
	w.reported = nil
	w.Hear(t.Context(), rates)
	if err := w.Look(t.Context()); err != nil {
		t.Fatal(err)
	}
	slices.Sort(w.reported)
	return w.reported
}

func TestDisturbanceWatch(t *testing.T) {
	w := newWatched(t)
	w.Hear(t.Context(), &model.NodeRates{Node: "n", VMs: []model.VMRates{{PodUID: "pod-a", Weight: 2}}})
	if err := w.Look(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(w.reported) != 0 || w.Store.Len() != 0 {
		t.Errorf("reported %v of a node that no look had seen", w.reported)
	}
	for _, step := range []struct {
		name    string
		wait    time.Duration
		weights map[string]float64
		want    []string
	}{
		{"known", time.Second, map[string]float64{"a": 1, "b": 1, "c": 2}, []string{"ns/web"}},
		{"the same", time.Second, map[string]float64{"a": 1, "b": 1, "c": 2}, nil},
		{"disturbed", time.Second, map[string]float64{"a": 2, "b": 1}, []string{"node n", "ns/web"}},
		{"another, too soon for a plan", 15 * time.Second, map[string]float64{"a": 1, "b": 2}, []string{"ns/web"}},
		{"after a minute the plan follows", 46 * time.Second, map[string]float64{"a": 1, "b": 2}, []string{"node n"}},
		{"recovered", time.Minute, map[string]float64{"a": 1, "b": 1}, []string{"node n", "ns/web"}},
		{"disturbed again, too soon", time.Second, map[string]float64{"a": 2, "b": 1}, []string{"ns/web"}},
		{"and recovered before the next plan", time.Second, map[string]float64{"a": 1, "b": 1}, []string{"ns/web"}},
		{"a silent node", 3 * time.Minute, nil, []string{"ns/web"}},
	} {
		if diff := cmp.Diff(step.want, w.after(t, step.wait, step.weights)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.name, diff)
		}
	}
	if w.Store.Len() != 0 || len(w.planned) != 0 {
		t.Errorf("%d VMs and the nodes %v are remembered", w.Store.Len(), w.planned)
	}
}

func TestDisturbanceCircumstances(t *testing.T) {
	w := newWatched(t)
	if err := w.Look(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.after(t, time.Second, map[string]float64{"a": 2, "c": 2, "d": 2, "nobody's": 2})
	if a := w.Store.Of("pod-a"); a.Verdict != v1alpha1.CauseNeighbour || a.Heavy {
		t.Errorf("a %+v: want it judged by its profile's level", a)
	}
	if w.Store.Len() != 1 {
		t.Errorf("%d VMs are followed: want a alone, whose profile is known to have it on this node", w.Store.Len())
	}
	patch := client.RawPatch(types.MergePatchType, []byte(`{"status":{"topology":{"nested":true}}}`))
	if err := w.client.Patch(t.Context(), &v1alpha1.NodeReport{ObjectMeta: metav1.ObjectMeta{Name: "n"}}, patch); err != nil {
		t.Fatal(err)
	}
	w.after(t, time.Second, nil)
	w.after(t, time.Second, map[string]float64{"a": 2})
	if a := w.Store.Of("pod-a"); a.Verdict != "" {
		t.Errorf("%+v of a VM on a nested node", a)
	}
}

func someDisturbances() *DisturbanceFacts {
	return &DisturbanceFacts{profiles: map[types.NamespacedName]*profileTally{
		{Namespace: "ns", Name: "web"}:       {verdicts: map[v1alpha1.Cause]int{v1alpha1.CauseStable: 3, v1alpha1.CauseNeighbour: 2, "": 1}, lost: map[v1alpha1.Cause]float64{v1alpha1.CauseNeighbour: 0.6}, heavy: 1, watched: 4, flooded: 2},
		{Namespace: "ns", Name: "unwatched"}: {},
	}}
}

func TestDisturbanceMetrics(t *testing.T) {
	var facts *DisturbanceFacts
	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(NewDisturbanceCollector(func() *DisturbanceFacts { return facts })); err != nil {
		t.Fatal(err)
	}
	names := []string{"joulevirt_profile_flooded_vms", "joulevirt_profile_heavy_steal_vms", "joulevirt_profile_lost_cores", "joulevirt_profile_vms"}
	if got := controllertest.Series(t, registry, names); got != "" {
		t.Errorf("a manager that does not lead shows\n%s", got)
	}
	facts = someDisturbances()
	want := `joulevirt_profile_flooded_vms{namespace="ns",profile="web"} 2
joulevirt_profile_heavy_steal_vms{namespace="ns",profile="unwatched"} 0
joulevirt_profile_heavy_steal_vms{namespace="ns",profile="web"} 1
joulevirt_profile_lost_cores{cause="Neighbour",namespace="ns",profile="unwatched"} 0
joulevirt_profile_lost_cores{cause="Neighbour",namespace="ns",profile="web"} 0.6
joulevirt_profile_lost_cores{cause="OwnLimit",namespace="ns",profile="unwatched"} 0
joulevirt_profile_lost_cores{cause="OwnLimit",namespace="ns",profile="web"} 0
joulevirt_profile_lost_cores{cause="OwnWeight",namespace="ns",profile="unwatched"} 0
joulevirt_profile_lost_cores{cause="OwnWeight",namespace="ns",profile="web"} 0
joulevirt_profile_lost_cores{cause="OwnWork",namespace="ns",profile="unwatched"} 0
joulevirt_profile_lost_cores{cause="OwnWork",namespace="ns",profile="web"} 0
joulevirt_profile_vms{cause="Neighbour",namespace="ns",profile="unwatched"} 0
joulevirt_profile_vms{cause="Neighbour",namespace="ns",profile="web"} 2
joulevirt_profile_vms{cause="OwnLimit",namespace="ns",profile="unwatched"} 0
joulevirt_profile_vms{cause="OwnLimit",namespace="ns",profile="web"} 0
joulevirt_profile_vms{cause="OwnWeight",namespace="ns",profile="unwatched"} 0
joulevirt_profile_vms{cause="OwnWeight",namespace="ns",profile="web"} 0
joulevirt_profile_vms{cause="OwnWork",namespace="ns",profile="unwatched"} 0
joulevirt_profile_vms{cause="OwnWork",namespace="ns",profile="web"} 0
joulevirt_profile_vms{cause="Stable",namespace="ns",profile="unwatched"} 0
joulevirt_profile_vms{cause="Stable",namespace="ns",profile="web"} 3
joulevirt_profile_vms{cause="Unknown",namespace="ns",profile="unwatched"} 0
joulevirt_profile_vms{cause="Unknown",namespace="ns",profile="web"} 1`
	if diff := cmp.Diff(want, controllertest.Series(t, registry, names)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// seenSince is what was seen of VM a of profile web.
type seenSince struct{}

func (seenSince) Of(podUID string) model.Tuning {
	if podUID == "pod-a" {
		return model.Tuning{Since: controllertest.StatusTime()}
	}
	return model.Tuning{}
}

// fixedCosts are those of every node.
type fixedCosts struct{ model.PowerCosts }

func (c fixedCosts) Costs(string, model.Topology) model.PowerCosts { return c.PowerCosts }

// A plan is made with the node's kernel, its costs, and what disturbs its VMs.
func TestWhatPlansAreMadeWith(t *testing.T) {
	s := controllertest.NewOneNode(t)
	patch := client.RawPatch(types.MergePatchType, []byte(`{"status":{"capabilities":[{"name":"Other","available":true},{"name":"SchedSlice","available":true},{"name":"Buffering","message":"the kernel has no fq"}]}}`))
	if err := s.Client.Patch(t.Context(), &v1alpha1.NodeReport{ObjectMeta: metav1.ObjectMeta{Name: "n"}}, patch); err != nil {
		t.Fatal(err)
	}
	costs := model.PowerCosts{PerBusyCore: 9, Pinned: 0.2, Separated: 0.1}
	observer := &observe.Observer{
		Reader: s.Client, Powers: &observe.Powers{Rates: s.Heard(), Meters: s.Meters, Clock: s.Clock},
		Costs: fixedCosts{costs}, Disturbances: controllertest.Disturbances{"pod-a": steals(20, 1)}, Tunings: seenSince{},
	}
	seen, err := observer.Node(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "n"}})
	if err != nil || len(seen.Node.VMs) != 1 {
		t.Fatalf("%+v, %v", seen.Node.VMs, err)
	}
	if !seen.Node.Slices || seen.Node.Costs != costs || seen.Node.Buffering != "the kernel has no fq" {
		t.Errorf("slices %t, costs %+v, buffering %q", seen.Node.Slices, seen.Node.Costs, seen.Node.Buffering)
	}
	if vm := seen.Node.VMs[0]; !vm.Tuning.Since.Equal(controllertest.StatusTime()) || !vm.DefendFloods {
		t.Errorf("VM %+v", vm)
	}
	if vm := seen.Node.VMs[0]; vm.Disturbance.Verdict != v1alpha1.CauseNeighbour || vm.MaxSteal != 0.05 {
		t.Errorf("VM %+v", vm)
	}
}

// A VM without a profile is watched where a policy has defaults for it, and by their levels.
func TestVMsOfDefaultsAreWatched(t *testing.T) {
	w := newWatched(t)
	policy := controllertest.PolicyOf("p", 0, "")
	policy.Spec.Defaults = &v1alpha1.ProfileDefaults{ServiceLevels: v1alpha1.ServiceLevels{MaxStealPercent: 3}}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	levels := func() map[string]units.Cores {
		if err := w.Look(t.Context()); err != nil {
			t.Fatal(err)
		}
		got := map[string]units.Cores{}
		for pod, facts := range w.Seen().Pods {
			got[pod] = facts.MaxSteal
		}
		return got
	}
	want := map[string]units.Cores{"pod-a": 0.08, "pod-b": 0.08, "pod-d": 0.08}
	if diff := cmp.Diff(want, levels()); diff != "" {
		t.Errorf("without defaults (-want +got):\n%s", diff)
	}
	for _, o := range []client.Object{node, &policy} {
		if err := w.client.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	want["pod-c"] = 0.03
	if diff := cmp.Diff(want, levels()); diff != "" {
		t.Errorf("with defaults (-want +got):\n%s", diff)
	}
}
