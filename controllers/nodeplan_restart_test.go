package controllers

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	testingclock "k8s.io/utils/clock/testing"
	virtv1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/observe"
	"github.com/joulevirt/joulevirt/internal/observe/rates"
	"github.com/joulevirt/joulevirt/internal/units"
)

// restartScene is node n with two cores, of which VM a needs one.
func restartScene(t *testing.T) client.Client {
	t.Helper()
	scheme, err := NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "n"}}
	report := reportOf(v1alpha1.PowerRAPL, nil, 0, 1)
	report.Name = "n"
	report.Status.RatesAddress = "192.0.2.1:8443"
	report.Status.Topology.CoreGroups = []v1alpha1.CoreGroup{{Cores: []string{"0", "1"}}}
	policy, profile, vmi := policyOf("p", 0, ""), profileOf("web", "web", time.Hour), vmiOn("a", "web", "n")
	return fake.NewClientBuilder().WithScheme(scheme).
		WithObjects(node, report, &policy, &profile, &vmi).
		WithIndex(&virtv1.VirtualMachineInstance{}, observe.VMIsByNode, func(o client.Object) []string {
			return observe.NodesOf(o.(*virtv1.VirtualMachineInstance))
		}).Build()
}

// A manager that starts has no rates yet. It must not say so in every plan of
// the cluster, only to take it back when the agents answer.
func TestRestartWritesNoPlan(t *testing.T) {
	c, now := restartScene(t), testingclock.NewFakePassiveClock(statusTime())
	metrics, err := NewMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	reconcile := func(store *rates.Store) v1alpha1.NodePlanSpec {
		t.Helper()
		r := &NodePlanReconciler{
			Client: c, Observer: &observe.Observer{Reader: c, Rates: store},
			Recorder: events.NewFakeRecorder(8), Clock: now, Metrics: metrics,
		}
		var plan v1alpha1.NodePlan
		key := client.ObjectKey{Name: "n"}
		if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key}); err != nil {
			t.Fatal(err)
		}
		if err := c.Get(t.Context(), key, &plan); err != nil {
			t.Fatal(err)
		}
		return plan.Spec
	}
	heard := rates.NewStore(now, time.Minute, time.Minute)
	heard.Put(&model.NodeRates{Node: "n", Time: statusTime(), VMs: []model.VMRates{{
		PodUID: "pod-a", AllowedCPUs: units.NewCPUSet(0, 1),
		VCPUs: []model.VCPURates{{CPUs: units.NewCPUSet(0, 1), ThreadRates: model.ThreadRates{RunCores: 0.5}}},
	}}})
	if got := reconcile(heard); got.Reason != v1alpha1.ReasonPlanned || got.VMs[0].Affinity == nil {
		t.Fatalf("plan %+v", got)
	}
	restarted := rates.NewStore(now, time.Minute, time.Minute)
	if got := reconcile(restarted); got.Reason != v1alpha1.ReasonPlanned || testutil.ToFloat64(metrics.PlansWritten) != 1 {
		t.Errorf("%v writes, the last %+v: want none by the restarted manager", testutil.ToFloat64(metrics.PlansWritten), got)
	}
	restarted.Failed("n")
	if got := reconcile(restarted); got.Reason != v1alpha1.ReasonNoRates || got.VMs[0].Affinity == nil {
		t.Errorf("plan %+v: want that the agent does not answer, and the pins kept", got)
	}
}
