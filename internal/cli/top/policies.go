package top

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/cli/facts"
	"github.com/joulevirt/joulevirt/internal/cli/show"
)

// PolicyEnergy is what the nodes of a policy use.
type PolicyEnergy struct {
	Name   string              `json:"name"`
	Mode   v1alpha1.PolicyMode `json:"mode"`
	Paused bool                `json:"paused"`
	// Nodes that it governs, of which some have a meter.
	Nodes   int32 `json:"nodes"`
	Metered int32 `json:"metered"`
	// Watts that the metered nodes draw, and JoulesPerGB of their VMs' traffic. Nil: not known.
	Watts       *float64 `json:"watts,omitempty"`
	JoulesPerGB *float64 `json:"joulesPerGB,omitempty"`
	// ReachedVMs counts VMs by the lever that acts on them.
	ReachedVMs map[v1alpha1.Lever]int32 `json:"reachedVMs,omitempty"`
}

// PolicyEnergyList is a view of policies.
type PolicyEnergyList struct {
	metav1.TypeMeta `json:",inline"`
	Items           []PolicyEnergy `json:"items"`
	Gaps            []show.Gap     `json:"gaps,omitempty"`
}

// Policies shows all policies.
func Policies(f *facts.Facts) *PolicyEnergyList {
	out := &PolicyEnergyList{TypeMeta: show.Kind("PolicyEnergyList"), Items: []PolicyEnergy{}, Gaps: f.Gaps()}
	for i := range f.Policies {
		p := &f.Policies[i]
		item := PolicyEnergy{
			Name: p.Name, Mode: p.Spec.Mode, Paused: p.Spec.Paused, Nodes: p.Status.Nodes.Governed, Metered: p.Status.Nodes.Metered,
			ReachedVMs: map[v1alpha1.Lever]int32{},
		}
		if p.Status.Watts != nil {
			item.Watts = ptr.To(float64(*p.Status.Watts))
		}
		if p.Status.JoulesPerGB != nil {
			item.JoulesPerGB = ptr.To(p.Status.JoulesPerGB.AsApproximateFloat64())
		}
		for _, coverage := range p.Status.Coverage {
			item.ReachedVMs[coverage.Lever] = coverage.ReachedVMs
		}
		out.Items = append(out.Items, item)
	}
	slices.SortFunc(out.Items, func(x, y PolicyEnergy) int { return strings.Compare(x.Name, y.Name) })
	return out
}

// Tables shows a row a policy.
func (l *PolicyEnergyList) Tables() []show.Table {
	table := show.Table{Columns: show.Columns("NAME", "MODE", "PAUSED", "NODES", "METERED", "WATTS", "J/GB", "IN-FORCE")}
	for i := range l.Items {
		p := &l.Items[i]
		table.Rows = append(table.Rows, []string{
			p.Name, string(p.Mode), fmt.Sprint(p.Paused), fmt.Sprint(p.Nodes), fmt.Sprint(p.Metered),
			show.Number(p.Watts), show.Number(p.JoulesPerGB), show.Or(counted(p.ReachedVMs)),
		})
	}
	return []show.Table{table}
}

// Names are those of the policies.
func (l *PolicyEnergyList) Names() []string {
	return names(l.Items, func(of *PolicyEnergy) string { return "energypolicy.joulevirt.io/" + of.Name })
}
