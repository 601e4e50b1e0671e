package observe

import (
	"cmp"
	"slices"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// capabilityBuffering is the name that agents give to holding packets.
const capabilityBuffering = "Buffering"

// WithoutBuffering says why a node's agent can hold no packets, by its report. Empty: it
// can.
func WithoutBuffering(report *v1alpha1.NodeReport) string {
	at := slices.IndexFunc(report.Status.Capabilities, func(c v1alpha1.Capability) bool { return c.Name == capabilityBuffering })
	switch {
	case at < 0:
		return "the node's agent is older than the lever: update it"
	case report.Status.Capabilities[at].Available:
		return ""
	}
	return cmp.Or(report.Status.Capabilities[at].Message, "the node's agent says that it can hold no packets")
}

// defaultOnPackets is the API's own default, for profiles stored before the field existed.
const defaultOnPackets = 10_000

// BufferingWishes reads what a profile says of how packets may be held, and of the levels
// of service that holding them must keep.
func BufferingWishes(into *model.VM, spec *v1alpha1.VMNetworkProfileSpec) {
	if spec.LatencyBudget != nil {
		into.LatencyBudget = spec.LatencyBudget.Duration
	}
	into.OnPackets = units.PacketsPerSecond(cmp.Or(spec.Buffering.OnPacketsPerSecond, defaultOnPackets))
	into.Services = services(spec.Buffering.SmallPacketServices)
	into.DefendFloods = spec.Buffering.FloodDefence != v1alpha1.FloodDefenceForbid
	if most := spec.ServiceLevels.MaxDropsPerMillion; most != nil {
		share := float64(*most) / 1e6
		into.MaxDrops = &share
	}
	if least := spec.ServiceLevels.MinThroughputPercent; least != nil {
		into.KeepThroughput = float64(*least) / 100
	}
}

// services gives the services that can be, each once, in one order: the same list written
// otherwise is no other plan.
func services(ports []v1alpha1.ServicePort) []model.Service {
	var out []model.Service
	for _, port := range ports {
		if port.Port >= 1 && port.Port <= 65535 {
			out = append(out, model.Service{UDP: port.Protocol != v1alpha1.TransportTCP, Port: uint16(port.Port)})
		}
	}
	slices.SortFunc(out, model.Service.Compare)
	return slices.Compact(out)
}

func transport(s model.Service) v1alpha1.TransportProtocol {
	if s.UDP {
		return v1alpha1.TransportUDP
	}
	return v1alpha1.TransportTCP
}

// buffering leaves out what no agent would do.
func buffering(action *v1alpha1.BufferingAction) model.Buffering {
	if action == nil {
		return model.Buffering{}
	}
	out := model.Buffering{
		Window: microseconds(action.WindowMicroseconds), FloodWindow: microseconds(action.FloodWindowMicroseconds),
		OnPackets: units.PacketsPerSecond(action.OnPacketsPerSecond), Services: services(action.SmallPacketServices),
	}
	if out.IsZero() || !out.IsValid() {
		return model.Buffering{}
	}
	return out
}

func microseconds(n *int32) time.Duration {
	if n == nil {
		return 0
	}
	return time.Duration(*n) * time.Microsecond
}

func bufferingAction(b model.Buffering) *v1alpha1.BufferingAction {
	if b.IsZero() || !b.IsValid() {
		return nil
	}
	out := &v1alpha1.BufferingAction{OnPacketsPerSecond: int32(b.OnPackets)}
	if b.Window > 0 {
		window := int32(b.Window.Microseconds())
		out.WindowMicroseconds = &window
	}
	if b.FloodWindow > 0 {
		window := int32(b.FloodWindow.Microseconds())
		out.FloodWindowMicroseconds = &window
	}
	for _, service := range b.Services {
		out.SmallPacketServices = append(out.SmallPacketServices, v1alpha1.ServicePort{Protocol: transport(service), Port: int32(service.Port)})
	}
	return out
}
