package difference

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/ptr"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
)

func TestSteps(t *testing.T) {
	pins := func(cpus string) *v1alpha1.AffinityAction {
		return &v1alpha1.AffinityAction{VCPUs: []v1alpha1.VCPUPin{{VCPU: 1, CPUs: cpus}, {VCPU: 0, CPUs: "1"}}, EmulatorCPUs: "0-3"}
	}
	back := func(cpus string) *v1alpha1.VMApplied {
		return &v1alpha1.VMApplied{
			VMReference: v1alpha1.VMReference{PodUID: "pod"},
			LeverReason: v1alpha1.LeverReason{Lever: v1alpha1.LeverAffinity, Reason: v1alpha1.ReasonApplied},
			State:       v1alpha1.LeverInForce,
			VCPUs:       []v1alpha1.VCPUPin{{VCPU: 0, CPUs: "1"}, {VCPU: 1, CPUs: cpus}},
		}
	}
	slice := &v1alpha1.VMApplied{VMReference: v1alpha1.VMReference{PodUID: "pod"}, LeverReason: v1alpha1.LeverReason{Lever: v1alpha1.LeverSlice}, State: v1alpha1.LeverInForce}
	failed := &v1alpha1.VMApplied{VMReference: v1alpha1.VMReference{PodUID: "pod"}, LeverReason: v1alpha1.LeverReason{Lever: v1alpha1.LeverSlice}, State: v1alpha1.LeverFailed}
	left := &v1alpha1.VMApplied{VMReference: v1alpha1.VMReference{PodUID: "other"}, LeverReason: v1alpha1.LeverReason{Lever: v1alpha1.LeverShaping}, State: v1alpha1.LeverInForce}
	for name, tc := range map[string]struct {
		apply   bool
		planned v1alpha1.VMPlan
		applied []*v1alpha1.VMApplied
		want    map[Step]int
	}{
		"nothing":        {true, v1alpha1.VMPlan{}, nil, map[Step]int{}},
		"adds":           {true, v1alpha1.VMPlan{Affinity: pins("2")}, nil, map[Step]int{Adds: 1}},
		"recommends":     {false, v1alpha1.VMPlan{Affinity: pins("2")}, nil, map[Step]int{Adds: 1}},
		"stays":          {true, v1alpha1.VMPlan{Affinity: pins("2")}, []*v1alpha1.VMApplied{back("2")}, map[Step]int{Stays: 1}},
		"changes":        {true, v1alpha1.VMPlan{Affinity: pins("20")}, []*v1alpha1.VMApplied{back("2")}, map[Step]int{Changes: 1}},
		"undoes":         {true, v1alpha1.VMPlan{}, []*v1alpha1.VMApplied{slice}, map[Step]int{Undoes: 1}},
		"takes all back": {false, v1alpha1.VMPlan{Affinity: pins("2")}, []*v1alpha1.VMApplied{back("2")}, map[Step]int{Undoes: 1}},
		"tries again":    {true, v1alpha1.VMPlan{SliceMicroseconds: ptr.To(int32(1000))}, []*v1alpha1.VMApplied{failed}, map[Step]int{Adds: 1}},
		"gone from plan": {true, v1alpha1.VMPlan{}, []*v1alpha1.VMApplied{left}, map[Step]int{Undoes: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			plan := &v1alpha1.NodePlan{Spec: v1alpha1.NodePlanSpec{Apply: tc.apply, VMs: []v1alpha1.VMPlan{tc.planned}}}
			plan.Spec.VMs[0].PodUID = "pod"
			for _, applied := range tc.applied {
				plan.Status.VMs = append(plan.Status.VMs, *applied)
			}
			if diff := cmp.Diff(tc.want, Of(plan, false).Steps); diff != "" {
				t.Errorf("steps (-want +got):\n%s", diff)
			}
		})
	}
}
