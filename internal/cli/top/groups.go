package top

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/cli/facts"
	"github.com/joulevirt/joulevirt/internal/cli/figures"
	"github.com/joulevirt/joulevirt/internal/cli/show"
)

// Spread tells how unevenly a group's traffic is spread.
type Spread struct {
	SigmaBitsPerSecond int64   `json:"sigmaBitsPerSecond"`
	EffectiveTalkers   float64 `json:"effectiveTalkers"`
}

// GroupEnergy is how the traffic of a group is spread, and what that saves.
type GroupEnergy struct {
	Namespace string `json:"namespace"`
	// Name of the profile.
	Name   string `json:"name"`
	Target string `json:"target"`
	// Members are running VMs, of which some are ready, of which some get new traffic.
	Members int32   `json:"members"`
	Ready   int32   `json:"ready"`
	Active  int32   `json:"active"`
	Now     *Spread `json:"now,omitempty"`
	Planned *Spread `json:"planned,omitempty"`
	// Watts that are attributed to the members, of their nodes'. Nil: not known of all.
	Watts       *float64 `json:"watts,omitempty"`
	JoulesPerGB *float64 `json:"joulesPerGB,omitempty"`
	// SavedWatts against equal shares, foretold by a model. Nil: not known.
	SavedWatts *float64            `json:"savedWatts,omitempty"`
	State      v1alpha1.LeverState `json:"state,omitempty"`
	Reason     string              `json:"reason,omitempty"`
	Revision   string              `json:"revision,omitempty"`
}

// GroupEnergyList is a view of groups.
type GroupEnergyList struct {
	metav1.TypeMeta `json:",inline"`
	Items           []GroupEnergy `json:"items"`
	Gaps            []show.Gap    `json:"gaps,omitempty"`
}

// Groups shows the profiles that declare a group.
func Groups(f *facts.Facts, fast *figures.Figures) *GroupEnergyList {
	out := &GroupEnergyList{TypeMeta: show.Kind("GroupEnergyList"), Items: []GroupEnergy{}, Gaps: f.Gaps()}
	uses := totals(f, fast)
	for i := range f.Profiles {
		profile := &f.Profiles[i]
		if profile.Spec.Group == nil {
			continue
		}
		group := groupEnergy(profile)
		if use, ok := uses[types.NamespacedName{Namespace: profile.Namespace, Name: profile.Name}]; ok && use.whole {
			group.Watts, group.JoulesPerGB = &use.watts, perGB(&use.watts, &use.bytes)
		}
		out.Items = append(out.Items, group)
	}
	slices.SortFunc(out.Items, func(x, y GroupEnergy) int {
		return cmp.Or(strings.Compare(x.Namespace, y.Namespace), strings.Compare(x.Name, y.Name))
	})
	return out
}

// use of a profile's VMs, of all of them only when it is whole.
type use struct {
	watts, bytes float64
	whole        bool
}

// totals adds up the figures of the VMs of each profile.
func totals(f *facts.Facts, fast *figures.Figures) map[types.NamespacedName]*use {
	out := map[types.NamespacedName]*use{}
	if fast == nil {
		return out
	}
	for i := range f.Plans {
		for j := range f.Plans[i].Spec.VMs {
			vm := &f.Plans[i].Spec.VMs[j]
			of := types.NamespacedName{Namespace: vm.Namespace, Name: vm.Profile}
			if out[of] == nil {
				out[of] = &use{whole: true}
			}
			now := fast.VMs[figures.VMKey{NamespacedName: types.NamespacedName{Namespace: vm.Namespace, Name: vm.Name}, Node: f.Plans[i].Name}]
			if now.Watts == nil || now.BytesPerSecond == nil {
				out[of].whole = false
				continue
			}
			out[of].watts += *now.Watts
			out[of].bytes += *now.BytesPerSecond
		}
	}
	return out
}

func groupEnergy(profile *v1alpha1.VMNetworkProfile) GroupEnergy {
	target := profile.Spec.Group
	group := GroupEnergy{Namespace: profile.Namespace, Name: profile.Name, Target: string(target.Kind) + "/" + target.Name}
	t := profile.Status.Traffic
	if t == nil {
		group.Reason = v1alpha1.ReasonAwaitingPlan
		return group
	}
	group.Members, group.Ready, group.Active = t.Members, t.ReadyMembers, t.ActiveMembers
	group.State, group.Reason, group.Revision = t.State, t.Reason, t.Revision
	group.Now, group.Planned = spread(t.Now), spread(t.Planned)
	if t.Saving != nil {
		group.SavedWatts = ptr.To(float64(t.Saving.Milliwatts) / 1000)
	}
	return group
}

func spread(s *v1alpha1.TrafficSpread) *Spread {
	if s == nil {
		return nil
	}
	return &Spread{SigmaBitsPerSecond: s.SigmaBitsPerSecond, EffectiveTalkers: s.EffectiveTalkers.AsApproximateFloat64()}
}

// Tables shows a row a group.
func (l *GroupEnergyList) Tables() []show.Table {
	table := show.Table{Columns: show.Columns("NAMESPACE", "NAME", "ACTIVE", "SIGMA-NOW", "SIGMA-PLANNED", "N_EFF-NOW", "N_EFF-PLANNED", "J/GB", "SAVES-W-MODELLED", "STATE", "REASON", "+TARGET", "+WATTS", "+REVISION")}
	for i := range l.Items {
		g := &l.Items[i]
		table.Rows = append(table.Rows, []string{
			g.Namespace, g.Name, fmt.Sprintf("%d/%d", g.Active, g.Members), g.Now.sigma(), g.Planned.sigma(), g.Now.talkers(), g.Planned.talkers(),
			show.Number(g.JoulesPerGB), show.Number(g.SavedWatts), show.Or(string(g.State)), show.Or(g.Reason), g.Target, show.Number(g.Watts), show.Or(g.Revision),
		})
	}
	return []show.Table{table}
}

func (s *Spread) sigma() string {
	if s == nil {
		return show.None
	}
	return resource.NewQuantity(rounded(s.SigmaBitsPerSecond), resource.DecimalSI).String()
}

func (s *Spread) talkers() string {
	if s == nil {
		return show.None
	}
	return show.Number(&s.EffectiveTalkers)
}

// rounded keeps three digits, so that a quantity is short.
func rounded(v int64) int64 {
	unit := int64(1)
	for v/unit >= 1000 {
		unit *= 10
	}
	return v / unit * unit
}

// Names are those of the profiles.
func (l *GroupEnergyList) Names() []string {
	return names(l.Items, func(of *GroupEnergy) string { return "vmnetworkprofile.joulevirt.io/" + of.Name })
}
