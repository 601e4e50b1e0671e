package controllers

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	testingclock "k8s.io/utils/clock/testing"
	virtv1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/energy"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/observe/guards"
)

// withdrawals are those of a node's plan.
type withdrawals []model.Withdrawal

func (w withdrawals) Of(string, []model.Withdrawal) []model.Withdrawal { return slices.Clone(w) }

// A lever that was withdrawn is undone though nothing new may be done, told once and counted,
// and comes back by the next plan after.
func TestWithdrawnLeversAreUndoneAndTold(t *testing.T) {
	s := newOneNode(t)
	heard := s.heard()
	pinned := func(spec v1alpha1.NodePlanSpec) bool {
		return slices.ContainsFunc(spec.VMs, func(vm v1alpha1.VMPlan) bool { return vm.Affinity != nil })
	}
	if !pinned(s.reconcile(heard)) {
		t.Fatal("nothing is pinned")
	}
	node := &corev1.Node{}
	if err := s.client.Get(t.Context(), client.ObjectKey{Name: "n"}, node); err != nil {
		t.Fatal(err)
	}
	node.Spec.Unschedulable = true
	if err := s.client.Update(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	recorder := events.NewFakeRecorder(8)
	reconcile := func(held withdrawals) (v1alpha1.NodePlanSpec, time.Duration) {
		r := s.reconciler(heard)
		r.Recorder, r.Observer.Withdrawals = recorder, held
		result, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: "n"}})
		if err != nil {
			t.Fatal(err)
		}
		return s.nodePlan().Spec, result.RequeueAfter
	}
	now := s.clock.Now()
	held := withdrawals{
		{PodUID: "gone", Lever: model.LeverAffinity, Sign: model.GuardSteal, Time: now, Until: now.Add(time.Minute), Count: 1},
		{PodUID: "pod-a", Lever: model.LeverAffinity, Sign: model.GuardSteal, Time: now, Until: now.Add(5 * time.Minute), Count: 1, Message: "steal of 12"},
	}
	for range 2 {
		spec, again := reconcile(held)
		if pinned(spec) || len(spec.Withdrawn) != 1 || spec.Withdrawn[0].PodUID != "pod-a" || again != 5*time.Minute {
			t.Errorf("%+v, again in %v", spec, again)
		}
		why := spec.VMs[0].Reasons[0]
		if why.Reason != v1alpha1.ReasonGuardWithdrawn || !strings.Contains(why.Message, "steal of 12") {
			t.Errorf("reason %+v", why)
		}
	}
	told := 0
	for len(recorder.Events) > 0 {
		if event := <-recorder.Events; strings.HasPrefix(event, "Warning GuardWithdrawn lever Affinity on node n: withdrawn from the VM until") {
			told++
		}
	}
	if counted := testutil.ToFloat64(s.metrics.GuardBreaches.WithLabelValues("Steal", "Affinity")); told != 1 || counted != 1 {
		t.Errorf("told %d times, counted %g", told, counted)
	}
	node.Spec.Unschedulable = false
	if err := s.client.Update(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	if spec, _ := reconcile(nil); !pinned(spec) || len(spec.Withdrawn) > 0 {
		t.Errorf("after the withdrawal: %+v", spec)
	}
}

// alertSource answers each query with series, or an error.
type alertSource struct{ answers map[string]any }

func (alertSource) Read(context.Context, []energy.Node) (energy.Answer, error) {
	return energy.Answer{}, nil
}

func (a alertSource) Labels(_ context.Context, query string) ([]map[string]string, error) {
	if err, failed := a.answers[query].(error); failed {
		return nil, err
	}
	series, _ := a.answers[query].([]map[string]string)
	return series, nil
}

func TestAlertsOfPolicies(t *testing.T) {
	s := newOneNode(t)
	policies := &v1alpha1.EnergyPolicyList{}
	if err := s.client.List(t.Context(), policies); err != nil || len(policies.Items) != 1 {
		t.Fatal(err, len(policies.Items))
	}
	policy := &policies.Items[0]
	policy.Spec.Guardrails.Alerts = []v1alpha1.Alert{{Name: "Slow", Query: "slow", Levers: []v1alpha1.Lever{"Affinity"}}, {Name: "Hot", Query: "hot"}}
	policy.Spec.Energy.Sources = []v1alpha1.EnergySource{{Type: v1alpha1.EnergySourcePrometheus, Prometheus: &v1alpha1.PrometheusSource{URL: "http://p"}}}
	if err := s.client.Update(t.Context(), policy); err != nil {
		t.Fatal(err)
	}
	clk := testingclock.NewFakeClock(statusTime())
	vmi := &virtv1.VirtualMachineInstanceList{}
	if err := s.client.List(t.Context(), vmi); err != nil || len(vmi.Items) == 0 {
		t.Fatal(err)
	}
	names := map[string]string{"namespace": vmi.Items[0].Namespace, "name": vmi.Items[0].Name, "node": "elsewhere"}
	source := alertSource{answers: map[string]any{"slow": []map[string]string{names, {"name": "nobody"}}, "hot": errors.New("cannot be evaluated")}}
	g := newGlobalGuard(globalGuardOptions{
		reader: s.client, store: guards.NewStore(clk, time.Minute), seen: func() *disturbanceFacts { return nil },
		asker: energy.Asker{NewSource: func(energy.Server, energy.Credentials) (energy.Source, error) { return source, nil }},
		clock: clk, log: logr.Discard(), replan: func(context.Context, string) {}, changed: func(context.Context) {},
		member: func(string) groupMember { return groupMember{} }, regroup: func(context.Context, string) {},
	})
	condition := func() metav1.Condition { return alertsAnswered(policy, g.answer) }
	if is := condition(); is.Status != metav1.ConditionUnknown {
		t.Errorf("before: %+v", is)
	}
	round := func() []model.Withdrawal {
		t.Helper()
		if err := g.look(t.Context()); err != nil {
			t.Fatal(err)
		}
		g.asking.Wait()
		clk.Step(alertInterval)
		return g.store.Of("n", nil)
	}
	got := round()
	if len(got) != 1 || got[0].PodUID == "" || got[0].Lever != model.LeverAffinity || got[0].Alert != "Slow" {
		t.Errorf("%+v", got)
	}
	if is := condition(); is.Status != metav1.ConditionFalse || !strings.Contains(is.Message, "alert Hot is not known") {
		t.Errorf("%+v", is)
	}
	source.answers["hot"] = []map[string]string{{"node": "n"}}
	if got := round(); len(got) != 5 {
		t.Errorf("%d withdrawals, want Slow's of the VM and Hot's of the node's four levers: %+v", len(got), got)
	}
	if is := condition(); is.Status != metav1.ConditionTrue || !strings.Contains(is.Message, "1 series of alert Slow name no") {
		t.Errorf("%+v", is)
	}
	source.answers["slow"], source.answers["hot"] = errors.New("down"), errors.New("down")
	for range 20 {
		got = round()
	}
	if len(got) != 5 || condition().Status != metav1.ConditionFalse {
		t.Errorf("a server that is down: %+v, %+v", got, condition())
	}
}

func TestGuestOf(t *testing.T) {
	is := func(kind virtv1.VirtualMachineInstanceConditionType, status corev1.ConditionStatus) virtv1.VirtualMachineInstanceCondition {
		return virtv1.VirtualMachineInstanceCondition{Type: kind, Status: status}
	}
	for name, test := range map[string]struct {
		change        func(*virtv1.VirtualMachineInstance)
		told, excused bool
	}{
		"not ready": {func(*virtv1.VirtualMachineInstance) {}, true, false},
		"no word":   {func(v *virtv1.VirtualMachineInstance) { v.Status.Conditions = nil }, false, false},
		"paused": {func(v *virtv1.VirtualMachineInstance) {
			v.Status.Conditions = append(v.Status.Conditions, is(virtv1.VirtualMachineInstancePaused, corev1.ConditionTrue))
		}, true, true},
		"migrates": {func(v *virtv1.VirtualMachineInstance) {
			v.Status.MigrationState = &virtv1.VirtualMachineInstanceMigrationState{}
		}, true, true},
		"two pods":  {func(v *virtv1.VirtualMachineInstance) { v.Status.ActivePods["b"] = "m" }, true, true},
		"evacuated": {func(v *virtv1.VirtualMachineInstance) { v.Status.EvacuationNodeName = "n" }, true, true},
		"ends":      {func(v *virtv1.VirtualMachineInstance) { v.DeletionTimestamp = &metav1.Time{Time: statusTime()} }, true, true},
		"ended":     {func(v *virtv1.VirtualMachineInstance) { v.Status.Phase = virtv1.Succeeded }, true, true},
	} {
		vmi := &virtv1.VirtualMachineInstance{Status: virtv1.VirtualMachineInstanceStatus{
			Phase: virtv1.Running, ActivePods: map[types.UID]string{"a": "n"},
			Conditions: []virtv1.VirtualMachineInstanceCondition{is(virtv1.VirtualMachineInstanceReady, corev1.ConditionFalse)},
		}}
		test.change(vmi)
		if guest, told := guestOf(vmi); told != test.told || guest.Ready || guest.Excused != test.excused {
			t.Errorf("%s: %+v, %t", name, guest, told)
		}
	}
}
