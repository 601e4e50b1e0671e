package top

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/cli/facts"
	"github.com/joulevirt/joulevirt/internal/cli/show"
	"github.com/joulevirt/joulevirt/internal/observe/leverstate"
)

// Power is a figure of power with its source.
type Power struct {
	// Watts that are drawn. Nil: unknown.
	Watts *float64 `json:"watts,omitempty"`
	// Source of the figure. Empty: there is no figure.
	Source v1alpha1.PowerSource `json:"source,omitempty"`
	Basis  v1alpha1.Basis       `json:"basis,omitempty"`
	// Scope is the part of the node that it covers. Empty: unknown.
	Scope string `json:"scope,omitempty"`
	// AgeSeconds of the figure. Nil: unknown.
	AgeSeconds *float64 `json:"ageSeconds,omitempty"`
}

// PowerOf returns the power in a report.
func PowerOf(report *v1alpha1.NodeReportStatus, now time.Time) Power {
	p := &report.Power
	if p.Watts == nil {
		return Power{}
	}
	power := Power{Watts: ptr.To(float64(*p.Watts)), Source: p.Source, Scope: string(p.Scope), Basis: BasisOf(p.Source)}
	if p.MeasuredAt != nil {
		power.AgeSeconds = ptr.To(max(now.Sub(p.MeasuredAt.Time).Seconds(), 0))
	}
	return power
}

// BasisOf returns whether a source measures or models.
func BasisOf(source v1alpha1.PowerSource) v1alpha1.Basis {
	if source == v1alpha1.PowerModel {
		return v1alpha1.BasisModelled
	}
	return v1alpha1.BasisMeasured
}

// NodeEnergy is what a node uses, and what acts on its VMs.
type NodeEnergy struct {
	Name  string `json:"name"`
	Power `json:",inline"`
	VMs   int32 `json:"vms"`
	// InForce counts VMs by the lever that acts on them. Nil: the node has no plan.
	InForce map[v1alpha1.Lever]int `json:"inForce,omitempty"`
	Policy  string                 `json:"policy,omitempty"`
	Mode    v1alpha1.PolicyMode    `json:"mode,omitempty"`
	// Ready is the status of condition Ready of the NodeReport.
	Ready         string       `json:"ready,omitempty"`
	ReportedAt    *metav1.Time `json:"reportedAt,omitempty"`
	KernelVersion string       `json:"kernelVersion,omitempty"`
}

// Nodes shows the nodes whose agents reported, by name. powers are those that policies use, by
// node; a node without one has that of its agent, which knows no other meter than RAPL.
func Nodes(f *facts.Facts, powers map[string]Power) *List[NodeEnergy] {
	var selected map[string]bool
	if f.Nodes != nil {
		selected = map[string]bool{}
		for i := range f.Nodes {
			selected[f.Nodes[i].Name] = true
		}
	}
	plans := make(map[string]*leverstate.Plan, len(f.Plans))
	for i := range f.Plans {
		plans[f.Plans[i].Name] = &leverstate.Plan{NodePlan: &f.Plans[i]}
	}
	out := newList("NodeEnergyList", f, func(n *NodeEnergy) []string {
		return []string{
			n.Name, show.Number(n.Watts), show.Or(string(n.Basis)), show.Or(string(n.Source)), show.Seconds(n.AgeSeconds),
			fmt.Sprint(n.VMs), countVMs(n.InForce), show.Or(n.Policy), show.Or(string(n.Mode)),
			show.Or(n.Scope), show.Or(n.Ready), show.Age(n.ReportedAt, f.Now), show.Or(n.KernelVersion),
		}
	}, "NAME", "WATTS", "BASIS", "SOURCE", "AGE", "VMS", "IN-FORCE", "POLICY", "MODE", "+SCOPE", "+READY", "+REPORTED", "+KERNEL")
	for i := range f.Reports {
		name, s := f.Reports[i].Name, &f.Reports[i].Status
		if selected != nil && !selected[name] {
			continue
		}
		node := NodeEnergy{
			Name: name, Power: PowerOf(s, f.Now), VMs: s.VMs,
			ReportedAt: s.ReportedAt, KernelVersion: s.KernelVersion,
		}
		if power, known := powers[name]; known {
			node.Power = power
		}
		if c := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionReady); c != nil {
			node.Ready = string(c.Status)
		}
		if plan := plans[name]; plan != nil {
			node.Policy, node.Mode, node.InForce = plan.Spec.Policy, plan.Spec.Mode, countInForce(plan)
		}
		out.Items = append(out.Items, node)
	}
	sortByName(out.Items, func(n *NodeEnergy) string { return n.Name })
	return out
}

// SortByWatts puts the nodes with the most power first, and those without a figure last.
func SortByWatts(nodes []NodeEnergy) {
	slices.SortStableFunc(nodes, func(x, y NodeEnergy) int { return cmp.Compare(ptr.Deref(y.Watts, -1), ptr.Deref(x.Watts, -1)) })
}

// countInForce counts the VMs of a plan by lever.
func countInForce(plan *leverstate.Plan) map[v1alpha1.Lever]int {
	count := map[v1alpha1.Lever]int{}
	for _, lever := range leverstate.Levers() {
		of := leverstate.Of(lever)
		for i := range plan.Spec.VMs {
			if of(plan, plan.Spec.VMs[i].PodUID).State == v1alpha1.LeverInForce {
				count[lever]++
			}
		}
	}
	return count
}
