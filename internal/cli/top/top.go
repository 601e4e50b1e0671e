// Package top lists what nodes, VMs, groups and policies use and what acts on them. Each view
// is a pure function of objects and their statuses.
package top

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/cli/facts"
	"github.com/joulevirt/joulevirt/internal/cli/show"
	"github.com/joulevirt/joulevirt/internal/observe/leverstate"
)

// List is a view with a row for each item.
type List[T any] struct {
	metav1.TypeMeta `json:",inline"`
	Items           []T        `json:"items"`
	Gaps            []show.Gap `json:"gaps,omitempty"`

	columns []show.Column
	row     func(*T) []string
}

func newList[T any](kind string, f *facts.Facts, row func(*T) []string, columns ...string) *List[T] {
	return &List[T]{TypeMeta: show.Kind(kind), Items: []T{}, Gaps: f.Gaps(), columns: show.Columns(columns...), row: row}
}

// Tables shows a row for each item.
func (l *List[T]) Tables() []show.Table {
	table := show.Table{Columns: l.columns}
	for i := range l.Items {
		table.Rows = append(table.Rows, l.row(&l.Items[i]))
	}
	return []show.Table{table}
}

// Live is what the manager that leads knows now.
type Live struct {
	// Nodes have the power that policies use, by name.
	Nodes map[string]Power `json:"nodes"`
	VMs   []VMPower        `json:"vms"`
}

// VMPower is the part of a node's power that a VM causes beyond what the node draws idle.
type VMPower struct {
	Namespace string  `json:"namespace"`
	Name      string  `json:"name"`
	Node      string  `json:"node"`
	Watts     float64 `json:"watts"`
}

// VMEnergy is what a VM uses, and what acts on it.
type VMEnergy struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Node that runs it. Empty: unknown.
	Node string `json:"node,omitempty"`
	// Watts, see VMPower. Nil: unknown.
	Watts   *float64 `json:"watts,omitempty"`
	Profile string   `json:"profile,omitempty"`
	Pool    string   `json:"pool,omitempty"`
	// Disturbed is what keeps it from its network work, and LostCores the CPU time that it wants and
	// does not get, in CPU-seconds each second. Empty: nothing is known to.
	Disturbed v1alpha1.Cause `json:"disturbed,omitempty"`
	LostCores *float64       `json:"lostCores,omitempty"`
	// Levers are absent while no plan has the VM.
	Levers []LeverUse `json:"levers,omitempty"`
}

// LeverUse is what a lever does for a VM.
type LeverUse struct {
	Lever  v1alpha1.Lever      `json:"lever"`
	State  v1alpha1.LeverState `json:"state"`
	Reason string              `json:"reason"`
}

// VMs shows all VMs, with the watts that the manager gives and what their profiles say of them. While a VM migrates it is shown on
// both nodes.
func VMs(f *facts.Facts, namespace string, live []VMPower) *List[VMEnergy] {
	selected := map[types.NamespacedName]bool{}
	for i := range f.VMs {
		selected[types.NamespacedName{Namespace: f.VMs[i].Namespace, Name: f.VMs[i].Name}] = true
	}
	out := newList("VMEnergyList", f, vmRow, "NAMESPACE", "NAME", "NODE", "WATTS", "LOST-CPUS", "DISTURBED", "PROFILE", "IN-FORCE", "WAITING", "+POOL", "+REASONS")
	rows := map[VMPower]*VMEnergy{}
	listed := map[types.NamespacedName]bool{}
	// row of a VM on a node. Nil: it is not asked for.
	row := func(key types.NamespacedName, node string) *VMEnergy {
		if namespace != "" && key.Namespace != namespace || f.VMs != nil && !selected[key] {
			return nil
		}
		listed[key] = true
		at := VMPower{Namespace: key.Namespace, Name: key.Name, Node: node}
		if rows[at] == nil {
			rows[at] = &VMEnergy{Namespace: key.Namespace, Name: key.Name, Node: node}
		}
		return rows[at]
	}
	for i := range f.Plans {
		plan := &leverstate.Plan{NodePlan: &f.Plans[i]}
		for j := range plan.Spec.VMs {
			vm := &plan.Spec.VMs[j]
			if one := row(types.NamespacedName{Namespace: vm.Namespace, Name: vm.Name}, plan.Name); one != nil {
				one.Profile, one.Pool = vm.Profile, string(vm.Pool)
				for _, lever := range leverstate.Levers() {
					state := leverstate.Of(lever)(plan, vm.PodUID)
					one.Levers = append(one.Levers, LeverUse{Lever: lever, State: state.State, Reason: state.Reason})
				}
			}
		}
	}
	for i := range live {
		vm := &live[i]
		if one := row(types.NamespacedName{Namespace: vm.Namespace, Name: vm.Name}, vm.Node); one != nil {
			one.Watts = &vm.Watts
		}
	}
	for i := range f.Profiles {
		for _, vm := range f.Profiles[i].Status.DisturbedVMs {
			if one := row(types.NamespacedName{Namespace: f.Profiles[i].Namespace, Name: vm.Name}, vm.Node); one != nil {
				one.Disturbed, one.LostCores = vm.Reason, ptr.To(vm.LostCores.Float())
			}
		}
	}
	for key := range selected {
		if !listed[key] {
			row(key, "")
		}
	}
	for _, one := range rows {
		out.Items = append(out.Items, *one)
	}
	sortByName(out.Items, func(vm *VMEnergy) string { return vm.Namespace + "/" + vm.Name + "/" + vm.Node })
	return out
}

func vmRow(vm *VMEnergy) []string {
	var inForce, waiting, reasons []string
	for _, use := range vm.Levers {
		reasons = append(reasons, string(use.Lever)+":"+use.Reason)
		switch use.State {
		case v1alpha1.LeverInForce:
			inForce = append(inForce, string(use.Lever))
		case v1alpha1.LeverPending, v1alpha1.LeverRecommended:
			waiting = append(waiting, string(use.Lever))
		}
	}
	return []string{
		vm.Namespace, vm.Name, show.Or(vm.Node), show.Number(vm.Watts), show.Number(vm.LostCores), show.Or(string(vm.Disturbed)), show.Or(vm.Profile), show.Or(strings.Join(inForce, ",")), show.Or(strings.Join(waiting, ",")),
		show.Or(vm.Pool), show.Or(strings.Join(reasons, ",")),
	}
}

// PolicyEnergy is what the nodes of a policy use.
type PolicyEnergy struct {
	Name   string              `json:"name"`
	Mode   v1alpha1.PolicyMode `json:"mode"`
	Paused bool                `json:"paused"`
	// Nodes that it governs, of which some have a meter.
	Nodes   int32 `json:"nodes"`
	Metered int32 `json:"metered"`
	// Watts that the metered nodes draw, and JoulesPerGB of their VMs' traffic. Nil: unknown.
	Watts       *float64 `json:"watts,omitempty"`
	JoulesPerGB *float64 `json:"joulesPerGB,omitempty"`
	// ReachedVMs counts VMs by the lever that acts on them.
	ReachedVMs map[v1alpha1.Lever]int `json:"reachedVMs,omitempty"`
}

// Policies shows all policies.
func Policies(f *facts.Facts) *List[PolicyEnergy] {
	out := newList("PolicyEnergyList", f, func(p *PolicyEnergy) []string {
		return []string{
			p.Name, string(p.Mode), fmt.Sprint(p.Paused), fmt.Sprint(p.Nodes), fmt.Sprint(p.Metered),
			show.Number(p.Watts), show.Number(p.JoulesPerGB), countVMs(p.ReachedVMs),
		}
	}, "NAME", "MODE", "PAUSED", "NODES", "METERED", "WATTS", "J/GB", "IN-FORCE")
	for i := range f.Policies {
		out.Items = append(out.Items, PolicyOf(&f.Policies[i]))
	}
	sortByName(out.Items, func(p *PolicyEnergy) string { return p.Name })
	return out
}

// PolicyOf returns what the nodes of one policy use.
func PolicyOf(p *v1alpha1.EnergyPolicy) PolicyEnergy {
	item := PolicyEnergy{
		Name: p.Name, Mode: p.Spec.Mode, Paused: p.Spec.Paused, Nodes: p.Status.Nodes.Governed, Metered: p.Status.Nodes.Metered,
		ReachedVMs: map[v1alpha1.Lever]int{},
	}
	if p.Status.Watts != nil {
		item.Watts = ptr.To(float64(*p.Status.Watts))
	}
	if p.Status.JoulesPerGB != "" {
		item.JoulesPerGB = ptr.To(p.Status.JoulesPerGB.Float())
	}
	for _, coverage := range p.Status.Coverage {
		item.ReachedVMs[coverage.Lever] = int(coverage.ReachedVMs)
	}
	return item
}

// countVMs formats levers with the number of their VMs.
func countVMs(count map[v1alpha1.Lever]int) string {
	var words []string
	for _, lever := range append([]v1alpha1.Lever{v1alpha1.LeverTrafficShare}, leverstate.Levers()...) {
		if n := count[lever]; n > 0 {
			words = append(words, fmt.Sprintf("%s:%d", lever, n))
		}
	}
	return show.Or(strings.Join(words, ","))
}

func sortByName[T any](items []T, name func(*T) string) {
	slices.SortStableFunc(items, func(x, y T) int { return strings.Compare(name(&x), name(&y)) })
}
