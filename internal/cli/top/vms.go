package top

import (
	"cmp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/cli/facts"
	"github.com/joulevirt/joulevirt/internal/cli/figures"
	"github.com/joulevirt/joulevirt/internal/cli/show"
	"github.com/joulevirt/joulevirt/internal/observe/leverstate"
)

// VMEnergy is what a VM uses, and what acts on it.
type VMEnergy struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Node      string `json:"node"`
	Profile   string `json:"profile,omitempty"`
	Pool      string `json:"pool,omitempty"`
	// Watts that are attributed to the VM, of its node's: they rank VMs and prove nothing.
	// Nil: not known.
	Watts          *float64   `json:"watts,omitempty"`
	BytesPerSecond *float64   `json:"bytesPerSecond,omitempty"`
	JoulesPerGB    *float64   `json:"joulesPerGB,omitempty"`
	Levers         []LeverUse `json:"levers"`
}

// VMEnergyList is a view of VMs.
type VMEnergyList struct {
	metav1.TypeMeta `json:",inline"`
	Items           []VMEnergy `json:"items"`
	Gaps            []show.Gap `json:"gaps,omitempty"`
}

// VMs shows the VMs that plans name: those that a profile governs on nodes that a policy
// governs. While a VM migrates it is shown on both nodes.
func VMs(f *facts.Facts, fast *figures.Figures, namespace, sortBy string) *VMEnergyList {
	var selected map[types.NamespacedName]bool
	if f.VMs != nil {
		selected = map[types.NamespacedName]bool{}
		for i := range f.VMs {
			selected[types.NamespacedName{Namespace: f.VMs[i].Namespace, Name: f.VMs[i].Name}] = true
		}
	}
	out := &VMEnergyList{TypeMeta: show.Kind("VMEnergyList"), Items: []VMEnergy{}, Gaps: f.Gaps()}
	for i := range f.Plans {
		plan := &leverstate.Plan{NodePlan: &f.Plans[i]}
		for j := range plan.Spec.VMs {
			planned := &plan.Spec.VMs[j]
			key := types.NamespacedName{Namespace: planned.Namespace, Name: planned.Name}
			if namespace != "" && planned.Namespace != namespace || selected != nil && !selected[key] {
				continue
			}
			vm := VMEnergy{
				Namespace: planned.Namespace, Name: planned.Name, Node: plan.Name, Profile: planned.Profile,
				Pool: string(planned.Pool), Levers: levers(plan, planned.PodUID),
			}
			if fast != nil {
				now := fast.VMs[figures.VMKey{NamespacedName: key, Node: plan.Name}]
				vm.Watts, vm.BytesPerSecond, vm.JoulesPerGB = now.Watts, now.BytesPerSecond, perGB(now.Watts, now.BytesPerSecond)
			}
			out.Items = append(out.Items, vm)
		}
	}
	slices.SortFunc(out.Items, func(x, y VMEnergy) int {
		byName := cmp.Or(strings.Compare(x.Namespace, y.Namespace), strings.Compare(x.Name, y.Name), strings.Compare(x.Node, y.Node))
		if sortBy == SortByWatts {
			return cmp.Or(descending(x.Watts, y.Watts), byName)
		}
		return byName
	})
	return out
}

// Tables shows a row a VM.
func (l *VMEnergyList) Tables() []show.Table {
	table := show.Table{Columns: show.Columns("NAMESPACE", "NAME", "NODE", "PROFILE", "WATTS", "J/GB", "MBIT/S", "IN-FORCE", "WAITING", "+POOL", "+REASONS")}
	for i := range l.Items {
		vm := &l.Items[i]
		var reasons []string
		for _, use := range vm.Levers {
			reasons = append(reasons, string(use.Lever)+":"+use.Reason)
		}
		table.Rows = append(table.Rows, []string{
			vm.Namespace, vm.Name, vm.Node, show.Or(vm.Profile), show.Number(vm.Watts), show.Number(vm.JoulesPerGB), megabits(vm.BytesPerSecond),
			named(vm.Levers, v1alpha1.LeverInForce), named(vm.Levers, v1alpha1.LeverPending, v1alpha1.LeverRecommended),
			show.Or(vm.Pool), strings.Join(reasons, ","),
		})
	}
	return []show.Table{table}
}

// Names are those of the VMs.
func (l *VMEnergyList) Names() []string {
	return names(l.Items, func(of *VMEnergy) string { return "virtualmachineinstance.kubevirt.io/" + of.Name })
}
