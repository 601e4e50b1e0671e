package controllers

import (
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"github.com/joulevirt/joulevirt/internal/energy"
	"github.com/joulevirt/joulevirt/internal/metrics"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/observe/learned"
)

// powerCollector shows what is known of nodes' power, from the last look: a node
// that went has no series any longer.
type powerCollector struct {
	seen   func() powerSights
	meter  serverAnswers
	models *learned.Models
	clock  clock.PassiveClock

	info, watts, joules, age, suspect, modelError, up *prometheus.Desc
}

// serverAnswers tells of each Prometheus server that was asked whether it
// answered the last time.
type serverAnswers interface{ Answers() map[energy.Server]bool }

func newPowerCollector(watch *powerWatch, meter serverAnswers) *powerCollector {
	table := metrics.Manager()
	describe := func(name string) *prometheus.Desc { return table.Desc("joulevirt_"+name, nil) }
	return &powerCollector{
		seen: watch.Seen, meter: meter, models: watch.models, clock: watch.clock,
		info: describe("node_info"), watts: describe("node_power_watts"), joules: describe("node_energy_joules_total"),
		age: describe("node_power_age_seconds"), suspect: describe("node_meter_suspect"),
		modelError: describe("power_model_error_ratio"), up: describe("energy_source_up"),
	}
}

// Describe implements prometheus.Collector.
func (c *powerCollector) Describe(out chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{c.info, c.watts, c.joules, c.age, c.suspect, c.modelError, c.up} {
		out <- desc
	}
}

// Collect implements prometheus.Collector.
func (c *powerCollector) Collect(out chan<- prometheus.Metric) {
	gauge := func(desc *prometheus.Desc, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	sights := c.seen()
	for _, sight := range sights {
		meter, scope := meterWords(&sight.choice)
		gauge(c.info, 1, sight.node, sight.policy, meter, scope)
		if power := sight.choice.Power; power != nil {
			gauge(c.watts, float64(power.Watts), sight.node, string(power.Source))
			gauge(c.age, energy.Age(*power, c.clock.Now()).Seconds(), sight.node)
		}
		if sight.choice.Metered {
			gauge(c.suspect, oneIf(sight.choice.Suspect != nil), sight.node)
		}
		for _, drawn := range c.models.Energy(sight.node) {
			out <- prometheus.MustNewConstMetric(c.joules, prometheus.CounterValue, float64(drawn.Joules), sight.node, string(drawn.Source))
		}
		if accuracy, known := c.models.Accuracy(sight.node); known {
			gauge(c.modelError, accuracy.MeanRelativeError, sight.node)
		}
	}
	for source, up := range c.sourcesUp(sights) {
		gauge(c.up, oneIf(up), string(source.kind), source.server)
	}
}

// meterWords tell how the power of a node is known, and what it covers.
func meterWords(choice *energy.Choice) (meter, scope string) {
	meter, scope = "None", "None"
	switch {
	case choice.Suspect != nil:
		meter = "Suspect"
	case choice.Metered:
		meter = "Measured"
	case choice.Unknown:
		meter = "Awaited"
	case choice.Power != nil:
		meter = "Modelled"
	}
	if choice.Power != nil {
		scope = string(choice.Power.Scope)
	}
	return meter, scope
}

func oneIf(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

type sourceLabels struct {
	kind   model.PowerSource
	server string
}

// sourcesUp tells of the sources that were tried whether they work. Two questions
// to one server are one source, which works when both do.
func (c *powerCollector) sourcesUp(sights powerSights) map[sourceLabels]bool {
	up := map[sourceLabels]bool{}
	for server, answers := range c.meter.Answers() {
		labels := sourceLabels{model.SourcePrometheus, server.String()}
		before, known := up[labels]
		up[labels] = answers && (before || !known)
	}
	for _, sight := range sights {
		for _, attempt := range sight.choice.Attempts {
			if labels := (sourceLabels{kind: attempt.Type}); attempt.Type != model.SourcePrometheus && !up[labels] {
				up[labels] = false
			}
		}
		if source := sight.choice.Source; source != "" && source != model.SourcePrometheus {
			up[sourceLabels{kind: source}] = true
		}
	}
	return up
}
