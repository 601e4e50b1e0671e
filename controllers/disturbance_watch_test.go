package controllers

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/observe/disturbance"
	"github.com/joulevirt/joulevirt/internal/observe/flood"
	"github.com/joulevirt/joulevirt/internal/observe/tuning"
	"github.com/joulevirt/joulevirt/internal/planner/interference"
)

// disturbances are verdicts by the UID of the launcher pod.
type disturbances map[string]model.Disturbance

func (d disturbances) Of(podUID string) model.Disturbance { return d[podUID] }

// floods are what is known by the UID of the launcher pod, of a manager that leads for long.
type floods map[string]flood.State

func (f floods) Of(podUID string) flood.State { return f[podUID] }

func (f floods) Awaited() bool { return false }

// noTunings has seen no packets.
type noTunings struct{}

func (noTunings) Of(string, types.NamespacedName) model.Tuning { return model.Tuning{} }

// noCosts knows nothing of any node's power.
type noCosts struct{}

func (noCosts) Costs(string, model.Topology) model.PowerCosts { return model.PowerCosts{} }

// byWeight says that a VM of weight 1 is stable, and one of weight 2 disturbed.
type byWeight struct{ sample interference.Sample }

func (d *byWeight) Add(s interference.Sample) { d.sample = s }

func (d *byWeight) Disturbance() model.Disturbance {
	out := model.Disturbance{Since: statusTime()}
	switch {
	case d.sample.Nested: // steal is not trusted
	case d.sample.Rates.Weight == 1:
		out.Verdict = model.InterferenceStable
	case d.sample.Rates.Weight == 2:
		out.Verdict, out.Heavy = model.InterferenceCoRunner, d.sample.MaxSteal < 0.06
	}
	return out
}

// watched is a watch over VMs a and b of profile web on node n, d of the same profile on
// node m, and c without a profile.
type watched struct {
	*disturbanceWatch
	client client.Client
	clock  *testingclock.FakeClock
	told   []string
}

func newWatched(t *testing.T) *watched {
	t.Helper()
	scheme, err := NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	web := profileOf("web", "web", time.Hour)
	web.Spec.ServiceLevels.MaxStealPercent = 8
	objects := []client.Object{&web, &v1alpha1.NodeReport{ObjectMeta: metav1.ObjectMeta{Name: "n"}}}
	for name, app := range map[string]string{"a": "web", "b": "web", "c": "db"} {
		vmi := vmiOn(name, app, "n")
		objects = append(objects, &vmi)
	}
	elsewhere := vmiOn("d", "web", "m")
	objects = append(objects, &elsewhere)
	w := &watched{clock: testingclock.NewFakeClock(statusTime())}
	w.client = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
	w.disturbanceWatch = newDisturbanceWatch(disturbanceOptions{
		reader: w.client, clock: w.clock, log: logr.Discard(), interval: 15 * time.Second, settle: time.Minute,
		floods: flood.NewStore(w.clock, 2*time.Minute, 30*time.Second), tuning: tuning.NewStore(w.clock, 2*time.Minute),
		store:   disturbance.NewStore(w.clock, 2*time.Minute, func() disturbance.Detector { return &byWeight{} }),
		changed: func(_ context.Context, p types.NamespacedName) { w.told = append(w.told, p.String()) },
		replan:  func(_ context.Context, node string) { w.told = append(w.told, "node "+node) },
	})
	return w
}

// after hears rates of VMs with these weights, and looks. It returns what was told.
func (w *watched) after(t *testing.T, wait time.Duration, weights map[string]float64) []string {
	t.Helper()
	w.clock.Step(wait)
	rates := &model.NodeRates{Node: "n", Time: w.clock.Now(), IntervalSeconds: 1}
	for vm, weight := range weights {
		rates.VMs = append(rates.VMs, model.VMRates{PodUID: "pod-" + vm, Name: vm, Weight: weight})
	}
	w.told = nil
	w.Hear(t.Context(), rates)
	if err := w.look(t.Context()); err != nil {
		t.Fatal(err)
	}
	slices.Sort(w.told)
	return w.told
}

func TestDisturbanceWatch(t *testing.T) {
	w := newWatched(t)
	w.Hear(t.Context(), &model.NodeRates{Node: "n", VMs: []model.VMRates{{PodUID: "pod-a", Weight: 2}}})
	if err := w.look(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(w.told) != 0 || w.store.Len() != 0 {
		t.Errorf("told %v of a node that no look had seen", w.told)
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
	if w.store.Len() != 0 || len(w.planned) != 0 {
		t.Errorf("%d VMs and the nodes %v are remembered", w.store.Len(), w.planned)
	}
}

func TestDisturbanceCircumstances(t *testing.T) {
	w := newWatched(t)
	if err := w.look(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.after(t, time.Second, map[string]float64{"a": 2, "c": 2, "d": 2, "nobody's": 2})
	if a := w.store.Of("pod-a"); a.Verdict != model.InterferenceCoRunner || a.Heavy {
		t.Errorf("a %+v: want it judged by its profile's level", a)
	}
	if w.store.Len() != 1 {
		t.Errorf("%d VMs are followed: want a alone, whose profile is known to have it on this node", w.store.Len())
	}
	patch := client.RawPatch(types.MergePatchType, []byte(`{"status":{"topology":{"nested":true}}}`))
	if err := w.client.Patch(t.Context(), &v1alpha1.NodeReport{ObjectMeta: metav1.ObjectMeta{Name: "n"}}, patch); err != nil {
		t.Fatal(err)
	}
	w.after(t, time.Second, nil)
	w.after(t, time.Second, map[string]float64{"a": 2})
	if a := w.store.Of("pod-a"); a.Verdict != "" {
		t.Errorf("%+v of a VM on a nested node", a)
	}
}
