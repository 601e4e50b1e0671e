package controllers

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/energy"
)

// setAlerts says whether the alerts of a policy are answered, while it has some.
func setAlerts(status *v1alpha1.EnergyPolicyStatus, policy *v1alpha1.EnergyPolicy, view policyView) {
	if len(policy.Spec.Guardrails.Alerts) == 0 || view.alerts == nil {
		meta.RemoveStatusCondition(&status.Conditions, v1alpha1.ConditionAlertsAnswered)
		return
	}
	condition := alertsAnswered(policy, view.alerts)
	setConditions(&status.Conditions, []metav1.Condition{condition}, policy.Generation, view.now)
}

// alertsAnswered names the first alert that is not answered, or whose series name nothing.
func alertsAnswered(policy *v1alpha1.EnergyPolicy, answer func(string, *v1alpha1.Alert) (alertAnswer, bool)) metav1.Condition {
	out := metav1.Condition{
		Type: v1alpha1.ConditionAlertsAnswered, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAllAnswered,
		Message: "the Prometheus server answers all of spec.guardrails.alerts",
	}
	alerts := policy.Spec.Guardrails.Alerts
	for i := range alerts {
		is, known := answer(policy.Name, &alerts[i])
		switch {
		case !known:
			if out.Status == metav1.ConditionTrue {
				out.Status, out.Reason = metav1.ConditionUnknown, v1alpha1.ReasonAwaitingAnswers
				out.Message = fmt.Sprintf("alert %s was not asked for yet", alerts[i].Name)
			}
		case is.err != nil:
			out.Status, out.Reason = metav1.ConditionFalse, string(energy.ReasonOf(is.err))
			out.Message = cut(fmt.Sprintf("alert %s is not known, so what it withdrew stays so, and it withdraws nothing: %v", alerts[i].Name, is.err), maxConditionMessage)
			return out
		case is.strangers > 0 && out.Status == metav1.ConditionTrue:
			out.Message = fmt.Sprintf("the Prometheus server answers all of spec.guardrails.alerts. %d series of alert %s name no VirtualMachineInstance by labels %s and %s, and no node by label %s: they count for nothing",
				is.strangers, alerts[i].Name, labelNamespace, labelName, labelNode)
		}
	}
	return out
}
