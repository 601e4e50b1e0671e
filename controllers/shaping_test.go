package controllers_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
)

// From a profile that lets traffic wait to turns in the node's plan, and from what
// the agent says of them to the statuses.
func TestShaping(t *testing.T) {
	s := newScene(t, "shaping", 1)
	vmis := s.vms("backup", 2, s.nodes[0])
	s.agent(s.nodes[0], v1alpha1.PowerRAPL, vmis...)
	policy := s.policy("enforce", v1alpha1.ModeEnforce, func(p *v1alpha1.EnergyPolicySpec) { p.Levers = []v1alpha1.Lever{v1alpha1.LeverShaping} })
	profile := &v1alpha1.VMNetworkProfile{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: "backup"},
		Spec: v1alpha1.VMNetworkProfileSpec{
			Selector:     metav1.LabelSelector{MatchLabels: map[string]string{"app": "backup"}},
			TrafficClass: v1alpha1.TrafficDeferrable, MaxDelay: &metav1.Duration{Duration: 10 * time.Second},
			Bandwidth: &v1alpha1.BandwidthLimits{Ceiling: ptr.To(resource.MustParse("1G"))},
		},
	}
	s.must(suite.client.Create(t.Context(), profile))

	plan := s.plan(s.nodes[0], "turns", func(p *v1alpha1.NodePlan) bool { return len(p.Spec.VMs) == 2 && shapedBoth(p) })
	first, second := plan.Spec.VMs[0].Shaping.Turn, plan.Spec.VMs[1].Shaping.Turn
	if first.PeriodMilliseconds != 4000 || first.LengthMilliseconds != 2000 || *second != (v1alpha1.TurnAction{
		PeriodMilliseconds: 4000, OffsetMilliseconds: 2000, LengthMilliseconds: 2000, TrickleBitsPerSecond: 256_000,
	}) || *plan.Spec.VMs[0].Shaping.CeilingBitsPerSecond != 1e9 {
		t.Errorf("turns %+v and %+v of half of maxDelay, with a ceiling of 1G: %+v", first, second, plan.Spec.VMs[0].Shaping)
	}
	plan.Status = v1alpha1.NodePlanStatus{ObservedGeneration: plan.Generation, AppliedRevision: plan.Spec.Revision, VMsInForce: 2}
	for _, vmi := range vmis {
		plan.Status.VMs = append(plan.Status.VMs, v1alpha1.VMApplied{
			PodUID: podOf(vmi), Name: vmi.Name, Namespace: vmi.Namespace,
			Lever: v1alpha1.LeverShaping, State: v1alpha1.LeverInForce, Reason: v1alpha1.ReasonApplied,
		})
	}
	s.must(suite.client.Status().Update(t.Context(), plan))
	s.eventually("in force in both statuses", func(ctx context.Context) error {
		if err := suite.client.Get(ctx, client.ObjectKeyFromObject(profile), profile); err != nil {
			return err
		}
		if err := suite.client.Get(ctx, client.ObjectKeyFromObject(policy), policy); err != nil {
			return err
		}
		inForce := v1alpha1.LeverCount{Lever: v1alpha1.LeverShaping, State: v1alpha1.LeverInForce, Reason: v1alpha1.ReasonApplied, Count: 2}
		coverage := policy.Status.Coverage
		if profile.Status.VMsInForce != 2 || !slices.Contains(profile.Status.Levers, inForce) ||
			len(coverage) != 1 || coverage[0].Lever != v1alpha1.LeverShaping || coverage[0].ReachedVMs != 2 {
			return fmt.Errorf("levers %+v, coverage %+v", profile.Status.Levers, coverage)
		}
		return nil
	})

	s.must(suite.client.Patch(t.Context(), profile, client.RawPatch("application/merge-patch+json",
		[]byte(`{"spec":{"trafficClass":"Interactive","maxDelay":null,"bandwidth":null}}`))))
	s.plan(s.nodes[0], "nothing to shape", func(p *v1alpha1.NodePlan) bool {
		return !slices.ContainsFunc(p.Spec.VMs, func(vm v1alpha1.VMPlan) bool {
			return vm.Shaping != nil || !slices.ContainsFunc(vm.Reasons, func(r v1alpha1.PlanReason) bool { return r.Reason == v1alpha1.ReasonNothingToShape })
		})
	})
}

func shapedBoth(plan *v1alpha1.NodePlan) bool {
	return !slices.ContainsFunc(plan.Spec.VMs, func(vm v1alpha1.VMPlan) bool { return vm.Shaping == nil || vm.Shaping.Turn == nil })
}
