package top

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/cli/facts"
	"github.com/joulevirt/joulevirt/internal/cli/figures"
	"github.com/joulevirt/joulevirt/internal/cli/show"
	"github.com/joulevirt/joulevirt/internal/observe/leverstate"
)

// NodeEnergy is what a node uses, and what acts on its VMs.
type NodeEnergy struct {
	Name  string `json:"name"`
	Power `json:",inline"`
	// JoulesPerGB of its VMs' traffic, now. Nil: not known.
	JoulesPerGB *float64 `json:"joulesPerGB,omitempty"`
	VMs         int32    `json:"vms"`
	// InForce counts VMs by the lever that acts on them. Nil: the plans cannot be read.
	InForce map[v1alpha1.Lever]int `json:"inForce,omitempty"`
	Policy  string                 `json:"policy,omitempty"`
	Mode    v1alpha1.PolicyMode    `json:"mode,omitempty"`
	// Ready is the status of condition Ready of the NodeReport.
	Ready         string       `json:"ready,omitempty"`
	ReportedAt    *metav1.Time `json:"reportedAt,omitempty"`
	AgentVersion  string       `json:"agentVersion,omitempty"`
	KernelVersion string       `json:"kernelVersion,omitempty"`

	reported string // the report's age in words
}

// NodeEnergyList is a view of nodes.
type NodeEnergyList struct {
	metav1.TypeMeta `json:",inline"`
	Items           []NodeEnergy `json:"items"`
	Gaps            []show.Gap   `json:"gaps,omitempty"`
}

// Nodes shows the nodes whose agents reported. Fast figures, where there are some, take the
// place of the reports' coarse ones.
func Nodes(f *facts.Facts, fast *figures.Figures, sortBy string) *NodeEnergyList {
	selected := selectedNodes(f)
	plans := make(map[string]*leverstate.Plan, len(f.Plans))
	for i := range f.Plans {
		plans[f.Plans[i].Name] = &leverstate.Plan{NodePlan: &f.Plans[i]}
	}
	out := &NodeEnergyList{TypeMeta: show.Kind("NodeEnergyList"), Items: []NodeEnergy{}, Gaps: f.Gaps()}
	for i := range f.Reports {
		report := &f.Reports[i]
		if selected != nil && !selected[report.Name] {
			continue
		}
		var now figures.Node
		if fast != nil {
			now = fast.Nodes[report.Name]
		}
		node := nodeEnergy(report, now, f)
		if plan := plans[report.Name]; plan != nil {
			node.Policy, node.Mode, node.InForce = plan.Spec.Policy, plan.Spec.Mode, inForce(plan)
		}
		out.Items = append(out.Items, node)
	}
	slices.SortFunc(out.Items, func(x, y NodeEnergy) int {
		byName := strings.Compare(x.Name, y.Name)
		if sortBy == SortByWatts {
			return cmp.Or(descending(x.Watts, y.Watts), byName)
		}
		return byName
	})
	return out
}

// The orders of rows.
const (
	SortByName  = "name"
	SortByWatts = "watts"
)

func descending(x, y *float64) int {
	switch {
	case x == nil && y == nil:
		return 0
	case x == nil:
		return 1
	case y == nil:
		return -1
	default:
		return cmp.Compare(*y, *x)
	}
}

// selectedNodes are those that a label selector picked. Nil: all.
func selectedNodes(f *facts.Facts) map[string]bool {
	if f.Nodes == nil {
		return nil
	}
	selected := make(map[string]bool, len(f.Nodes))
	for i := range f.Nodes {
		selected[f.Nodes[i].Name] = true
	}
	return selected
}

func nodeEnergy(report *v1alpha1.NodeReport, fast figures.Node, f *facts.Facts) NodeEnergy {
	s := &report.Status
	power := PowerOf(s, fast, f.Now)
	return NodeEnergy{
		Name: report.Name, VMs: s.VMs.Running, Ready: condition(s.Conditions, v1alpha1.ConditionReady),
		ReportedAt: s.ReportedAt, AgentVersion: s.AgentVersion, KernelVersion: s.KernelVersion,
		reported: show.Age(s.ReportedAt, f.Now), Power: power, JoulesPerGB: perGB(power.Watts, fast.BytesPerSecond),
	}
}

// PowerOf a node is the fast figure, and where there is none that of the node's report.
func PowerOf(report *v1alpha1.NodeReportStatus, fast figures.Node, now time.Time) Power {
	p := &report.Power
	if fast.Watts != nil {
		scope := ""
		if fast.Source == string(p.Source) {
			scope = string(p.Scope)
		}
		return Power{Watts: fast.Watts, Source: fast.Source, Basis: basisOf(fast.Source), Scope: scope, AgeSeconds: fast.AgeSeconds}
	}
	if p.Watts == nil {
		return Power{}
	}
	power := Power{Watts: ptr.To(float64(*p.Watts)), Source: string(p.Source), Scope: string(p.Scope), Basis: basisOf(string(p.Source))}
	if p.MeasuredAt != nil {
		power.AgeSeconds = ptr.To(max(now.Sub(p.MeasuredAt.Time).Seconds(), 0))
	}
	return power
}

// inForce counts the VMs of a plan by lever.
func inForce(plan *leverstate.Plan) map[v1alpha1.Lever]int {
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

// Tables shows a row a node.
func (l *NodeEnergyList) Tables() []show.Table {
	table := show.Table{Columns: show.Columns("NAME", "WATTS", "BASIS", "SOURCE", "AGE", "J/GB", "VMS", "IN-FORCE", "POLICY", "MODE", "+SCOPE", "+READY", "+REPORTED", "+AGENT", "+KERNEL")}
	for i := range l.Items {
		n := &l.Items[i]
		table.Rows = append(table.Rows, []string{
			n.Name, show.Number(n.Watts), show.Or(string(n.Basis)), show.Or(n.Source), Age(n.AgeSeconds), show.Number(n.JoulesPerGB),
			fmt.Sprint(n.VMs), show.Or(counted(n.InForce)), show.Or(n.Policy), show.Or(string(n.Mode)),
			show.Or(n.Scope), show.Or(n.Ready), n.reported, show.Or(n.AgentVersion), show.Or(n.KernelVersion),
		})
	}
	return []show.Table{table}
}

// Names are those of the nodes.
func (l *NodeEnergyList) Names() []string {
	return names(l.Items, func(of *NodeEnergy) string { return "node/" + of.Name })
}
