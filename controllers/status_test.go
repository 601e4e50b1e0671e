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

// status waits until the status of a policy is as wanted.
func (s *scene) status(p *v1alpha1.EnergyPolicy, what string, wanted func(*v1alpha1.EnergyPolicyStatus) bool) {
	s.Helper()
	s.eventually("status of EnergyPolicy "+p.Name+": "+what, func(ctx context.Context) error {
		if err := suite.client.Get(ctx, client.ObjectKeyFromObject(p), p); err != nil {
			return err
		}
		if !wanted(&p.Status) {
			return fmt.Errorf("it is %+v", p.Status)
		}
		return nil
	})
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
	s.status(low, "counts", func(status *v1alpha1.EnergyPolicyStatus) bool {
		vms := int32(0)
		for _, coverage := range status.Coverage {
			vms += coverage.ReachedVMs
			for _, reason := range coverage.Reasons {
				vms += reason.Count
			}
		}
		covered := len(status.Coverage) == 1 && vms == 1
		return covered && status.Nodes == v1alpha1.NodeCounts{Selected: 2, Governed: 2, Reporting: 1, Metered: 1} && status.Watts != nil && *status.Watts == 100
	})
	high := s.policy("z-high", v1alpha1.ModeObserve, func(spec *v1alpha1.EnergyPolicySpec) { spec.Priority = 1 })
	s.policyCondition(low, v1alpha1.ConditionNodesContested, metav1.ConditionTrue, v1alpha1.ReasonOtherPolicyWins, high.Name)
	s.policyCondition(low, "Ready", metav1.ConditionFalse, v1alpha1.ReasonOtherPolicyWins, high.Name)
	s.policyCondition(high, v1alpha1.ConditionNodesContested, metav1.ConditionFalse, v1alpha1.ReasonNotContested, "")
	s.plan(s.nodes[0], "the higher priority's", func(p *v1alpha1.NodePlan) bool { return p.Spec.Policy == high.Name })
}
