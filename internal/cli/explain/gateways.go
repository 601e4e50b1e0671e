package explain

import (
	"slices"
	"strings"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
)

// addGateways adds the gateways that answer for a VM, or why it has none, and the trial of its HybridWorkload.
func (e *Explanation) addGateways(hybrids []v1alpha1.HybridWorkload, vm string, policy *v1alpha1.EnergyPolicy) {
	for i := range hybrids {
		for _, g := range hybrids[i].Status.Gateways {
			if g.VM != vm {
				continue
			}
			d := Decision{Lever: v1alpha1.LeverOffload, State: v1alpha1.LeverBlocked, Reason: g.Reason, Message: g.Message}
			d.Planned = "a gateway in Service " + hybrids[i].Spec.ServiceName + ", by HybridWorkload " + hybrids[i].Name
			switch {
			case g.Ready:
				d.State, d.ReadBack = v1alpha1.LeverInForce, "pod "+g.Pod+" serves"
			case g.Reason == v1alpha1.ReasonRejectedByTrial:
				d.State = v1alpha1.LeverIdle
			case slices.Contains([]string{
				v1alpha1.ReasonGatewayStarting, v1alpha1.ReasonGatewayEnding,
				v1alpha1.ReasonAwaitingTrial, v1alpha1.ReasonTrialUndecided, v1alpha1.ReasonAwaitingProof,
			}, g.Reason):
				d.State = v1alpha1.LeverPending
			case g.Reason == v1alpha1.ReasonGatewayFailed || g.Reason == v1alpha1.ReasonGatewayRefused || g.Reason == v1alpha1.ReasonGatewayTLS:
				d.State = v1alpha1.LeverFailed
			}
			e.decide(d)
			unit := model.UnitOfWorkload(hybrids[i].Namespace + "/" + hybrids[i].Name)
			for t := 0; policy != nil && t < len(policy.Status.Trials); t++ {
				if trial := policy.Status.Trials[t]; trial.Lever == v1alpha1.LeverOffload && strings.HasSuffix(trial.Class, unit) {
					e.Trials = append(e.Trials, trial)
				}
			}
		}
	}
}
