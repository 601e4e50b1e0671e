package observe

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
)

func TestPartly(t *testing.T) {
	vm := func(reasons ...v1alpha1.PlanReason) v1alpha1.VMPlan { return v1alpha1.VMPlan{Reasons: reasons} }
	of := func(lever v1alpha1.Lever, reason string) v1alpha1.PlanReason {
		return v1alpha1.PlanReason{Lever: lever, Reason: reason}
	}
	plan := &v1alpha1.NodePlan{Spec: v1alpha1.NodePlanSpec{VMs: []v1alpha1.VMPlan{
		vm(of(v1alpha1.LeverAffinity, "Pinned"), of(v1alpha1.LeverBuffering, v1alpha1.ReasonChangeBudgetNodes)),
		vm(of(v1alpha1.LeverAffinity, v1alpha1.ReasonChangeBudgetHour), of(v1alpha1.LeverBuffering, v1alpha1.ReasonChangeBudgetHour)),
		vm(of(v1alpha1.LeverShaping, "NotDeferrable")),
	}}}
	if diff := cmp.Diff([]model.Lever{model.LeverAffinity, model.LeverBuffering}, Partly(plan)); diff != "" {
		t.Errorf("levers that wait (-want +got):\n%s", diff)
	}
	if got := Partly(&v1alpha1.NodePlan{}); len(got) > 0 {
		t.Errorf("an empty plan waits for %v", got)
	}
}
