package controllers

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/metrics"
	"github.com/joulevirt/joulevirt/internal/metricstest"
)

func saidOf(lever v1alpha1.Lever, state v1alpha1.LeverState, reason string) v1alpha1.VMApplied {
	return v1alpha1.VMApplied{Lever: lever, State: state, Reason: reason}
}

func TestReasonsOfMetricsThatAreNotKnown(t *testing.T) {
	words := reasonWords{known: func(word string) bool { return word == v1alpha1.ReasonApplied }}
	got := words.said([]v1alpha1.VMApplied{
		saidOf(v1alpha1.LeverSlice, v1alpha1.LeverInForce, v1alpha1.ReasonApplied), saidOf(v1alpha1.LeverSlice, v1alpha1.LeverInForce, "FromTheFuture"),
		saidOf(v1alpha1.LeverSlice, v1alpha1.LeverInForce, ""), saidOf(v1alpha1.LeverSlice, v1alpha1.LeverBlocked, "FromTheFuture"),
	})
	want := map[saidOfLever]float64{
		{v1alpha1.LeverSlice, v1alpha1.LeverInForce, v1alpha1.ReasonApplied}: 1,
		{v1alpha1.LeverSlice, v1alpha1.LeverInForce, otherReason}:            2,
		{v1alpha1.LeverSlice, v1alpha1.LeverBlocked, otherReason}:            1,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := (reasonWords{}).fold("FromTheFuture"); got != "FromTheFuture" {
		t.Errorf("%s without a table", got)
	}
}

// An agent that gives every VM another reason has no more series than the table says, whether
// the words are known or not, and no VM is lost from the count.
func TestReasonsOfMetricsAreBounded(t *testing.T) {
	var vms []v1alpha1.VMApplied
	policy := policyOf("p", 0, "")
	for _, lever := range []v1alpha1.Lever{v1alpha1.LeverTrafficShare, v1alpha1.LeverAffinity, v1alpha1.LeverSlice, v1alpha1.LeverBuffering, v1alpha1.LeverShaping} {
		coverage := v1alpha1.LeverCoverage{Lever: lever}
		for i := range 40 {
			word := fmt.Sprintf("Word%d", i)
			for _, state := range []v1alpha1.LeverState{
				v1alpha1.LeverInForce, v1alpha1.LeverPending, v1alpha1.LeverRecommended, v1alpha1.LeverIdle, v1alpha1.LeverBlocked, v1alpha1.LeverFailed,
			} {
				vms = append(vms, saidOf(lever, state, word))
			}
			const most = 32 // that the API takes
			if i < most {
				coverage.Reasons = append(coverage.Reasons, v1alpha1.ReasonCount{Reason: word, Count: 1})
			}
		}
		policy.Status.Coverage = append(policy.Status.Coverage, coverage)
	}
	// What many VMs have keeps its word.
	vms = append(vms, saidOf(v1alpha1.LeverSlice, v1alpha1.LeverInForce, "Word39"))
	plan := &v1alpha1.NodePlan{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Status: v1alpha1.NodePlanStatus{VMs: vms}}
	scheme, err := NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	for name, known := range map[string]func(string) bool{"all known": nil, "none known": func(string) bool { return false }} {
		reader := fake.NewClientBuilder().WithScheme(scheme).WithObjects(&policy, plan).Build()
		registry := prometheus.NewPedanticRegistry()
		registry.MustRegister(newStatusCollector(reader, newPotentialStore(), func() bool { return true }, reasonWords{known: known}))
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, problem := range metricstest.TooMany(metrics.Manager(), families) {
			t.Errorf("%s: %s", name, problem)
		}
		counts, sum := reasonWords{known: known}.said(vms), 0.0
		for _, count := range counts {
			sum += count
		}
		if sum != float64(len(vms)) {
			t.Errorf("%s: %v VMs are counted, want %d", name, sum, len(vms))
		}
		if kept := counts[saidOfLever{v1alpha1.LeverSlice, v1alpha1.LeverInForce, "Word39"}]; known == nil && kept != 2 {
			t.Errorf("the reason of most VMs has %v", kept)
		}
	}
}
