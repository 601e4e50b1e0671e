package controllers

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
)

// An agent that makes up reasons costs no status: the API refuses more than so many, and
// those of most VMs are kept.
func TestReasonsAreBounded(t *testing.T) {
	var examples []v1alpha1.VMExample
	tally := policyTally{levers: map[v1alpha1.Lever]*leverTally{v1alpha1.LeverSlice: {reasons: map[string]int32{}}}}
	add := func(reason string) {
		examples = append(examples, v1alpha1.VMExample{Lever: v1alpha1.LeverSlice, State: v1alpha1.LeverFailed, Reason: reason})
		tally.levers[v1alpha1.LeverSlice].count(reason, 1)
	}
	for i := range 200 {
		add(fmt.Sprintf("MadeUp%d", i))
	}
	add("Usual")
	add("Usual")

	counts := countLevers(examples)
	policy := v1alpha1.EnergyPolicy{Spec: v1alpha1.EnergyPolicySpec{Levers: []v1alpha1.Lever{v1alpha1.LeverSlice}}}
	reasons := coverage(&policy, tally)[0].Reasons
	if len(counts) != maxLeverCounts || len(reasons) != maxCoverageReasons {
		t.Errorf("%d counts of levers, %d reasons", len(counts), len(reasons))
	}
	if diff := cmp.Diff(v1alpha1.ReasonCount{Reason: "Usual", Count: 2}, reasons[0]); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	want := v1alpha1.LeverCount{Lever: v1alpha1.LeverSlice, State: v1alpha1.LeverFailed, Reason: "Usual", Count: 2}
	if diff := cmp.Diff(want, counts[len(counts)-1]); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
