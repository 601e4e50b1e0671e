package policy

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/observe/rates"
	"github.com/joulevirt/joulevirt/internal/units"
	"github.com/joulevirt/joulevirt/test/controllertest"
)

type potentials map[string][]model.Potential

func (p potentials) Of(node string) []model.Potential { return p[node] }

// The status sums up what levers would save on the policy's nodes, allowed or not.
func TestPolicyPotential(t *testing.T) {
	policy := controllertest.PolicyOf("p", 0, "")
	of := func(affinity, buffering units.Watts) []model.Potential {
		return []model.Potential{
			{Lever: v1alpha1.LeverAffinity, Watts: affinity, StdErr: affinity / 4, VMs: 3}, {Lever: v1alpha1.LeverBuffering, Watts: buffering, StdErr: buffering / 2, VMs: 1},
			{Lever: v1alpha1.LeverShaping, VMs: 2},
		}
	}
	view := policyScene(policy)
	view.potentials = potentials{"a": of(20, 0), "b": of(10, 4), "c": of(100, 100)}
	got := policyStatus(&policy, view)
	saves := func(lever v1alpha1.Lever, of, low, high v1alpha1.Decimal) v1alpha1.Saving {
		return v1alpha1.Saving{Lever: lever, Watts: v1alpha1.Estimate{Value: of, Low: low, High: high}}
	}
	want := []v1alpha1.Saving{saves(v1alpha1.LeverAffinity, "30", "15", "45"), saves(v1alpha1.LeverBuffering, "4", "0.08", "7.9")}
	if diff := cmp.Diff(want, got.Potential); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	// A node that is not heard adds nothing, and a new leader repeats what was said until
	// it worked out all that it can.
	policy.Status = got
	view.potentials = potentials{"a": of(20, 0)}
	if got := policyStatus(&policy, view).Potential; len(got) != 1 || got[0].Watts.Value != "20" {
		t.Errorf("of node a alone %+v", got)
	}
	heard := rates.NewStore(testingclock.NewFakePassiveClock(controllertest.StatusTime()), time.Minute, time.Minute)
	heard.Put(&model.NodeRates{Node: "b", Time: controllertest.StatusTime()})
	view.powers.Rates = heard
	cores := []v1alpha1.CoreGroup{{Cores: []string{"0", "1"}}}
	view.reports["b"].Status.Topology.CoreGroups = cores
	again := policyStatus(&policy, view)
	if diff := cmp.Diff(want, again.Potential); diff != "" {
		t.Errorf("by a new leader (-want +got):\n%s", diff)
	}
	// What is known to be nothing is not awaited, nor is what cannot come.
	view.potentials = potentials{"a": of(20, 0), "b": {}}
	if got := policyStatus(&policy, view).Potential; len(got) != 1 {
		t.Errorf("where nothing can be done %+v", got)
	}
	view.potentials = potentials{"a": of(20, 0)}
	view.reports["b"].Status.Topology.CoreGroups = nil
	if got := policyStatus(&policy, view).Potential; len(got) != 1 {
		t.Errorf("where no cores are known %+v", got)
	}
	view.reports["b"].Status.Topology.CoreGroups = cores
	policy.Generation++
	if got := policyStatus(&policy, view).Potential; len(got) != 1 {
		t.Errorf("of a new generation %+v", got)
	}
}
