package publish

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/joulevirt/joulevirt/internal/agent/metering"
	"github.com/joulevirt/joulevirt/internal/energy"
	"github.com/joulevirt/joulevirt/internal/metrics"
	"github.com/joulevirt/joulevirt/internal/metricstest"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/power"
	"github.com/joulevirt/joulevirt/internal/units"
)

// metered is a state in which everything is known.
func metered() *State {
	s := state("web")
	memory := units.Watts(8)
	s.Rates.Power = measured(100)
	s.Rates.CPUs = []model.CPURates{{CPU: 0, BusyCores: 0.5}, {CPU: 1}}
	s.Rates.Power.DRAMWatts = &memory
	s.Rates.VMs[0].Buffering = flooded()
	s.Rates.Switches = []model.Switch{{Lever: model.LeverAffinity, On: true}, {Lever: model.LeverSlice}}
	s.Energy = metering.Status{
		Refusals: map[energy.Reason]uint64{energy.ReasonJumped: 3},
		Used: []metering.Used{
			{Source: model.SourceModel, Scope: model.ScopePackage, Joules: 5}, {Source: model.SourceRAPL, Scope: model.ScopePlatform, Joules: 1e6},
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
# HELP joulevirt_agent_power_age_seconds Time since joulevirt_agent_power_watts was so: it grows while the meter fails, for a minute at most; then the power is modelled.
# TYPE joulevirt_agent_power_age_seconds gauge
joulevirt_agent_power_age_seconds{node="node1"} 3
# HELP joulevirt_agent_energy_joules_total Energy since the agent started; what a meter used while its readings were refused is left out.
# TYPE joulevirt_agent_energy_joules_total counter
joulevirt_agent_energy_joules_total{node="node1",scope="Package",source="Model"} 5
joulevirt_agent_energy_joules_total{node="node1",scope="Platform",source="RAPL"} 1e+06
# HELP joulevirt_agent_energy_source_up 1 when the source knew the power of the last round.
# TYPE joulevirt_agent_energy_source_up gauge
joulevirt_agent_energy_source_up{node="node1",source="Model"} 1
joulevirt_agent_energy_source_up{node="node1",source="RAPL"} 1
`, "power_watts", "power_age_seconds", "energy_joules_total", "energy_source_up")

	// A node whose meter fails: what is not known has no series, and no zero.
	failing := state("web")
	failing.Energy.Refusal = energy.Refuse(energy.ReasonFrozen, "stands still")
	failing.Energy.Refusals = map[energy.Reason]uint64{energy.ReasonFrozen: 7, "FromTheFuture": 2}
	board.Post(failing)
	compare(`
# HELP joulevirt_agent_energy_source_up 1 when the source knew the power of the last round.
# TYPE joulevirt_agent_energy_source_up gauge
joulevirt_agent_energy_source_up{node="node1",source="Model"} 0
joulevirt_agent_energy_source_up{node="node1",source="RAPL"} 0
`, "energy_source_up", "power_watts", "power_age_seconds", "power_model_watts", "power_model_error_ratio", "memory_power_watts")
	compare(`
# HELP joulevirt_agent_power_refusals_total Readings of the node's meter that were not used, by reason (the words of the condition MeterAvailable).
# TYPE joulevirt_agent_power_refusals_total counter
joulevirt_agent_power_refusals_total{node="node1",reason="Awaiting"} 0
joulevirt_agent_power_refusals_total{node="node1",reason="Frozen"} 7
joulevirt_agent_power_refusals_total{node="node1",reason="Implausible"} 0
joulevirt_agent_power_refusals_total{node="node1",reason="Jumped"} 0
joulevirt_agent_power_refusals_total{node="node1",reason="NoCounters"} 0
joulevirt_agent_power_refusals_total{node="node1",reason="NotFinite"} 0
joulevirt_agent_power_refusals_total{node="node1",reason="Other"} 2
joulevirt_agent_power_refusals_total{node="node1",reason="PermissionDenied"} 0
joulevirt_agent_power_refusals_total{node="node1",reason="Unreachable"} 0
joulevirt_agent_power_refusals_total{node="node1",reason="WentBack"} 0
`, "power_refusals_total")
}

// The age grows while no round comes to an end.
func TestAgeOfPower(t *testing.T) {
	s := metered()
	s.Rates.Power.Time = start().Add(-time.Hour)
	board := &Board{}
	board.Post(s)
	registry := prometheus.NewRegistry()
	registry.MustRegister(newCollector(board, false))
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == "joulevirt_agent_power_age_seconds" {
			if age := family.GetMetric()[0].GetGauge().GetValue(); math.Abs(age-3603) > 1e-6 {
				t.Errorf("%v s", age)
			}
			return
		}
	}
	t.Error("no age")
}
