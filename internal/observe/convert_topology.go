package observe

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// Topology reads a report's topology. It is an error when two cores share a
// CPU, a core has none, or a list of cores' CPUs or of CPUs that are taken cannot be
// read: pins computed from it would be wrong. The error names the field.
func Topology(t v1alpha1.Topology) (model.Topology, error) {
	out := model.Topology{Nested: t.Nested, CPUModel: t.CPUModel}
	for _, list := range []struct {
		field, text string
		into        *units.CPUSet
	}{
		{"isolatedCPUs", t.IsolatedCPUs, &out.Isolated},
		{"exclusiveCPUs", t.ExclusiveCPUs, &out.Exclusive},
		{"reservedCPUs", t.ReservedCPUs, &out.Reserved},
	} {
		cpus, err := units.ParseCPUSet(list.text)
		if err != nil {
			return model.Topology{}, fmt.Errorf("status.topology.%s: %w", list.field, err)
		}
		*list.into = cpus
	}
	var err error
	if out.Cores, err = cores(t.CoreGroups); err != nil {
		return model.Topology{}, err
	}
	out.NICs, out.IdleStates, out.Clocks = nics(t.NICs), idleStates(t.IdleStates), clocks(t.Clocks)
	return out, nil
}

func cores(groups []v1alpha1.CoreGroup) ([]model.Core, error) {
	var out []model.Core
	var seen units.CPUSet
	for i, group := range groups {
		for j, list := range group.Cores {
			cpus, err := units.ParseCPUSet(list)
			if err != nil {
				return nil, fmt.Errorf("status.topology.coreGroups[%d].cores[%d]: %w", i, j, err)
			}
			if cpus.IsEmpty() || !seen.Intersection(cpus).IsEmpty() {
				return nil, fmt.Errorf("status.topology.coreGroups[%d].cores[%d]: core %.64q is empty or shares a CPU with another", i, j, list)
			}
			seen = seen.Union(cpus)
			out = append(out, model.Core{
				CPUs: cpus, Package: int(group.Package), NUMANode: int(group.NUMANode), LLC: int(group.LLC),
				Class: class(group.Class),
			})
		}
	}
	slices.SortFunc(out, func(x, y model.Core) int { return cmp.Compare(x.CPUs.CPUs()[0], y.CPUs.CPUs()[0]) })
	return out, nil
}

// class leaves out the words of newer agents.
func class(word v1alpha1.CoreClass) model.CoreClass {
	switch word {
	case v1alpha1.CorePerformance:
		return model.CorePerformance
	case v1alpha1.CoreEfficiency:
		return model.CoreEfficiency
	default:
		return ""
	}
}

// nics leaves out a card whose CPUs cannot be read: cores are a little worse chosen
// without it, and not at all without the rest of the report.
func nics(reported []v1alpha1.NIC) []model.NIC {
	var out []model.NIC
	for _, nic := range reported {
		if cpus, err := units.ParseCPUSet(nic.InterruptCPUs); err == nil {
			out = append(out, model.NIC{Name: nic.Name, NUMANode: int(nic.NUMANode), CPUs: cpus})
		}
	}
	return out
}

// clocks that cannot be are not known.
func clocks(reported *v1alpha1.Clocks) model.Clocks {
	if reported == nil || reported.LowestMegahertz < 0 || reported.BaseMegahertz < 0 || reported.HighestMegahertz < max(1, reported.LowestMegahertz) {
		return model.Clocks{}
	}
	return model.Clocks{
		Governor: reported.Governor, FollowLoad: reported.FollowLoad, Lowest: units.Megahertz(reported.LowestMegahertz),
		Highest: units.Megahertz(reported.HighestMegahertz), Base: units.Megahertz(reported.BaseMegahertz),
	}
}

// idleStates leaves out states that cannot be, for the same reason.
func idleStates(reported []v1alpha1.IdleState) []model.IdleState {
	var out []model.IdleState
	for _, state := range reported {
		if state.ExitLatencyMicroseconds < 0 || state.TargetResidencyMicroseconds < 0 {
			continue
		}
		out = append(out, model.IdleState{
			Name:            state.Name,
			ExitLatency:     time.Duration(state.ExitLatencyMicroseconds) * time.Microsecond,
			TargetResidency: time.Duration(state.TargetResidencyMicroseconds) * time.Microsecond,
		})
	}
	return out
}
