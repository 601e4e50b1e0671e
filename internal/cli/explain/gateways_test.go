package explain

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
)

func TestGateways(t *testing.T) {
	hybrid := v1alpha1.HybridWorkload{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "render"}, Spec: v1alpha1.HybridWorkloadSpec{ServiceName: "web"}}
	for reason, state := range map[string]v1alpha1.LeverState{
		v1alpha1.ReasonGatewayServes: v1alpha1.LeverInForce, v1alpha1.ReasonGatewayStarting: v1alpha1.LeverPending,
		v1alpha1.ReasonGatewayFailed: v1alpha1.LeverFailed, v1alpha1.ReasonGuardWithdrawn: v1alpha1.LeverBlocked, v1alpha1.ReasonRejectedByTrial: v1alpha1.LeverIdle, v1alpha1.ReasonAwaitingTrial: v1alpha1.LeverPending, v1alpha1.ReasonSelectedElsewhere: v1alpha1.LeverBlocked,
	} {
		hybrid.Status.Gateways = []v1alpha1.GatewayStatus{
			{VM: "other", Reason: v1alpha1.ReasonPaused}, {VM: "web-0", Pod: "gw", Ready: reason == v1alpha1.ReasonGatewayServes, Reason: reason, Message: "words"},
		}
		e := newExplanation("VMExplanation", "x", "shop", now())
		policy := &v1alpha1.EnergyPolicy{}
		for _, of := range []string{"render", "other"} {
			policy.Status.Trials = append(policy.Status.Trials, v1alpha1.LeverTrial{Lever: v1alpha1.LeverOffload, Class: "only hybridworkload/shop/" + of})
		}
		e.addGateways([]v1alpha1.HybridWorkload{hybrid}, "web-0", policy)
		if len(e.Trials) != 1 || e.Trials[0].Class != policy.Status.Trials[0].Class {
			t.Errorf("%s: trials %+v", reason, e.Trials)
		}
		if len(e.Decisions) != 1 || e.Decisions[0].State != state || e.Decisions[0].Lever != v1alpha1.LeverOffload || e.Decisions[0].Message != "words" {
			t.Errorf("%s: %+v", reason, e.Decisions)
		}
	}
}
