package observe

import (
	"github.com/joulevirt/joulevirt/internal/energy"
	"github.com/joulevirt/joulevirt/internal/model"
)

// OfVM tells what exporters say of a VM, by the UID of its launcher pod on a node,
// its namespace and its name: by the first of a policy's Prometheus servers that
// has a figure within its freshness. Nil: none has.
func (p *Powers) OfVM(node string, settings []energy.Setting, podUID, namespace, name string) *model.Power {
	now := p.Clock.Now()
	for _, setting := range settings {
		if setting.Type != model.SourcePrometheus {
			continue
		}
		reading, found := p.Meters.VMs(setting.Server, node).Of(podUID, namespace, name)
		if found && energy.Age(reading, now) <= setting.Freshness {
			return &reading
		}
	}
	return nil
}
