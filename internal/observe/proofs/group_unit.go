package proofs

import (
	"slices"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/planner"
	"github.com/joulevirt/joulevirt/internal/power"
	"github.com/joulevirt/joulevirt/internal/units"
	"github.com/joulevirt/joulevirt/internal/verify"
	"github.com/joulevirt/joulevirt/internal/verify/proof"
)

// WorkloadGroup is the word for what VMs of a group do, in the class that their effects are
// pooled over.
const WorkloadGroup = "Group"

// GroupNode is what trials have to know of a node that runs members of a group.
type GroupNode struct {
	Name  string
	Class verify.Class
	Meter verify.Meter
	// MostWatts is more than the node can draw.
	MostWatts units.Watts
	// Untried, see planner.GroupNode.
	Untried bool
}

// GroupUnit is a group, as "namespace/name", as something on which the lever is tried.
// steerable is false while something else than the plan keeps the lever from acting. saving
// is what the plan foretells against equal shares. Nil: not known.
func GroupUnit(name string, plan *planner.GroupPlan, nodes []GroupNode, steerable bool, saving *power.Estimate) proof.Unit {
	u := proof.Unit{Name: name, Approved: len(nodes) > 0}
	for i := range nodes {
		node := &nodes[i]
		if i == 0 {
			u.Class, u.Meter = node.Class, node.Meter
		}
		if u.Class != node.Class {
			u.Class = verify.Class{} // It stands alone.
		}
		u.Meter = slower(u.Meter, node.Meter)
		u.Nodes = append(u.Nodes, node.Name)
		u.MostWatts += node.MostWatts
		u.Approved = u.Approved && (node.Untried || plan.Recommend)
	}
	slices.Sort(u.Nodes)
	if plan.Schedule != nil {
		u.Has = []model.Schedule{*plan.Schedule}
	}
	if acts := plan.Action == planner.GroupSteer || plan.Action == planner.GroupBalance; !acts || !steerable {
		return u
	}
	if saving != nil && saving.Watts > 0 {
		u.Candidates = []proof.Candidate{{Lever: v1alpha1.LeverTrafficShare, Watts: saving.Watts}}
	}
	u.Ready = !plan.Held && (!plan.Recommend || plan.Approved)
	return u
}

// slower is the slowest that two meters tell together. Where one is missing, there is none.
func slower(x, y verify.Meter) verify.Meter {
	if x == (verify.Meter{}) || y == (verify.Meter{}) {
		return verify.Meter{}
	}
	return verify.Meter{Interval: max(x.Interval, y.Interval), Freshness: max(x.Freshness, y.Freshness)}
}
