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

// TestALeverThatWasNotTriedWaitsForALostMeter: a policy that allows figures of models has a
// lever act at once on a node that never had a meter. On one that lost its meter it goes on
// waiting for its trial, though VMs come and the node is planned anew, and both the policy and
// the plan say why.
func TestALeverThatWasNotTriedWaitsForALostMeter(t *testing.T) {
	t.Parallel()
	s := newScene(t, "meter-lost", 2)
	loses, never := s.nodes[0], s.nodes[1]
	first, other := s.vms("first", 2, loses), s.vms("other", 2, never)
	s.agent(loses, v1alpha1.PowerRAPL, first...)
	s.agent(never, v1alpha1.PowerModel, other...)
	s.profile("first", "first")
	s.profile("second", "second")
	s.profile("other", "other")
	policy := s.policy("p", v1alpha1.ModeEnforce, func(spec *v1alpha1.EnergyPolicySpec) {
		spec.Verification.Trials = v1alpha1.TrialsRequired
		spec.Energy.AllowModelled = true
	})
	waits := func(p *v1alpha1.NodePlan, vms int, words string) bool {
		count := 0
		for _, vm := range p.Spec.VMs {
			for _, why := range vm.Reasons {
				if why.Lever == v1alpha1.LeverAffinity && why.Reason == v1alpha1.ReasonAwaitingTrial && strings.Contains(why.Message, words) {
					count++
				}
			}
		}
		return count == vms && pinned(p)
	}
	s.plan(loses, "the lever waits for its trial", func(p *v1alpha1.NodePlan) bool { return waits(p, 2, "") })
	s.plan(never, "without a meter the lever acts", func(p *v1alpha1.NodePlan) bool { return pinned(p, other...) })

	s.agent(loses, v1alpha1.PowerModel, first...)
	s.eventually("condition MeterAvailable", func(ctx context.Context) error {
		var is v1alpha1.EnergyPolicy
		if err := suite.client.Get(ctx, client.ObjectKeyFromObject(policy), &is); err != nil {
			return err
		}
		meter := meta.FindStatusCondition(is.Status.Conditions, v1alpha1.ConditionMeterAvailable)
		if meter == nil || meter.Status != metav1.ConditionFalse || meter.Reason != v1alpha1.ReasonMeterLost || !strings.Contains(meter.Message, loses+" was metered until") {
			return fmt.Errorf("it is %+v", meter)
		}
		return nil
	})
	s.plan(loses, "the lever waits, and says for what", func(p *v1alpha1.NodePlan) bool { return waits(p, 2, v1alpha1.ReasonMeterLost) })
	second := s.vms("second", 2, loses)
	s.agent(loses, v1alpha1.PowerModel, append(first, second...)...)
	s.plan(loses, "the lever waits for new VMs too", func(p *v1alpha1.NodePlan) bool { return waits(p, 4, v1alpha1.ReasonMeterLost) })
	s.agent(loses, v1alpha1.PowerRAPL, append(first, second...)...)
	s.plan(loses, "the meter is back", func(p *v1alpha1.NodePlan) bool {
		return waits(p, 4, "") && !waits(p, 4, v1alpha1.ReasonMeterLost)
	})
}
