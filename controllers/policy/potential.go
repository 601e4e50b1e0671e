package policy

import (
	"cmp"
	"slices"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/controllers/statuses"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/power"
)

// potentialTally is what levers of nodes would save on a policy's nodes, allowed or not.
// The errors of nodes add up: they have the same model.
type potentialTally struct {
	levers map[v1alpha1.Lever]*power.Estimate
	// awaited is true while that was not worked out yet of a node that can be planned.
	awaited bool
}

// add adds one node. Nil potentials are not known: to come when the node is plannable.
func (t *potentialTally) add(potentials []model.Potential, plannable bool) {
	if potentials == nil {
		t.awaited = t.awaited || plannable
		return
	}
	if t.levers == nil {
		t.levers = map[v1alpha1.Lever]*power.Estimate{}
	}
	for _, p := range potentials {
		if p.IsNone() {
			continue
		}
		sum := t.levers[p.Lever]
		if sum == nil {
			sum = &power.Estimate{}
			t.levers[p.Lever] = sum
		}
		sum.Watts += p.Watts
		sum.StdErr += p.StdErr
	}
}

// write gives the status what is known, beside what it says of groups, and what was said
// before while not all is.
func (t *potentialTally) write(status *v1alpha1.EnergyPolicyStatus, policy *v1alpha1.EnergyPolicy) {
	ofGroups := func(s v1alpha1.Saving) bool { return s.Lever == v1alpha1.LeverTrafficShare }
	status.Potential = slices.DeleteFunc(slices.Clone(status.Potential), func(s v1alpha1.Saving) bool { return !ofGroups(s) })
	if t.awaited && policy.Status.ObservedGeneration == policy.Generation {
		status.Potential = append(status.Potential, slices.DeleteFunc(slices.Clone(policy.Status.Potential), ofGroups)...)
	} else {
		for lever, estimate := range t.levers {
			status.Potential = append(status.Potential, statuses.SavingOf(lever, *estimate))
		}
	}
	slices.SortFunc(status.Potential, func(x, y v1alpha1.Saving) int { return cmp.Compare(x.Lever, y.Lever) })
	if len(status.Potential) == 0 {
		status.Potential = nil
	}
}
