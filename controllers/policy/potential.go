package policy

import (
	"cmp"
	"slices"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/controllers/statuses"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/power"
	"github.com/joulevirt/joulevirt/internal/units"
)

// potentialTally is what levers of nodes would save on a policy's nodes, allowed or not.
// The errors of nodes add up: they have the same model.
type potentialTally struct {
	levers map[v1alpha1.Lever]*power.Estimate
	// nodes on which something could be saved.
	nodes []nodePotential
	// awaited is true while that was not worked out yet of a node that can be planned.
	awaited bool
}

// nodePotential is what levers would save on a node, and all together.
type nodePotential struct {
	name   string
	levers []model.Potential
	sum    units.Watts
}

// add adds one node. Nil potentials are not known: to come when the node is plannable.
func (t *potentialTally) add(node string, potentials []model.Potential, plannable bool) {
	if potentials == nil {
		t.awaited = t.awaited || plannable
		return
	}
	if t.levers == nil {
		t.levers = map[v1alpha1.Lever]*power.Estimate{}
	}
	of := nodePotential{name: node}
	for _, p := range potentials {
		if p.IsNone() {
			continue
		}
		of.levers, of.sum = append(of.levers, p), of.sum+p.Watts
		sum := t.levers[p.Lever]
		if sum == nil {
			sum = &power.Estimate{}
			t.levers[p.Lever] = sum
		}
		sum.Watts += p.Watts
		sum.StdErr += p.StdErr
	}
	if len(of.levers) > 0 {
		t.nodes = append(t.nodes, of)
	}
}

// write gives the status what is known, beside what it says of groups, and what was said
// before while not all is.
func (t *potentialTally) write(status *v1alpha1.EnergyPolicyStatus, policy *v1alpha1.EnergyPolicy) {
	ofGroups := func(s v1alpha1.Saving) bool { return s.Lever == v1alpha1.LeverTrafficShare }
	status.Potential = slices.DeleteFunc(slices.Clone(status.Potential), func(s v1alpha1.Saving) bool { return !ofGroups(s) })
	if t.awaited && policy.Status.ObservedGeneration == policy.Generation {
		status.Potential = append(status.Potential, slices.DeleteFunc(slices.Clone(policy.Status.Potential), ofGroups)...)
		status.PotentialNodes = policy.Status.PotentialNodes
	} else {
		for lever, estimate := range t.levers {
			status.Potential = append(status.Potential, statuses.SavingOf(lever, *estimate))
		}
		status.PotentialNodes = t.largest()
	}
	slices.SortFunc(status.Potential, func(x, y v1alpha1.Saving) int { return cmp.Compare(x.Lever, y.Lever) })
	if len(status.Potential) == 0 {
		status.Potential = nil
	}
}

// maxPotentialNodes are named in a status, as the API says.
const maxPotentialNodes = 20

// largest are the nodes on which most could be saved, most first.
func (t *potentialTally) largest() []v1alpha1.NodePotential {
	nodes := slices.SortedFunc(slices.Values(t.nodes), func(x, y nodePotential) int {
		return cmp.Or(cmp.Compare(y.sum, x.sum), cmp.Compare(x.name, y.name))
	})
	var out []v1alpha1.NodePotential
	for _, node := range nodes[:min(len(nodes), maxPotentialNodes)] {
		of := v1alpha1.NodePotential{Name: node.name}
		for _, p := range node.levers {
			of.Levers = append(of.Levers, statuses.SavingOf(p.Lever, power.Estimate{Watts: p.Watts, StdErr: p.StdErr}))
		}
		slices.SortFunc(of.Levers, func(x, y v1alpha1.Saving) int { return cmp.Compare(x.Lever, y.Lever) })
		out = append(out, of)
	}
	return out
}
