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
// CPU, a core has none, or a CPU list cannot be read: pins computed from it
// would be wrong.
func Topology(t v1alpha1.Topology) (model.Topology, error) {
	out := model.Topology{Nested: t.Nested, CPUModel: t.CPUModel}
	isolated, err := units.ParseCPUSet(t.IsolatedCPUs)
	if err != nil {
		return model.Topology{}, fmt.Errorf("status.topology.isolatedCPUs: %w", err)
	}
	out.Isolated = isolated
	var seen units.CPUSet
	for _, group := range t.CoreGroups {
		for _, list := range group.Cores {
			cpus, err := units.ParseCPUSet(list)
			if err != nil {
				return model.Topology{}, fmt.Errorf("status.topology.coreGroups: %w", err)
			}
			if cpus.IsEmpty() || !seen.Intersection(cpus).IsEmpty() {
				return model.Topology{}, fmt.Errorf("status.topology.coreGroups: core %q is empty or shares a CPU with another", list)
			}
			seen = seen.Union(cpus)
			out.Cores = append(out.Cores, model.Core{
				CPUs: cpus, Package: int(group.Package), NUMANode: int(group.NUMANode), LLC: int(group.LLC),
			})
		}
	}
	slices.SortFunc(out.Cores, func(x, y model.Core) int { return cmp.Compare(x.CPUs.CPUs()[0], y.CPUs.CPUs()[0]) })
	return out, nil
}

// The API's own defaults, for policies stored before a field existed.
const (
	defaultMaxCoreUtilizationPercent = 85
	defaultSharing                   = model.ShareWithinNamespace
	defaultValidity                  = 24 * time.Hour
)

// Policy reads what a policy allows. The error names the field that cannot be
// read.
func Policy(p *v1alpha1.EnergyPolicy) (model.Policy, error) {
	out := model.Policy{
		Name:                   p.Name,
		Mode:                   model.Mode(p.Spec.Mode),
		AllowModelled:          p.Spec.Energy.AllowModelled,
		MaxCoreUtilization:     units.Cores(cmp.Or(p.Spec.Guardrails.MaxCoreUtilizationPercent, defaultMaxCoreUtilizationPercent)) / 100,
		Sharing:                cmp.Or(model.SiblingSharing(p.Spec.Guardrails.SiblingSharing), defaultSharing),
		RecommendationValidity: defaultValidity,
		Approvals:              p.Spec.Approvals,
	}
	for _, lever := range p.Spec.Levers {
		out.Levers = append(out.Levers, model.Lever(lever))
	}
	if p.Spec.RecommendationValidity != nil {
		out.RecommendationValidity = p.Spec.RecommendationValidity.Duration
	}
	if list := p.Spec.Guardrails.ReservedCPUs; list != nil {
		reserved, err := units.ParseCPUSet(*list)
		if err != nil {
			return model.Policy{}, fmt.Errorf("spec.guardrails.reservedCPUs: %w", err)
		}
		out.Reserved = reserved
	}
	return out, nil
}
