package node

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	virtv1 "kubevirt.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/controllers/objects"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/test/controllertest"
)

// withdrawals are those of a node's plan.
type withdrawals []model.Withdrawal

func (w withdrawals) Of(string, []model.Withdrawal) []model.Withdrawal { return slices.Clone(w) }

// A lever that was withdrawn is undone though nothing new may be done, reported once and counted,
// and comes back by the next plan after.
func TestWithdrawnLeversAreUndoneAndTold(t *testing.T) {
	s := newOneNode(t)
	heard := s.Heard()
	pinned := func(spec v1alpha1.NodePlanSpec) bool {
		return slices.ContainsFunc(spec.VMs, func(vm v1alpha1.VMPlan) bool { return vm.Affinity != nil })
	}
	if !pinned(s.reconcile(heard)) {
		t.Fatal("nothing is pinned")
	}
	node := &corev1.Node{}
	if err := s.Client.Get(t.Context(), client.ObjectKey{Name: "n"}, node); err != nil {
		t.Fatal(err)
	}
	node.Spec.Unschedulable = true
	if err := s.Client.Update(t.Context(), node); err != nil {
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
	now := s.Clock.Now()
	held := withdrawals{
		{PodUID: "gone", Lever: v1alpha1.LeverAffinity, Sign: v1alpha1.GuardSteal, Time: now, Until: now.Add(time.Minute), Count: 1},
		{PodUID: "pod-a", Lever: v1alpha1.LeverAffinity, Sign: v1alpha1.GuardSteal, Time: now, Until: now.Add(5 * time.Minute), Count: 1, Message: "steal of 12"},
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
	reported := 0
	for len(recorder.Events) > 0 {
		if event := <-recorder.Events; strings.HasPrefix(event, "Warning GuardWithdrawn lever Affinity on node n: withdrawn from the VM until") {
			reported++
		}
	}
	if counted := testutil.ToFloat64(s.Metrics.GuardBreaches.WithLabelValues("Steal", "Affinity")); reported != 1 || counted != 1 {
		t.Errorf("reported %d times, counted %g", reported, counted)
	}
	node.Spec.Unschedulable = false
	if err := s.Client.Update(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	if spec, _ := reconcile(nil); !pinned(spec) || len(spec.Withdrawn) > 0 {
		t.Errorf("after the withdrawal: %+v", spec)
	}
}

// What the guard reads of a guest is the same of the object that the cache keeps.
func TestGuestOf(t *testing.T) {
	is := func(kind virtv1.VirtualMachineInstanceConditionType, status corev1.ConditionStatus) virtv1.VirtualMachineInstanceCondition {
		return virtv1.VirtualMachineInstanceCondition{Type: kind, Status: status}
	}
	for name, test := range map[string]struct {
		change                   func(*virtv1.VirtualMachineInstance)
		reported, ready, excused bool
	}{
		"ready":     {func(v *virtv1.VirtualMachineInstance) { v.Status.Conditions[0].Status = corev1.ConditionTrue }, true, true, false},
		"not ready": {func(*virtv1.VirtualMachineInstance) {}, true, false, false},
		"no word":   {func(v *virtv1.VirtualMachineInstance) { v.Status.Conditions = nil }, false, false, false},
		"migrated": {func(v *virtv1.VirtualMachineInstance) {
			v.Status.MigrationState = &virtv1.VirtualMachineInstanceMigrationState{Completed: true}
		}, true, false, false},
		"paused": {func(v *virtv1.VirtualMachineInstance) {
			v.Status.Conditions = append(v.Status.Conditions, is(virtv1.VirtualMachineInstancePaused, corev1.ConditionTrue))
		}, true, false, true},
		"was paused a second ago": {func(v *virtv1.VirtualMachineInstance) {
			v.Status.Conditions[0].Reason = "ReadinessGatesNotReady"
		}, true, false, true},
		"container not ready": {func(v *virtv1.VirtualMachineInstance) {
			v.Status.Conditions[0].Reason = "ContainersNotReady"
		}, true, false, false},
		"migrates": {func(v *virtv1.VirtualMachineInstance) {
			v.Status.MigrationState = &virtv1.VirtualMachineInstanceMigrationState{}
		}, true, false, true},
		"two pods":  {func(v *virtv1.VirtualMachineInstance) { v.Status.ActivePods["b"] = "m" }, true, false, true},
		"evacuated": {func(v *virtv1.VirtualMachineInstance) { v.Status.EvacuationNodeName = "n" }, true, false, true},
		"ends": {func(v *virtv1.VirtualMachineInstance) {
			v.DeletionTimestamp = &metav1.Time{Time: controllertest.StatusTime()}
		}, true, false, true},
		"ended": {func(v *virtv1.VirtualMachineInstance) { v.Status.Phase = virtv1.Succeeded }, true, false, true},
	} {
		vmi := &virtv1.VirtualMachineInstance{Status: virtv1.VirtualMachineInstanceStatus{
			Phase: virtv1.Running, ActivePods: map[types.UID]string{"a": "n"},
			Conditions: []virtv1.VirtualMachineInstanceCondition{is(virtv1.VirtualMachineInstanceReady, corev1.ConditionFalse)},
		}}
		test.change(vmi)
		kept, err := objects.Strip(vmi.DeepCopy())
		if err != nil {
			t.Fatal(err)
		}
		for _, vmi := range []*virtv1.VirtualMachineInstance{vmi, kept.(*virtv1.VirtualMachineInstance)} {
			if guest, reported := guestOf(vmi); reported != test.reported || guest.Ready != test.ready || guest.Excused != test.excused {
				t.Errorf("%s: %+v, %t", name, guest, reported)
			}
		}
	}
}
