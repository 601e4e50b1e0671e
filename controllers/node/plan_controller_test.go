package node

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/controllers/objects"
	"github.com/joulevirt/joulevirt/internal/energy"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/observe"
	"github.com/joulevirt/joulevirt/internal/observe/rates"
	"github.com/joulevirt/joulevirt/internal/plan"
	"github.com/joulevirt/joulevirt/test/controllertest"
)

// oneNode is node n of package controllertest with the controller of plans.
type oneNode struct{ *controllertest.OneNode }

func newOneNode(t *testing.T) *oneNode { return &oneNode{controllertest.NewOneNode(t)} }

func (s *oneNode) reconciler(store *rates.Store) *PlanReconciler {
	return &PlanReconciler{
		Client: s.Client, Observer: &observe.Observer{
			Reader: s.Client, Powers: &observe.Powers{Rates: store, Meters: s.Meters, Clock: s.Clock},
			Costs: controllertest.NoCosts{}, Disturbances: controllertest.Disturbances{}, Tunings: controllertest.NoTunings{},
		},
		Recorder: events.NewFakeRecorder(8), Clock: s.Clock, Metrics: s.Metrics, Planned: func(model.Node) {},
		Reviews: NewReviews(DefaultReview), Potentials: NewPotentialStore(),
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
	if err := s.Client.Get(s.Context(), client.ObjectKey{Name: "n"}, plan); err != nil {
		s.Fatal(err)
	}
	return plan
}

// An agent that reports nonsense must not keep the pins of VMs whose owner took
// the permission back.
func TestUnreadableReportKeepsNoPins(t *testing.T) {
	s := newOneNode(t)
	heard := s.Heard()
	if got := s.reconcile(heard); got.VMs[0].Affinity == nil {
		t.Fatalf("plan %+v", got)
	}
	report := &v1alpha1.NodeReport{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	patch := client.RawPatch(types.MergePatchType, []byte(`{"status":{"topology":{"coreGroups":[{"cores":["0","0-1"]}]}}}`))
	if err := s.Client.Patch(t.Context(), report, patch); err != nil {
		t.Fatal(err)
	}
	if got := s.reconcile(heard); got.Reason != v1alpha1.ReasonReportUnreadable || got.VMs[0].Affinity == nil {
		t.Errorf("plan %+v: want the pins kept while they are allowed", got)
	}
	if err := s.Client.DeleteAllOf(t.Context(), &v1alpha1.VMNetworkProfile{}, client.InNamespace("ns")); err != nil {
		t.Fatal(err)
	}
	if got := s.reconcile(heard); len(got.VMs) != 0 {
		t.Errorf("plan %+v after the profile went", got)
	}
}

// A node counts as changing from the first change on that its agent did not confirm: one of which
// something can never be done must not keep others waiting by changing each few minutes.
func TestChangedAt(t *testing.T) {
	s := newOneNode(t)
	heard := s.Heard()
	start := s.Clock.Now()
	affinity := func(preference v1alpha1.AffinityPreference) time.Duration {
		t.Helper()
		patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"affinity":%q}}`, preference))
		profile := &v1alpha1.VMNetworkProfile{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web"}}
		if err := s.Client.Patch(t.Context(), profile, patch); err != nil {
			t.Fatal(err)
		}
		return s.reconcile(heard).ChangedAt.Sub(start)
	}
	confirm := func() {
		t.Helper()
		plan := s.nodePlan()
		plan.Status.ObservedGeneration = plan.Generation
		plan.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionApplied, Status: metav1.ConditionTrue}}
		if err := s.Client.Update(t.Context(), plan); err != nil {
			t.Fatal(err)
		}
	}
	if got := affinity(v1alpha1.AffinityPinned); got != 0 {
		t.Errorf("a first change is of %v later", got)
	}
	s.Clock.SetTime(start.Add(time.Minute))
	affinity(v1alpha1.AffinityShared)
	if got := affinity(v1alpha1.AffinityPinned); got != 0 {
		t.Errorf("a change that follows one that is not confirmed is of %v later", got)
	}
	confirm()
	if got := s.reconcile(heard).ChangedAt.Sub(start); got != 0 {
		t.Errorf("without a change the time moved by %v", got)
	}
	affinity(v1alpha1.AffinityShared)
	confirm()
	if got := affinity(v1alpha1.AffinityPinned); got != time.Minute {
		t.Errorf("a change after one that was confirmed is of %v later, want a minute", got)
	}
}

// A VM that no profile selects gets what the policy assumes, where the policy selects its
// namespace. A profile replaces all of that.
func TestDefaultsOfAPolicy(t *testing.T) {
	s := newOneNode(t)
	if err := s.Client.DeleteAllOf(t.Context(), &v1alpha1.VMNetworkProfile{}, client.InNamespace("ns")); err != nil {
		t.Fatal(err)
	}
	if err := s.Client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns"}}); err != nil {
		t.Fatal(err)
	}
	assume := func(defaults *v1alpha1.ProfileDefaults, namespaces *metav1.LabelSelector) {
		policy := &v1alpha1.EnergyPolicy{}
		if err := s.Client.Get(t.Context(), client.ObjectKey{Name: "p"}, policy); err != nil {
			t.Fatal(err)
		}
		policy.Spec.Defaults, policy.Spec.NamespaceSelector = defaults, namespaces
		if err := s.Client.Update(t.Context(), policy); err != nil {
			t.Fatal(err)
		}
	}
	heard := s.Heard()
	pinned := &v1alpha1.ProfileDefaults{Affinity: v1alpha1.AffinityPinned, ServiceLevels: v1alpha1.ServiceLevels{MaxStealPercent: 5}}
	for _, step := range []struct {
		name       string
		defaults   *v1alpha1.ProfileDefaults
		namespaces *metav1.LabelSelector
		vms        int
	}{
		{"none", nil, nil, 0},
		{"some", pinned, nil, 1},
		{"another namespace", pinned, &metav1.LabelSelector{MatchLabels: map[string]string{"team": "b"}}, 0},
		{"all namespaces", pinned, &metav1.LabelSelector{}, 1},
	} {
		assume(step.defaults, step.namespaces)
		got := s.reconcile(heard)
		if len(got.VMs) != step.vms || step.vms > 0 && (got.VMs[0].Affinity == nil || got.VMs[0].Profile != "") {
			t.Errorf("%s: plan %+v, want %d VMs", step.name, got, step.vms)
		}
	}
	profile := controllertest.ProfileOf("web", "web", time.Hour)
	profile.Spec.Affinity = v1alpha1.AffinityShared
	if err := s.Client.Create(t.Context(), &profile); err != nil {
		t.Fatal(err)
	}
	if got := s.reconcile(heard); got.VMs[0].Affinity != nil || got.VMs[0].Profile != "web" {
		t.Errorf("with a profile that wants no pins: plan %+v", got)
	}
}

// A manager that starts has no rates yet. It must not say so in every plan of
// the cluster, only to take it back when the agents answer.
func TestRestartWritesNoPlan(t *testing.T) {
	s := newOneNode(t)
	if got := s.reconcile(s.Heard()); got.Reason != v1alpha1.ReasonPlanned || got.VMs[0].Affinity == nil {
		t.Fatalf("plan %+v", got)
	}
	restarted := rates.NewStore(s.Clock, time.Minute, time.Minute)
	if got := s.reconcile(restarted); got.Reason != v1alpha1.ReasonPlanned || s.nodePlan().ResourceVersion != "1" {
		t.Errorf("version %s is %+v: want no write by the restarted manager", s.nodePlan().ResourceVersion, got)
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
		return &model.Power{Source: v1alpha1.PowerPrometheus, Scope: v1alpha1.PowerScopePackage, Watts: 90, Time: s.Clock.Now().Add(-age)}
	}
	s.Meters["https://p"] = energy.Candidate{Reading: reading(0), Since: s.Clock.Now()}
	heard := s.Heard()
	if got := s.reconcile(heard); got.Reason != v1alpha1.ReasonPlanned || got.VMs[0].Affinity == nil {
		t.Fatalf("plan %+v", got)
	}
	denied := energy.Refuse(energy.ReasonUnreachable, "does not answer")
	for _, step := range []struct {
		name   string
		knows  energy.Candidate
		reason string
		apply  bool
		writes string // the version of the plan: each write makes one
	}{
		{"not asked yet", energy.Candidate{}, v1alpha1.ReasonPlanned, true, "1"},
		{"asked in vain, shortly", energy.Candidate{Refused: denied, Since: s.Clock.Now().Add(-2 * time.Minute)}, v1alpha1.ReasonPlanned, true, "1"},
		{"refused, the last is fresh", energy.Candidate{Refused: denied, Reading: reading(50 * time.Second)}, v1alpha1.ReasonPlanned, true, "1"},
		{"refused, the last is old", energy.Candidate{Refused: denied, Reading: reading(70 * time.Second)}, v1alpha1.ReasonPlanned, true, "1"},
		{"refused for too long", energy.Candidate{Refused: denied, Reading: reading(181 * time.Second)}, v1alpha1.ReasonNoMeter, false, "2"},
		{"another leader", energy.Candidate{}, v1alpha1.ReasonNoMeter, false, "2"},
		{"asked in vain, long", energy.Candidate{Refused: denied, Since: s.Clock.Now().Add(-4 * time.Minute)}, v1alpha1.ReasonNoMeter, false, "2"},
		{"answers", energy.Candidate{Reading: reading(0)}, v1alpha1.ReasonPlanned, true, "3"},
	} {
		s.Meters["https://p"] = step.knows
		got := s.reconcile(heard)
		if got.Reason != step.reason || got.Apply != step.apply || (got.VMs[0].Affinity != nil) != step.apply {
			t.Errorf("%s: plan %+v", step.name, got)
		}
		if writes := s.nodePlan().ResourceVersion; writes != step.writes {
			t.Errorf("%s: %s plans written, want %s", step.name, writes, step.writes)
		}
	}
}

// askServer lets the policy name one server, whose figures are fresh for a minute,
// and nothing else.
func (s *oneNode) askServer() {
	s.Helper()
	policy := &v1alpha1.EnergyPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
	patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"energy":{"sources":[{"type":"Prometheus","freshness":"1m","prometheus":{"url":"https://p"}}]}}}`))
	if err := s.Client.Patch(s.Context(), policy, patch); err != nil {
		s.Fatal(err)
	}
}

// past reads the cluster as it is, but policies and the node's plan as they were: the
// cache of a manager that stood still.
type past struct {
	client.Reader
	plan     *v1alpha1.NodePlan
	policies []v1alpha1.EnergyPolicy
}

func (p *past) Get(ctx context.Context, key client.ObjectKey, into client.Object, o ...client.GetOption) error {
	if plan, is := into.(*v1alpha1.NodePlan); is {
		p.plan.DeepCopyInto(plan)
		return nil
	}
	return p.Reader.Get(ctx, key, into, o...)
}

func (p *past) List(ctx context.Context, into client.ObjectList, o ...client.ListOption) error {
	if policies, is := into.(*v1alpha1.EnergyPolicyList); is {
		policies.Items = p.policies
		return nil
	}
	return p.Reader.List(ctx, into, o...)
}

// A manager that stood still while another began to lead wants to act on what it knew
// then: neither does it write its plan over the other's nor delete that.
func TestPlanOfTheNextLeaderStays(t *testing.T) {
	s := newOneNode(t)
	heard := s.Heard()
	s.reconcile(heard)
	old := s.nodePlan()
	var policies v1alpha1.EnergyPolicyList
	if err := s.Client.List(t.Context(), &policies); err != nil {
		t.Fatal(err)
	}
	known := policies.Items[0].DeepCopy()
	policies.Items[0].Spec.Paused = true
	if err := s.Client.Update(t.Context(), &policies.Items[0]); err != nil {
		t.Fatal(err)
	}
	if s.reconcile(heard); !old.Spec.Apply || s.nodePlan().Spec.Apply {
		t.Fatalf("the plan was %+v and is %+v: want that the pause ended it", old.Spec, s.nodePlan().Spec)
	}
	next := s.nodePlan()
	renamed := known.DeepCopy()
	renamed.Name = "other"
	for name, knows := range map[string][]v1alpha1.EnergyPolicy{
		"it knows of no pause":       {*known},
		"it knows of another policy": {*renamed},
		"it knows of no policy":      nil,
	} {
		r := s.reconciler(heard)
		r.Observer.Reader = &past{Reader: s.Client, plan: old, policies: knows}
		result, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(old)})
		is := s.nodePlan()
		if is.ResourceVersion != next.ResourceVersion {
			t.Errorf("%s: the plan became %+v", name, is.Spec)
		}
		// What it takes for done it does not write.
		if name != "it knows of no pause" && (err != nil || result.RequeueAfter != conflictRetry) {
			t.Errorf("%s: %+v, %v: want that it looks again", name, result, err)
		}
	}
}

// A node is looked at again when its plan may be another, and not much before.
func TestAgain(t *testing.T) {
	now := controllertest.StatusTime()
	in := func(d time.Duration) time.Time { return now.Add(d) }
	for name, tc := range map[string]struct {
		plan model.Plan
		seen observe.Observation
		want time.Duration
	}{
		"nothing waits":       {model.Plan{}, observe.Observation{}, DefaultReview},
		"a window opens":      {model.Plan{}, observe.Observation{Times: observe.ChangeTimes{Again: in(3 * time.Minute)}}, 3 * time.Minute},
		"it opens tomorrow":   {model.Plan{}, observe.Observation{Times: observe.ChangeTimes{Again: in(24 * time.Hour)}}, DefaultReview},
		"it just opened":      {model.Plan{}, observe.Observation{Times: observe.ChangeTimes{Again: in(time.Millisecond)}}, time.Second},
		"others are changing": {model.Plan{}, observe.Observation{Node: model.Node{NodesBusy: true}}, objects.ChangingRetry},
		"a recommendation ends": {model.Plan{RecommendedAt: in(-50 * time.Minute)},
			observe.Observation{Node: model.Node{Policy: model.Policy{RecommendationValidity: time.Hour}}}, 10 * time.Minute},
	} {
		if got := again(tc.plan, tc.seen, now); got != tc.want {
			t.Errorf("%s: in %v, want %v", name, got, tc.want)
		}
	}
}

// An owner whose changes alternate costs a bounded number of writes, and what is taken back does
// not wait for one.
func TestPlanWritesAreBounded(t *testing.T) {
	s := newOneNode(t)
	heard := s.Heard()
	s.reconcile(heard)
	other := controllertest.ProfileOf("aaa", "other", 2*time.Hour)
	if err := s.Client.Create(t.Context(), &other); err != nil {
		t.Fatal(err)
	}
	r := s.reconciler(heard)
	reconcile := func() ctrl.Result {
		t.Helper()
		result, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: "n"}})
		if err != nil {
			t.Fatal(err)
		}
		return result
	}
	writes := func() int { // each makes a version
		version, err := strconv.Atoi(s.nodePlan().ResourceVersion)
		if err != nil {
			t.Fatal(err)
		}
		return version
	}
	before := writes()
	var last ctrl.Result
	for i := range 51 {
		patch := fmt.Sprintf(`{"metadata":{"generation":%d},"spec":{"selector":{"matchLabels":{"app":%q}}}}`, 10+i, []string{"web", "other"}[i%2])
		if err := s.Client.Patch(t.Context(), other.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
			t.Fatal(err)
		}
		last = reconcile()
	}
	if got := writes() - before; got != writeBurst || last.RequeueAfter != writeEvery {
		t.Errorf("51 changes at one moment: %d writes, then again in %v", got, last.RequeueAfter)
	}
	if err := s.Client.DeleteAllOf(t.Context(), &v1alpha1.VMNetworkProfile{}, client.InNamespace("ns")); err != nil {
		t.Fatal(err)
	}
	reconcile()
	if got := s.nodePlan().Spec; len(got.VMs) != 0 {
		t.Errorf("the permission went, and the plan is %+v", got)
	}
	other = controllertest.ProfileOf("bbb", "web", 2*time.Hour)
	if err := s.Client.Create(t.Context(), &other); err != nil {
		t.Fatal(err)
	}
	if wait := reconcile().RequeueAfter; wait != writeEvery || len(s.nodePlan().Spec.VMs) != 0 {
		t.Errorf("the next plan is written at once, or waits for %v", wait)
	}
	s.Clock.SetTime(s.Clock.Now().Add(writeEvery))
	if reconcile(); len(s.nodePlan().Spec.VMs) == 0 {
		t.Errorf("nothing is written after %v", writeEvery)
	}
}

// A new leader that has not heard the agent yet leaves the plan as it is, but makes one anew that
// somebody else changed.
func TestPlanOfALeaderThatWaits(t *testing.T) {
	s := newOneNode(t)
	s.reconcile(s.Heard())
	before := s.nodePlan()
	report := &v1alpha1.NodeReport{}
	if err := s.Client.Get(t.Context(), client.ObjectKey{Name: "n"}, report); err != nil {
		t.Fatal(err)
	}
	report.Status.RatesAddress = "10.0.0.1:9443"
	if err := s.Client.Update(t.Context(), report); err != nil {
		t.Fatal(err)
	}
	unheard := func() {
		t.Helper()
		r := s.reconciler(rates.NewStore(s.Clock, time.Minute, time.Minute))
		if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: "n"}}); err != nil {
			t.Fatal(err)
		}
		if planned := r.CountPlanned(); planned != 0 {
			t.Errorf("%d nodes are planned by all that there is to know", planned)
		}
	}
	unheard()
	if is := s.nodePlan(); is.ResourceVersion != before.ResourceVersion {
		t.Errorf("the plan was %+v and is %+v", before.Spec, is.Spec)
	}
	edited := before.DeepCopy()
	edited.Spec.VMs[0].Affinity.EmulatorCPUs = "0"
	if err := s.Client.Update(t.Context(), edited); err != nil {
		t.Fatal(err)
	}
	unheard()
	if is := s.nodePlan(); is.ResourceVersion == edited.ResourceVersion || plan.Edited(is) {
		t.Errorf("the plan is left as somebody else changed it: %+v", is.Spec)
	}
}
