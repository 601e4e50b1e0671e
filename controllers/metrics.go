package controllers

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/observe"
)

// Metrics are the manager's own figures. None has a label per node or VM: their
// number must not grow with the cluster. Figures of nodes are powerCollector's.
type Metrics struct {
	PlansWritten prometheus.Counter
	// GuardBreaches counts levers that were withdrawn because they hurt, by sign and lever.
	GuardBreaches *prometheus.CounterVec
	pulls         *prometheus.CounterVec
	pullSeconds   prometheus.Histogram
	readSeconds   prometheus.Histogram
}

// NewMetrics registers the manager's figures.
func NewMetrics(registry prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{
		PlansWritten: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "joulevirt_nodeplans_written_total", Help: "NodePlans that were written because they changed.",
		}),
		GuardBreaches: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "joulevirt_global_guard_breaches_total", Help: "Levers that were withdrawn from a VM, or from a node's VMs, because they hurt, by sign and lever.",
		}, []string{"sign", "lever"}),
		pulls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "joulevirt_rates_pulls_total", Help: "Pulls of agents' rates, by result: success or failure.",
		}, []string{"result"}),
		pullSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "joulevirt_rates_pull_seconds", Help: "Time that a pull of an agent's rates took.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 13),
		}),
		readSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "joulevirt_energy_source_read_seconds", Help: "Time that a Prometheus server took to give the power of its nodes, or to fail.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 16),
		}),
	}
	for _, c := range []prometheus.Collector{m.PlansWritten, m.GuardBreaches, m.pulls, m.pullSeconds, m.readSeconds} {
		if err := registry.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// ObservePull counts one pull of an agent's rates.
func (m *Metrics) ObservePull(err error, took time.Duration) {
	result := "success"
	if err != nil {
		result = "failure"
	}
	m.pulls.WithLabelValues(result).Inc()
	m.pullSeconds.Observe(took.Seconds())
}

// ObserveRead counts one question to a Prometheus server.
func (m *Metrics) ObserveRead(took time.Duration) { m.readSeconds.Observe(took.Seconds()) }

// reportCollector counts the nodes by what their reports say, from the cache,
// when it is asked: nothing is kept that could go stale.
type reportCollector struct {
	reader client.Reader
	rates  observe.Rates
	// seen is what is known of the governed nodes' power.
	seen  func() powerSights
	nodes *prometheus.Desc
}

func newReportCollector(reader client.Reader, rates observe.Rates, seen func() powerSights) *reportCollector {
	return &reportCollector{reader: reader, rates: rates, seen: seen, nodes: prometheus.NewDesc(
		"joulevirt_nodes", "Nodes by what is known of them: reported and rates_fresh by their agents, governed by a policy, and of these metered by its energy sources.",
		[]string{"state"}, nil,
	)}
}

// Describe implements prometheus.Collector.
func (c *reportCollector) Describe(descriptions chan<- *prometheus.Desc) { descriptions <- c.nodes }

// Collect implements prometheus.Collector.
func (c *reportCollector) Collect(metrics chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), collectTimeout)
	defer cancel()
	var reports v1alpha1.NodeReportList
	if err := c.reader.List(ctx, &reports, client.UnsafeDisableDeepCopy); err != nil {
		metrics <- prometheus.NewInvalidMetric(c.nodes, err)
		return
	}
	var fresh float64
	for i := range reports.Items {
		if c.rates.Fresh(reports.Items[i].Name) != nil {
			fresh++
		}
	}
	counts := map[string]float64{"reported": float64(len(reports.Items)), "rates_fresh": fresh}
	if sights := c.seen(); sights != nil { // a manager that does not lead looks at no power
		counts["governed"], counts["metered"] = float64(len(sights)), sights.metered()
	}
	for state, count := range counts {
		metrics <- prometheus.MustNewConstMetric(c.nodes, prometheus.GaugeValue, count, state)
	}
}

const collectTimeout = 5 * time.Second
