package controllers_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
)

// condition waits for a condition of an object, and for words in its message.
func (s *scene) condition(o client.Object, conditions func() []metav1.Condition, want metav1.Condition) {
	s.Helper()
	s.eventually(fmt.Sprintf("%T %s: %s=%s %s", o, o.GetName(), want.Type, want.Status, want.Reason), func(ctx context.Context) error {
		if err := suite.client.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}
		got := meta.FindStatusCondition(conditions(), want.Type)
		if got == nil || got.Status != want.Status || got.Reason != want.Reason || !strings.Contains(got.Message, want.Message) ||
			got.ObservedGeneration != o.GetGeneration() {
			return fmt.Errorf("it is %+v", got)
		}
		return nil
	})
}

func (s *scene) profileCondition(p *v1alpha1.VMNetworkProfile, kind string, status metav1.ConditionStatus, reason, words string) {
	s.Helper()
	s.condition(p, func() []metav1.Condition { return p.Status.Conditions },
		metav1.Condition{Type: kind, Status: status, Reason: reason, Message: words})
}

func (s *scene) policyCondition(p *v1alpha1.EnergyPolicy, kind string, status metav1.ConditionStatus, reason, words string) {
	s.Helper()
	s.condition(p, func() []metav1.Condition { return p.Status.Conditions },
		metav1.Condition{Type: kind, Status: status, Reason: reason, Message: words})
}

func TestProfileStatus(t *testing.T) {
	s := newScene(t, "profile", 1)
	vmis := s.vms("web", 2, s.nodes[0])
	nothing := s.profile("nothing", "misspelt")
	s.profileCondition(nothing, "Ready", metav1.ConditionFalse, v1alpha1.ReasonNoVMsMatched, "spec.template.metadata.labels")

	older := s.profile("older", "web")
	s.profileCondition(older, "Ready", metav1.ConditionTrue, v1alpha1.ReasonGoverning, "2 of 2")
	if older.Status.GovernedVMs != 2 || len(older.Status.Levers) != 1 || older.Status.Levers[0].Reason != v1alpha1.ReasonNoPolicy {
		t.Errorf("status without a policy: %+v", older.Status)
	}
	s.agent(s.nodes[0], v1alpha1.PowerRAPL, vmis...)
	s.policy("enforce", v1alpha1.ModeEnforce, nil)
	plan := s.plan(s.nodes[0], "pinned", func(p *v1alpha1.NodePlan) bool { return pinned(p, vmis...) })
	s.eventually("the plan awaits the agent", func(ctx context.Context) error {
		return s.levers(ctx, older, 0, v1alpha1.LeverCount{Lever: "Affinity", State: "Pending", Reason: v1alpha1.ReasonAwaitingAgent, Count: 2})
	})
	plan.Status = v1alpha1.NodePlanStatus{ObservedGeneration: plan.Generation, AppliedRevision: plan.Spec.Revision, VMsInForce: 2}
	for _, vmi := range vmis {
		plan.Status.VMs = append(plan.Status.VMs, v1alpha1.VMApplied{
			VMReference: v1alpha1.VMReference{PodUID: podOf(vmi), Name: vmi.Name, Namespace: vmi.Namespace},
			LeverReason: v1alpha1.LeverReason{Lever: v1alpha1.LeverAffinity, Reason: v1alpha1.ReasonApplied},
			State:       v1alpha1.LeverInForce,
		})
	}
	s.must(suite.client.Status().Update(t.Context(), plan))
	s.eventually("in force", func(ctx context.Context) error {
		return s.levers(ctx, older, 2, v1alpha1.LeverCount{Lever: "Affinity", State: "InForce", Reason: v1alpha1.ReasonApplied, Count: 2})
	})
}

func (s *scene) levers(ctx context.Context, p *v1alpha1.VMNetworkProfile, inForce int32, want v1alpha1.LeverCount) error {
	if err := suite.client.Get(ctx, client.ObjectKeyFromObject(p), p); err != nil {
		return err
	}
	if p.Status.VMsInForce != inForce || len(p.Status.Levers) != 1 || p.Status.Levers[0] != want || len(p.Status.Examples) != int(want.Count) {
		return fmt.Errorf("status is %+v", p.Status)
	}
	return nil
}

func TestProfilesOverlap(t *testing.T) {
	s := newScene(t, "overlap", 1)
	s.vms("web", 1, s.nodes[0])
	// Equal times of creation, to the second, are decided by name.
	first := s.profile("a", "web")
	second := s.profile("b", "web")
	s.profileCondition(second, v1alpha1.ConditionOverlapping, metav1.ConditionTrue, v1alpha1.ReasonOlderProfileWins, "VMNetworkProfile a")
	s.profileCondition(second, "Ready", metav1.ConditionFalse, v1alpha1.ReasonOlderProfileWins, "web-00000")
	s.profileCondition(first, v1alpha1.ConditionOverlapping, metav1.ConditionFalse, v1alpha1.ReasonNotContested, "")
	s.must(suite.client.Delete(t.Context(), first))
	s.profileCondition(second, "Ready", metav1.ConditionTrue, v1alpha1.ReasonGoverning, "1 of 1")
	s.profileCondition(second, v1alpha1.ConditionOverlapping, metav1.ConditionFalse, v1alpha1.ReasonNotContested, "")
}

func TestPolicyStatus(t *testing.T) {
	s := newScene(t, "policy", 2)
	s.agent(s.nodes[0], v1alpha1.PowerRAPL, s.vms("web", 1, s.nodes[0])...)
	s.profile("web", "web")
	unknown := s.policy("unknown", v1alpha1.ModeObserve, func(spec *v1alpha1.EnergyPolicySpec) {
		spec.NodeSelector.MatchLabels = map[string]string{"kubernetes.io/hostname": "misspelt"}
	})
	s.policyCondition(unknown, "Ready", metav1.ConditionFalse, v1alpha1.ReasonNoNodesSelected, "kubernetes.io/hostname=misspelt")

	low := s.policy("a-low", v1alpha1.ModeEnforce, nil)
	s.policyCondition(low, "Ready", metav1.ConditionTrue, v1alpha1.ReasonGoverningNodes, "governs 2 of 2")
	s.policyCondition(low, v1alpha1.ConditionMeterAvailable, metav1.ConditionFalse, v1alpha1.ReasonNoMeter, "1 of 2")
	s.eventually("counts", func(ctx context.Context) error {
		if err := suite.client.Get(ctx, client.ObjectKeyFromObject(low), low); err != nil {
			return err
		}
		want := v1alpha1.NodeCounts{Selected: 2, Governed: 2, Reporting: 1, Metered: 1}
		covered := len(low.Status.Coverage) == 1 && low.Status.Coverage[0].VMs == 1
		if low.Status.Nodes != want || low.Status.Watts == nil || *low.Status.Watts != 100 || !covered {
			return fmt.Errorf("status is %+v", low.Status)
		}
		return nil
	})
	high := s.policy("z-high", v1alpha1.ModeObserve, func(spec *v1alpha1.EnergyPolicySpec) { spec.Priority = 1 })
	s.policyCondition(low, v1alpha1.ConditionNodesContested, metav1.ConditionTrue, v1alpha1.ReasonOtherPolicyWins, high.Name)
	s.policyCondition(low, "Ready", metav1.ConditionFalse, v1alpha1.ReasonOtherPolicyWins, high.Name)
	s.policyCondition(high, v1alpha1.ConditionNodesContested, metav1.ConditionFalse, v1alpha1.ReasonNotContested, "")
	s.plan(s.nodes[0], "the higher priority's", func(p *v1alpha1.NodePlan) bool { return p.Spec.Policy == high.Name })
}
