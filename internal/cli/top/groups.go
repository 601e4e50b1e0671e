package top

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/cli/facts"
	"github.com/joulevirt/joulevirt/internal/cli/show"
)

// Spread is how unevenly a group's traffic is spread.
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
			g.Namespace, g.Name, fmt.Sprintf("%d/%d", g.Active, g.Members), g.Now.sigma(), g.Planned.sigma(), g.Now.talkers(), g.Planned.talkers(),
			show.Number(g.SavedWatts), show.Or(string(g.State)), show.Or(g.Reason), g.Target, show.Or(g.Revision),
		}
	}, "NAMESPACE", "NAME", "ACTIVE", "SIGMA-NOW", "SIGMA-PLANNED", "N_EFF-NOW", "N_EFF-PLANNED", "SAVES-W-MODELLED", "STATE", "REASON", "+TARGET", "+REVISION")
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
	group.Now, group.Planned = spreadOf(t.Now), spreadOf(t.Planned)
	if t.Saving != nil {
		group.SavedWatts = ptr.To(t.Saving.Watts.Value.Float())
	}
	return group
}

func spreadOf(s *v1alpha1.TrafficSpread) *Spread {
	if s == nil {
		return nil
	}
	return &Spread{SigmaBitsPerSecond: s.SigmaBitsPerSecond, EffectiveTalkers: s.EffectiveTalkers.AsApproximateFloat64()}
}

// sigma has three digits, so that the quantity is short.
func (s *Spread) sigma() string {
	if s == nil {
		return show.None
	}
	unit := int64(1)
	for s.SigmaBitsPerSecond/unit >= 1000 {
		unit *= 10
	}
	return resource.NewQuantity(s.SigmaBitsPerSecond/unit*unit, resource.DecimalSI).String()
}

func (s *Spread) talkers() string {
	if s == nil {
		return show.None
	}
	return show.Number(&s.EffectiveTalkers)
}
