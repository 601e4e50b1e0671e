package controllers

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	testingclock "k8s.io/utils/clock/testing"
	virtv1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/energy"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/observe"
	"github.com/joulevirt/joulevirt/internal/observe/rates"
	"github.com/joulevirt/joulevirt/internal/units"
)

// oneNode is node n with two cores, of which VM a needs one.
type oneNode struct {
	*testing.T
	client  client.Client
	clock   *testingclock.FakePassiveClock
	metrics *Metrics
	// meters are the Prometheus servers.
	meters metersByURL
}

// metersByURL says of all nodes what a server says of any.
type metersByURL map[string]energy.Candidate

func (m metersByURL) Candidate(server energy.Server, _ string) energy.Candidate { return m[server.URL] }

func newOneNode(t *testing.T) *oneNode {
	t.Helper()
	scheme, err := NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	metrics, err := NewMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "n"}}
	report := reportOf(v1alpha1.PowerRAPL, nil, 0, 1)
	report.Name = "n"
	report.Status.RatesAddress = "192.0.2.1:8443"
	report.Status.Topology.CoreGroups = []v1alpha1.CoreGroup{{Cores: []string{"0", "1"}}}
	policy, profile, vmi := policyOf("p", 0, ""), profileOf("web", "web", time.Hour), vmiOn("a", "web", "n")
	c := fake.NewClientBuilder().WithScheme(scheme).
		WithObjects(node, report, &policy, &profile, &vmi).
		WithIndex(&virtv1.VirtualMachineInstance{}, observe.VMIsByNode, func(o client.Object) []string {
			return observe.NodesOf(o.(*virtv1.VirtualMachineInstance))
		}).Build()
	return &oneNode{T: t, client: c, clock: testingclock.NewFakePassiveClock(statusTime()), metrics: metrics, meters: metersByURL{}}
}

// heard is what the node's agent says.
func (s *oneNode) heard() *rates.Store {
	store := rates.NewStore(s.clock, time.Minute, time.Minute)
	store.Put(&model.NodeRates{Node: "n", Time: statusTime(), VMs: []model.VMRates{{
		PodUID: "pod-a", AllowedCPUs: units.NewCPUSet(0, 1),
		VCPUs: []model.VCPURates{{CPUs: units.NewCPUSet(0, 1), ThreadRates: model.ThreadRates{RunCores: 0.5}}},
	}}})
	return store
}

func (s *oneNode) reconciler(store *rates.Store) *NodePlanReconciler {
	return &NodePlanReconciler{
		Client: s.client, Observer: &observe.Observer{
			Reader: s.client, Powers: &observe.Powers{Rates: store, Meters: s.meters, Clock: s.clock},
			Costs: noCosts{}, Disturbances: disturbances{}, Tunings: noTunings{},
		},
		Recorder: events.NewFakeRecorder(8), Clock: s.clock, Metrics: s.metrics, Planned: func(model.Node) {},
		Reviews: NewReviews(DefaultReview), potentials: newPotentialStore(),
	}
}

// reconcile returns the plan that the node has afterwards.
func (s *oneNode) reconcile(store *rates.Store) v1alpha1.NodePlanSpec {
	s.Helper()
	r := s.reconciler(store)
	if _, err := r.Reconcile(s.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: "n"}}); err != nil {
		s.Fatal(err)
	}
	return s.nodePlan().Spec
}

func (s *oneNode) nodePlan() *v1alpha1.NodePlan {
	s.Helper()
	plan := &v1alpha1.NodePlan{}
	if err := s.client.Get(s.Context(), client.ObjectKey{Name: "n"}, plan); err != nil {
		s.Fatal(err)
	}
	return plan
}

// An agent that reports nonsense must not keep the pins of VMs whose owner took
// the permission back.
func TestUnreadableReportKeepsNoPins(t *testing.T) {
	s := newOneNode(t)
	heard := s.heard()
	if got := s.reconcile(heard); got.VMs[0].Affinity == nil {
		t.Fatalf("plan %+v", got)
	}
	report := &v1alpha1.NodeReport{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	patch := client.RawPatch(types.MergePatchType, []byte(`{"status":{"topology":{"coreGroups":[{"cores":["0","0-1"]}]}}}`))
	if err := s.client.Patch(t.Context(), report, patch); err != nil {
		t.Fatal(err)
	}
	if got := s.reconcile(heard); got.Reason != v1alpha1.ReasonReportUnreadable || got.VMs[0].Affinity == nil {
		t.Errorf("plan %+v: want the pins kept while they are allowed", got)
	}
	if err := s.client.DeleteAllOf(t.Context(), &v1alpha1.VMNetworkProfile{}, client.InNamespace("ns")); err != nil {
		t.Fatal(err)
	}
	if got := s.reconcile(heard); len(got.VMs) != 0 {
		t.Errorf("plan %+v after the profile went", got)
	}
}

// A manager that starts has no rates yet. It must not say so in every plan of
// the cluster, only to take it back when the agents answer.
func TestRestartWritesNoPlan(t *testing.T) {
	s := newOneNode(t)
	if got := s.reconcile(s.heard()); got.Reason != v1alpha1.ReasonPlanned || got.VMs[0].Affinity == nil {
		t.Fatalf("plan %+v", got)
	}
	restarted := rates.NewStore(s.clock, time.Minute, time.Minute)
	if got := s.reconcile(restarted); got.Reason != v1alpha1.ReasonPlanned || testutil.ToFloat64(s.metrics.PlansWritten) != 1 {
		t.Errorf("%v writes, the last %+v: want none by the restarted manager", testutil.ToFloat64(s.metrics.PlansWritten), got)
	}
	restarted.Failed("n")
	if got := s.reconcile(restarted); got.Reason != v1alpha1.ReasonNoRates || got.VMs[0].Affinity == nil {
		t.Errorf("plan %+v: want that the agent does not answer, and the pins kept", got)
	}
}

// A new leader knows no meter yet: it must neither take pins back nor write that
// it waits. A meter that stays away for three times its freshness takes them.
func TestMeterOfANewLeader(t *testing.T) {
	s := newOneNode(t)
	s.askServer()
	reading := func(age time.Duration) *model.Power {
		return &model.Power{Source: model.SourcePrometheus, Scope: model.ScopePackage, Watts: 90, Time: s.clock.Now().Add(-age)}
	}
	s.meters["https://p"] = energy.Candidate{Reading: reading(0), Since: s.clock.Now()}
	heard := s.heard()
	if got := s.reconcile(heard); got.Reason != v1alpha1.ReasonPlanned || got.VMs[0].Affinity == nil {
		t.Fatalf("plan %+v", got)
	}
	denied := energy.Refuse(energy.ReasonUnreachable, "does not answer")
	for _, step := range []struct {
		name   string
		knows  energy.Candidate
		reason string
		apply  bool
		writes float64
	}{
		{"not asked yet", energy.Candidate{}, v1alpha1.ReasonPlanned, true, 1},
		{"asked in vain, shortly", energy.Candidate{Refused: denied, Since: s.clock.Now().Add(-2 * time.Minute)}, v1alpha1.ReasonPlanned, true, 1},
		{"refused, the last is fresh", energy.Candidate{Refused: denied, Reading: reading(50 * time.Second)}, v1alpha1.ReasonPlanned, true, 1},
		{"refused, the last is old", energy.Candidate{Refused: denied, Reading: reading(70 * time.Second)}, v1alpha1.ReasonPlanned, true, 1},
		{"refused for too long", energy.Candidate{Refused: denied, Reading: reading(181 * time.Second)}, v1alpha1.ReasonNoMeter, false, 2},
		{"another leader", energy.Candidate{}, v1alpha1.ReasonNoMeter, false, 2},
		{"asked in vain, long", energy.Candidate{Refused: denied, Since: s.clock.Now().Add(-4 * time.Minute)}, v1alpha1.ReasonNoMeter, false, 2},
		{"answers", energy.Candidate{Reading: reading(0)}, v1alpha1.ReasonPlanned, true, 3},
	} {
		s.meters["https://p"] = step.knows
		got := s.reconcile(heard)
		if got.Reason != step.reason || got.Apply != step.apply || (got.VMs[0].Affinity != nil) != step.apply {
			t.Errorf("%s: plan %+v", step.name, got)
		}
		if writes := testutil.ToFloat64(s.metrics.PlansWritten); writes != step.writes {
			t.Errorf("%s: %v plans written, want %v", step.name, writes, step.writes)
		}
	}
}

// askServer lets the policy name one server, whose figures are fresh for a minute,
// and nothing else.
func (s *oneNode) askServer() {
	s.Helper()
	policy := &v1alpha1.EnergyPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
	patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"energy":{"sources":[{"type":"Prometheus","freshness":"1m","prometheus":{"url":"https://p"}}]}}}`))
	if err := s.client.Patch(s.Context(), policy, patch); err != nil {
		s.Fatal(err)
	}
}

// What the plan does not wait for is the permission.
func TestUnknownMeterKeepsNoPinsWithoutPermission(t *testing.T) {
	s := newOneNode(t)
	heard := s.heard()
	if got := s.reconcile(heard); got.VMs[0].Affinity == nil {
		t.Fatalf("plan %+v", got)
	}
	s.askServer()
	if got := s.reconcile(heard); got.VMs[0].Affinity == nil {
		t.Errorf("plan %+v: want the pins kept until the server was heard", got)
	}
	if err := s.client.DeleteAllOf(t.Context(), &v1alpha1.VMNetworkProfile{}, client.InNamespace("ns")); err != nil {
		t.Fatal(err)
	}
	if got := s.reconcile(heard); len(got.VMs) != 0 {
		t.Errorf("plan %+v after the profile went", got)
	}
}
