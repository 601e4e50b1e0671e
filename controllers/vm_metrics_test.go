package controllers

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/energy"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/observe"
	"github.com/joulevirt/joulevirt/internal/units"
)

// VMs implements observe.Meters.
func (metersByNode) VMs(energy.Server, string) energy.VMs { return nil }

// VMs implements observe.Meters.
func (metersByURL) VMs(energy.Server, string) energy.VMs { return nil }

// vmsByNode are what each server knows.
type vmsByNode map[string]energy.VMs

func (v vmsByNode) Candidate(energy.Server, string) energy.Candidate { return energy.Candidate{} }

func (v vmsByNode) VMs(_ energy.Server, node string) energy.VMs { return v[node] }

func runningVMI(namespace, name string, pods map[types.UID]string) *virtv1.VirtualMachineInstance {
	vmi := &virtv1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	vmi.Status.Phase = virtv1.Running
	vmi.Status.ActivePods = pods
	return vmi
}

// vmPower is a collector of nodes a and b, which a policy governs, and c, which
// none does.
func vmPower(t *testing.T, vms vmsByNode, vmis ...client.Object) *vmPowerCollector {
	t.Helper()
	scheme, err := NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	policy := withPrometheus(policyOf("p", 0, "x"))
	reader := fake.NewClientBuilder().WithScheme(scheme).
		WithObjects(&policy, nodeOf("a", "x"), nodeOf("b", "x"), nodeOf("c", "y")).WithObjects(vmis...).Build()
	return newVMPowerCollector(reader, &observe.Powers{Meters: vms, Clock: testingclock.NewFakePassiveClock(statusTime())})
}

func vmFigure(watts units.Watts, age time.Duration) model.Power {
	return model.Power{Source: model.SourcePrometheus, Scope: model.ScopePackage, Watts: watts, Time: statusTime().Add(-age)}
}

func TestVMPowerMetrics(t *testing.T) {
	ended := runningVMI("shop", "ended", map[types.UID]string{"e": "a"})
	ended.Status.Phase = virtv1.Succeeded
	collector := vmPower(t, vmsByNode{
		"a": {{UID: "1"}: vmFigure(5, 0), {UID: "e"}: vmFigure(6, 0), {UID: "old"}: vmFigure(7, time.Hour), {UID: "nobody"}: vmFigure(8, 0)},
		"b": {{UID: "2"}: vmFigure(4, 0), {Namespace: "lab", Base: "virt-launcher-web-"}: vmFigure(3, 0)},
		"c": {{UID: "3"}: vmFigure(2, 0)},
	},
		runningVMI("shop", "web", map[types.UID]string{"1": "a", "2": "b"}), // migrates
		runningVMI("lab", "web", map[types.UID]string{"l": "b"}),
		runningVMI("shop", "stale", map[types.UID]string{"old": "a"}),
		runningVMI("shop", "ungoverned", map[types.UID]string{"3": "c"}),
		runningVMI("shop", "unknown", map[types.UID]string{"u": "b"}),
		ended,
	)
	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(collector); err != nil {
		t.Fatal(err)
	}
	want := strings.TrimSpace(`
joulevirt_vm_exported_power_watts{name="web",namespace="lab",node="b",source="Prometheus"} 3
joulevirt_vm_exported_power_watts{name="web",namespace="shop",node="a",source="Prometheus"} 5
joulevirt_vm_exported_power_watts{name="web",namespace="shop",node="b",source="Prometheus"} 4`)
	if diff := cmp.Diff(want, series(t, registry, []string{"joulevirt_vm_exported_power_watts"})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// What an exporter says of a VM reaches whoever plans.
func TestSnapshotHasPowerOfVMs(t *testing.T) {
	s := newOneNode(t)
	var policy v1alpha1.EnergyPolicy
	if err := s.client.Get(t.Context(), client.ObjectKey{Name: "p"}, &policy); err != nil {
		t.Fatal(err)
	}
	policy = withPrometheus(policy)
	if err := s.client.Update(t.Context(), &policy); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		vms  energy.VMs
		want *model.Power
	}{
		"known":   {energy.VMs{{UID: "pod-a"}: vmFigure(5, 0)}, ptr.To(vmFigure(5, 0))},
		"too old": {energy.VMs{{UID: "pod-a"}: vmFigure(5, time.Hour)}, nil},
		"unknown": {nil, nil},
	} {
		observer := &observe.Observer{
			Reader: s.client, Powers: &observe.Powers{Rates: s.heard(), Meters: vmsByNode{"n": tc.vms}, Clock: s.clock},
			Costs: noCosts{}, Disturbances: disturbances{}, Tunings: noTunings{},
		}
		seen, err := observer.Node(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "n"}})
		if err != nil || len(seen.Node.VMs) != 1 {
			t.Fatalf("%s: %+v, %v", name, seen.Node.VMs, err)
		}
		if diff := cmp.Diff(tc.want, seen.Node.VMs[0].Power); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// A cluster that does not want figures of VMs does not pay for their query.
func TestVMPowerIsAskedForOnlyWhenWanted(t *testing.T) {
	var asked []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.FormValue("query"))
		_, _ = w.Write([]byte(`{"status":"success","data":{"resultType":"matrix","result":[]}}`))
	}))
	t.Cleanup(server.Close)
	for _, wanted := range []bool{false, true} {
		asked = nil
		source, err := EnergyOptions{VMs: wanted}.newSource(energy.Server{URL: server.URL, Series: "Kepler"}, energy.Credentials{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := source.Read(t.Context(), []energy.Node{{Name: "a"}}); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(strings.Join(asked, " "), "kepler_pod_"); got != wanted {
			t.Errorf("VMs %v: asked %q", wanted, asked)
		}
	}
}
