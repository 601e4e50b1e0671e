package top

import (
	"fmt"

	"k8s.io/utils/ptr"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/cli/facts"
	"github.com/joulevirt/joulevirt/internal/cli/show"
)

// GroupEnergy is how many VMs of a group get its traffic, and what that saves.
type GroupEnergy struct {
	Namespace string `json:"namespace"`
	// Name of the profile.
	Name   string `json:"name"`
	Target string `json:"target"`
	// Members are running VMs, of which some are ready, of which some get new traffic.
	Members int32 `json:"members"`
	Ready   int32 `json:"ready"`
	Active  int32 `json:"active"`
	// SavedWatts against equal shares, predicted by a model. Nil: unknown.
	SavedWatts *float64            `json:"savedWatts,omitempty"`
	State      v1alpha1.LeverState `json:"state,omitempty"`
	Reason     string              `json:"reason,omitempty"`
	Revision   string              `json:"revision,omitempty"`
}

// Groups shows the profiles that declare a group.
func Groups(f *facts.Facts) *List[GroupEnergy] {
	out := newList("GroupEnergyList", f, func(g *GroupEnergy) []string {
		return []string{
			g.Namespace, g.Name, fmt.Sprintf("%d/%d", g.Active, g.Members),
			show.Number(g.SavedWatts), show.Or(string(g.State)), show.Or(g.Reason), g.Target, show.Or(g.Revision),
		}
	}, "NAMESPACE", "NAME", "ACTIVE", "SAVES-W-MODELLED", "STATE", "REASON", "+TARGET", "+REVISION")
	for i := range f.Profiles {
		if f.Profiles[i].Spec.Group != nil {
			out.Items = append(out.Items, groupOf(&f.Profiles[i]))
		}
	}
	sortByName(out.Items, func(g *GroupEnergy) string { return g.Namespace + "/" + g.Name })
	return out
}

func groupOf(profile *v1alpha1.VMNetworkProfile) GroupEnergy {
	target := profile.Spec.Group
	group := GroupEnergy{Namespace: profile.Namespace, Name: profile.Name, Target: string(target.Kind) + "/" + target.Name}
	t := profile.Status.Traffic
	if t == nil {
		group.Reason = v1alpha1.ReasonAwaitingPlan
		return group
	}
	group.Members, group.Ready, group.Active = t.Members, t.ReadyMembers, t.ActiveMembers
	group.State, group.Reason, group.Revision = t.State, t.Reason, t.Revision
	if t.Saving != nil {
		group.SavedWatts = ptr.To(t.Saving.Watts.Value.Float())
	}
	return group
}
