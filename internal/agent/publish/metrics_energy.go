package publish

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"github.com/joulevirt/joulevirt/internal/energy"
	"github.com/joulevirt/joulevirt/internal/model"
)

// energyMetrics are those of the node's power, as its agent knows it.
type energyMetrics struct {
	clock clock.PassiveClock

	power, memory, age, joules *prometheus.Desc
	up, refusals               *prometheus.Desc
	modelled, modelError       *prometheus.Desc
}

func newEnergyMetrics(agent describe, c clock.PassiveClock) energyMetrics {
	return energyMetrics{
		clock: c,

		power:      agent("power_watts"),
		memory:     agent("memory_power_watts"),
		age:        agent("power_age_seconds"),
		joules:     agent("energy_joules_total"),
		up:         agent("energy_source_up"),
		refusals:   agent("power_refusals_total"),
		modelled:   agent("power_model_watts"),
		modelError: agent("power_model_error_ratio"),
	}
}

func (m *energyMetrics) describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.power, m.memory, m.age, m.joules, m.up, m.refusals, m.modelled, m.modelError} {
		out <- d
	}
}

func (m *energyMetrics) collect(state *State, out chan<- prometheus.Metric) {
	if power := state.Rates.Power; power != nil {
		gauge(out, m.power, float64(power.Watts), string(power.Source), string(power.Scope))
		gauge(out, m.age, energy.Age(*power, m.clock.Now()).Seconds())
		if power.DRAMWatts != nil {
			gauge(out, m.memory, float64(*power.DRAMWatts), string(power.Source))
		}
	}
	status := &state.Energy
	for _, used := range status.Used {
		counter(out, m.joules, float64(used.Joules), string(used.Source), string(used.Scope))
	}
	gauge(out, m.up, truth(status.Refusal == nil), string(model.SourceRAPL))
	gauge(out, m.up, truth(status.Modelled != nil), string(model.SourceModel))
	var others uint64
	for reason, count := range status.Refusals {
		if !slices.Contains(meterReasons(), reason) {
			others += count
		}
	}
	for _, reason := range meterReasons() {
		counter(out, m.refusals, float64(status.Refusals[reason]), string(reason))
	}
	counter(out, m.refusals, float64(others), "Other")
	if status.Modelled != nil {
		gauge(out, m.modelled, float64(status.Modelled.Watts))
	}
	if status.Accuracy.Samples > 0 {
		gauge(out, m.modelError, status.Accuracy.MeanRelativeError)
	}
}

// meterReasons are all reasons for which a node's own meter is refused, so that
// their counters exist from the start.
func meterReasons() []energy.Reason {
	return []energy.Reason{
		energy.ReasonAwaiting, energy.ReasonFrozen, energy.ReasonImplausible, energy.ReasonJumped, energy.ReasonNoCounters,
		energy.ReasonNotFinite, energy.ReasonPermission, energy.ReasonUnreachable, energy.ReasonWentBack,
	}
}
