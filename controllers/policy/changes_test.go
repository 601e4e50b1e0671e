package policy

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	testingclock "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/controllers/group"
	"github.com/joulevirt/joulevirt/controllers/objects"
	"github.com/joulevirt/joulevirt/internal/observe"
	"github.com/joulevirt/joulevirt/internal/observe/rates"
	"github.com/joulevirt/joulevirt/test/controllertest"
)

func TestPolicyConditionsOfChanges(t *testing.T) {
	window := func(schedule string) []v1alpha1.ChangeWindow {
		return []v1alpha1.ChangeWindow{{Schedule: schedule, Duration: metav1.Duration{Duration: time.Hour}}}
	}
	hour := controllertest.StatusTime().UTC().Hour()
	open, shut := window(fmt.Sprintf("0 %d * * *", hour)), window(fmt.Sprintf("0 %d * * *", (hour+5)%24))
	for name, tc := range map[string]struct {
		change                 func(*v1alpha1.EnergyPolicySpec)
		ready, paused, allowed string
		words                  []string
	}{
		"no bounds": {func(*v1alpha1.EnergyPolicySpec) {}, "True GoverningNodes", "False NotPaused", "True ChangesAllowed", nil},
		"paused":    {func(s *v1alpha1.EnergyPolicySpec) { s.Paused = true }, "True GoverningNodes", "True Paused", "False Paused", []string{"undone", "spec.paused is false"}},
		"in a window": {func(s *v1alpha1.EnergyPolicySpec) { s.Budgets.Windows = open },
			"True GoverningNodes", "False NotPaused", "True ChangesAllowed", nil},
		"outside": {func(s *v1alpha1.EnergyPolicySpec) { s.Budgets.Windows = shut },
			"True GoverningNodes", "False NotPaused", "False OutsideChangeWindow", []string{"spec.budgets.windows", "before "}},
		"in a freeze": {func(s *v1alpha1.EnergyPolicySpec) { s.Budgets.Freezes = open },
			"True GoverningNodes", "False NotPaused", "False InFreeze", []string{"spec.budgets.freezes"}},
		"a schedule that cannot be": {func(s *v1alpha1.EnergyPolicySpec) { s.Budgets.Windows = append(open, window("99 * * * *")...) },
			"False InvalidSchedule", "False NotPaused", "False InvalidSchedule", []string{`spec.budgets.windows[1].schedule "99 * * * *"`, "correct the field", "what is in force stays"}},
	} {
		policy := controllertest.PolicyOf("p", 0, "")
		tc.change(&policy.Spec)
		status := policyStatus(&policy, policyScene(policy))
		controllertest.CheckConditions(t, name, status.Conditions,
			map[string]string{"Ready": tc.ready, "Paused": tc.paused, "ChangesAllowed": tc.allowed}, tc.words)
		if meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionApprovalsMatched) != nil {
			t.Errorf("%s: something is said of approvals", name)
		}
	}
}

func TestApprovalsMatched(t *testing.T) {
	planned := func(node, policy, revision string) *objects.IndexedPlan {
		plan := &v1alpha1.NodePlan{ObjectMeta: metav1.ObjectMeta{Name: node}}
		plan.Spec.Policy, plan.Spec.Revision = policy, revision
		return &objects.IndexedPlan{NodePlan: plan}
	}
	for name, tc := range map[string]struct {
		approvals []string
		want      string
		words     []string
	}{
		"a node's":             {[]string{"r2"}, "True AllMatched", nil},
		"a node's and a group": {[]string{"r2", "g1"}, "True AllMatched", nil},
		"unknown":              {[]string{"r2", "typo"}, "False ApprovalUnmatched", []string{"1 of spec.approvals", "typo"}},
		"of another policy":    {[]string{"other"}, "False ApprovalUnmatched", []string{"other"}},
		"many":                 {[]string{"u1", "u2", "u3", "u4", "u5"}, "False ApprovalUnmatched", []string{"5 of spec.approvals", "u1, u2, u3 and 2 more"}},
	} {
		policy := controllertest.PolicyOf("p", 0, "")
		policy.Spec.Mode, policy.Spec.Approvals = v1alpha1.ModeRecommend, tc.approvals
		view := policyScene(policy)
		view.plans = map[string]*objects.IndexedPlan{"a": planned("a", "p", "r2"), "b": planned("b", "q", "other")}
		view.groupRevisions = map[string]bool{"g1": true}
		status := policyStatus(&policy, view)
		controllertest.CheckConditions(t, name, status.Conditions, map[string]string{"ApprovalsMatched": tc.want}, tc.words)
		// It goes with the last approval, and with the mode that asks for them.
		policy.Status = status
		for mode, approvals := range map[v1alpha1.PolicyMode][]string{v1alpha1.ModeRecommend: nil, v1alpha1.ModeEnforce: tc.approvals} {
			policy.Spec.Mode, policy.Spec.Approvals = mode, approvals
			if meta.FindStatusCondition(policyStatus(&policy, view).Conditions, v1alpha1.ConditionApprovalsMatched) != nil {
				t.Errorf("%s: in mode %s something is said of approvals %v", name, mode, approvals)
			}
		}
	}
}

// A pause is an Event once, as is its end.
func TestPausesAreEvents(t *testing.T) {
	scheme, err := objects.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	policy := controllertest.PolicyOf("p", 0, "")
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(&policy).WithStatusSubresource(&policy).Build()
	clock := testingclock.NewFakePassiveClock(controllertest.StatusTime())
	recorder := events.NewFakeRecorder(10)
	r := &Reconciler{
		Client: c, Clock: clock, Recorder: recorder, Wake: func() {}, Views: group.NewViews(nil, nil),
		Powers: &observe.Powers{Rates: rates.NewStore(clock, time.Minute, time.Minute), Meters: controllertest.MetersByURL{}, Clock: clock},
	}
	for _, step := range []struct {
		paused bool
		want   string
	}{
		{false, ""}, {true, "Normal Paused everything that the policy does on 0 nodes is undone"}, {true, ""},
		{false, "Normal NotPaused the policy acts again on 0 nodes, in mode Enforce"}, {false, ""},
	} {
		reconcilePause(t, r, step.paused)
		got := ""
		select {
		case got = <-recorder.Events:
		default:
		}
		if got != step.want {
			t.Errorf("paused %t: event %q, want %q", step.paused, got, step.want)
		}
	}
}

func reconcilePause(t *testing.T, r *Reconciler, paused bool) {
	t.Helper()
	key := types.NamespacedName{Name: "p"}
	var policy v1alpha1.EnergyPolicy
	if err := r.Client.Get(t.Context(), key, &policy); err != nil {
		t.Fatal(err)
	}
	policy.Spec.Paused = paused
	if err := r.Client.Update(t.Context(), &policy); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key}); err != nil {
		t.Fatal(err)
	}
}
