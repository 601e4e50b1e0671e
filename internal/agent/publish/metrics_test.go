package publish

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/agent/metering"
	"github.com/joulevirt/joulevirt/internal/energy"
	"github.com/joulevirt/joulevirt/internal/metrics"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/power"
	"github.com/joulevirt/joulevirt/internal/units"
	"github.com/joulevirt/joulevirt/test/metricstest"
)

// metered is a state in which everything is known.
func metered() *State {
	s := state("web")
	s.Rates.Power = measured(100)
	s.Rates.CPUs = []model.CPURates{{CPU: 0, BusyCores: 0.5}, {CPU: 1}}
	s.Rates.VMs[0].Buffering = flooded()
	s.Rates.Switches = []model.Switch{{Lever: v1alpha1.LeverAffinity, On: true}, {Lever: v1alpha1.LeverSlice}}
	s.Energy = metering.Status{
		Refusals: map[energy.Reason]uint64{energy.ReasonJumped: 3},
		Used: []metering.Used{
			{Source: v1alpha1.PowerModel, Scope: v1alpha1.PowerScopePackage, Joules: 5}, {Source: v1alpha1.PowerRAPL, Scope: v1alpha1.PowerScopePlatform, Joules: 1e6},
		},
		Modelled: modelled(97), Accuracy: power.Accuracy{MeanRelativeError: 0.03, Samples: 9},
	}
	return s
}

func TestMetricsAreDocumented(t *testing.T) {
	board := &Board{}
	board.Post(metered())
	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(newCollector(board, true)); err != nil {
		t.Fatal(err)
	}
	metricstest.Check(t, metrics.Agent(), registry)
}

func TestEnergyMetrics(t *testing.T) {
	board := &Board{}
	collector := newCollector(board, false)
	compare := func(want string, names ...string) {
		t.Helper()
		for i, name := range names {
			names[i] = "joulevirt_agent_" + name
		}
		if err := testutil.CollectAndCompare(collector, strings.NewReader(want), names...); err != nil {
			t.Error(err)
		}
	}
	board.Post(metered())
	compare(`
# HELP joulevirt_agent_power_watts The node's power.
# TYPE joulevirt_agent_power_watts gauge
joulevirt_agent_power_watts{node="node1",scope="Platform",source="RAPL"} 100
# HELP joulevirt_agent_energy_joules_total Energy since the agent started; what a meter used while its readings were refused is left out.
# TYPE joulevirt_agent_energy_joules_total counter
joulevirt_agent_energy_joules_total{node="node1",scope="Package",source="Model"} 5
joulevirt_agent_energy_joules_total{node="node1",scope="Platform",source="RAPL"} 1e+06
# HELP joulevirt_agent_energy_source_up 1 when the source had the power of the last round.
# TYPE joulevirt_agent_energy_source_up gauge
joulevirt_agent_energy_source_up{node="node1",source="Model"} 1
joulevirt_agent_energy_source_up{node="node1",source="RAPL"} 1
`, "power_watts", "energy_joules_total", "energy_source_up")

	// A node whose meter fails: what is not known has no series, and no zero.
	failing := state("web")
	failing.Energy.Refusal = energy.Refuse(energy.ReasonFrozen, "stands still")
	failing.Energy.Refusals = map[energy.Reason]uint64{energy.ReasonFrozen: 7}
	board.Post(failing)
	compare(`
# HELP joulevirt_agent_energy_source_up 1 when the source had the power of the last round.
# TYPE joulevirt_agent_energy_source_up gauge
joulevirt_agent_energy_source_up{node="node1",source="Model"} 0
joulevirt_agent_energy_source_up{node="node1",source="RAPL"} 0
`, "energy_source_up", "power_watts", "power_model_watts", "power_model_error_ratio")
	compare(`
# HELP joulevirt_agent_power_refusals_total Readings of the node's meter that were not used, by reason (the words of the condition MeterAvailable).
# TYPE joulevirt_agent_power_refusals_total counter
joulevirt_agent_power_refusals_total{node="node1",reason="Awaiting"} 0
joulevirt_agent_power_refusals_total{node="node1",reason="Frozen"} 7
joulevirt_agent_power_refusals_total{node="node1",reason="Implausible"} 0
joulevirt_agent_power_refusals_total{node="node1",reason="Jumped"} 0
joulevirt_agent_power_refusals_total{node="node1",reason="NoCounters"} 0
joulevirt_agent_power_refusals_total{node="node1",reason="NotFinite"} 0
joulevirt_agent_power_refusals_total{node="node1",reason="PermissionDenied"} 0
joulevirt_agent_power_refusals_total{node="node1",reason="Unreachable"} 0
joulevirt_agent_power_refusals_total{node="node1",reason="WentBack"} 0
`, "power_refusals_total")
}

// flooded is what is known of a VM whose guest has tools, under a flood.
func flooded() *model.BufferingRates {
	return &model.BufferingRates{
		WindowMicroseconds: 250, ActiveShare: 0.75, PassedPerSecond: 10, HeldPerSecond: 8000,
		DropsPerSecond: new(units.PacketsPerSecond(4)),
		GuestTools:     &model.GuestTools{ToleratedMicroseconds: 500, TransmitMicroseconds: 250},
		Flood:          &model.Flood{SegmentsPerSecond: 50_000, MeanBytes: 64, SYNShare: 0.9, Sources: 4000, TalkShare: 0.1},
	}
}

func TestBufferingMetrics(t *testing.T) {
	board := &Board{}
	s := state("web", "db")
	s.Rates.VMs[0].Buffering = flooded()
	s.Rates.VMs[1].Buffering = &model.BufferingRates{WindowMicroseconds: 1000}
	board.Post(s)
	const want = `
# HELP joulevirt_vm_buffering_flood_segments_per_second Segments of the flood, as they were on the wire; absent without a flood.
# TYPE joulevirt_vm_buffering_flood_segments_per_second gauge
joulevirt_vm_buffering_flood_segments_per_second{name="web",namespace="shop",node="node1"} 50000
# HELP joulevirt_vm_buffering_window_seconds Distance of the bunches in which packets are held when they come fast: the plan's, or what the guest tolerates when that is less; 0 when they are held only during floods.
# TYPE joulevirt_vm_buffering_window_seconds gauge
joulevirt_vm_buffering_window_seconds{name="db",namespace="shop",node="node1"} 0.001
joulevirt_vm_buffering_window_seconds{name="web",namespace="shop",node="node1"} 0.00025
`
	if err := testutil.CollectAndCompare(newCollector(board, true), strings.NewReader(want),
		"joulevirt_vm_buffering_flood_segments_per_second", "joulevirt_vm_buffering_window_seconds"); err != nil {
		t.Error(err)
	}
}
