package main

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
)

func TestFrame(t *testing.T) {
	watts := int64(400)
	power := int64(50)
	fleet := &v1alpha1.EnergyPolicy{}
	f := frame{
		passed: 90 * time.Minute, took: 20 * time.Second, fleet: fleet,
		real: []v1alpha1.NodePlan{{
			ObjectMeta: metav1.ObjectMeta{Name: "this-machine"},
			Spec:       v1alpha1.NodePlanSpec{VMs: make([]v1alpha1.VMPlan, 2)}, Status: v1alpha1.NodePlanStatus{VMsInForce: 2},
		}},
		nodes: []v1alpha1.NodePlan{{
			ObjectMeta: metav1.ObjectMeta{Name: "simulated-000"},
			Spec: v1alpha1.NodePlanSpec{
				VMs:    []v1alpha1.VMPlan{{Reasons: []v1alpha1.PlanReason{{Lever: v1alpha1.LeverAffinity, Reason: "Pinned"}}}},
				Trials: []v1alpha1.TrialSchedule{{Lever: v1alpha1.LeverBuffering, Otherwise: true}},
			},
		}},
		reports: map[string]*v1alpha1.NodeReport{"simulated-000": {Status: v1alpha1.NodeReportStatus{Power: v1alpha1.Power{Watts: &power}}}},
	}
	check := func(want ...string) {
		t.Helper()
		text := f.String()
		for _, w := range want {
			if !strings.Contains(text, w) {
				t.Errorf("%q is missing in\n%s", w, text)
			}
		}
	}
	check("1h30m0s of the fleet in 20s", "are simulated", "watts: not known yet", "no meter", "Affinity: Pinned, Buffering: held back in turn")
	f.reports["this-machine"] = &v1alpha1.NodeReport{Status: v1alpha1.NodeReportStatus{Power: v1alpha1.Power{Watts: &power, Source: v1alpha1.PowerModel}}}
	check("50 (model)")
	fleet.Status.Watts = &watts
	check("watts now 400, nothing proven yet")
	fleet.Status.Proven = []v1alpha1.Saving{
		{Milliwatts: 30000, LowMilliwatts: 20000, HighMilliwatts: 41000}, {Milliwatts: 5000, LowMilliwatts: -1000, HighMilliwatts: 9000},
	}
	fleet.Status.Trials = []v1alpha1.LeverTrial{{
		Lever: v1alpha1.LeverAffinity, Class: "a class", Stance: "Adopted", Units: 7, Pairs: 12, PlannedPairs: 24,
		SavedPercent: &v1alpha1.Estimate{Value: "8.1", Low: "7.2", High: "9.0"},
	}}
	check("watts now 400, without us 435, saved 35.0 (19.0 to 50.0)", "12 of 24", "7.2 to 9.0", "a class")
}
