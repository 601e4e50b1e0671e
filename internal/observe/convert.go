package observe

import (
	"cmp"
	"fmt"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// The API's own defaults, for policies stored before a field existed.
const (
	defaultMaxCoreUtilizationPercent = 85
	defaultSharing                   = model.ShareWithinNamespace
	defaultValidity                  = 24 * time.Hour
	defaultMaxNodesChanging          = 10
	defaultMaxChangesPerHour         = 60
)

// Policy reads what a policy allows. The error names the field that cannot be
// read.
func Policy(p *v1alpha1.EnergyPolicy) (model.Policy, error) {
	out := model.Policy{
		Name:                   p.Name,
		Mode:                   model.Mode(p.Spec.Mode),
		Paused:                 p.Spec.Paused,
		AllowModelled:          p.Spec.Energy.AllowModelled,
		MaxCoreUtilization:     units.Cores(cmp.Or(p.Spec.Guardrails.MaxCoreUtilizationPercent, defaultMaxCoreUtilizationPercent)) / 100,
		Sharing:                cmp.Or(model.SiblingSharing(p.Spec.Guardrails.SiblingSharing), defaultSharing),
		RecommendationValidity: defaultValidity,
		Approvals:              p.Spec.Approvals,
		MaxNodesChanging:       int(cmp.Or(p.Spec.Budgets.MaxNodesChanging, defaultMaxNodesChanging)),
		MaxChangesPerHour:      int(cmp.Or(p.Spec.Budgets.MaxChangesPerHour, defaultMaxChangesPerHour)),
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
