package controllers

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/metrics"
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
	table := metrics.Manager()
	counter := func(name string) prometheus.CounterOpts { return prometheus.CounterOpts(table.Opts(name)) }
	seconds := func(name string, buckets int) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: name, Help: table.Get(name).Help, Buckets: prometheus.ExponentialBuckets(0.001, 2, buckets),
		})
	}
	m := &Metrics{
		PlansWritten:  prometheus.NewCounter(counter("joulevirt_nodeplans_written_total")),
		GuardBreaches: prometheus.NewCounterVec(counter("joulevirt_global_guard_breaches_total"), []string{"sign", "lever"}),
		pulls:         prometheus.NewCounterVec(counter("joulevirt_rates_pulls_total"), []string{"result"}),
		pullSeconds:   seconds("joulevirt_rates_pull_seconds", 13),
		readSeconds:   seconds("joulevirt_energy_source_read_seconds", 16),
	}
	for _, c := range []prometheus.Collector{m.PlansWritten, m.GuardBreaches, m.pulls, m.pullSeconds, m.readSeconds} {
		if err := registry.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// NewProgramCollector shows the manager's version, and when the authority of the agents'
// certificates ends. expires answers false while that is not known.
func NewProgramCollector(version string, expires func() (time.Time, bool)) prometheus.Collector {
	table := metrics.Manager()
	return &programCollector{
		version: version, expires: expires,
		build: table.Desc("joulevirt_manager_build_info", nil), expiry: table.Desc("joulevirt_authority_expiry_timestamp_seconds", nil),
	}
}

type programCollector struct {
	version       string
	expires       func() (time.Time, bool)
	build, expiry *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (c *programCollector) Describe(out chan<- *prometheus.Desc) {
	out <- c.build
	out <- c.expiry
}

// Collect implements prometheus.Collector.
func (c *programCollector) Collect(out chan<- prometheus.Metric) {
	gauge(out, c.build, 1, c.version)
	if at, known := c.expires(); known {
		gauge(out, c.expiry, float64(at.Unix()))
	}
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
	// seen is what is known of the governed nodes' power. Nil: this manager does not lead. It
	// hears no rates then, and has nothing to say: all nodes would look lost.
	seen  func() powerSights
	nodes *prometheus.Desc
}

func newReportCollector(reader client.Reader, rates observe.Rates, seen func() powerSights) *reportCollector {
	return &reportCollector{reader: reader, rates: rates, seen: seen, nodes: metrics.Manager().Desc("joulevirt_nodes", nil)}
}

// Describe implements prometheus.Collector.
func (c *reportCollector) Describe(descriptions chan<- *prometheus.Desc) { descriptions <- c.nodes }

// Collect implements prometheus.Collector.
func (c *reportCollector) Collect(out chan<- prometheus.Metric) {
	sights := c.seen()
	if sights == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), collectTimeout)
	defer cancel()
	var reports v1alpha1.NodeReportList
	if err := c.reader.List(ctx, &reports, client.UnsafeDisableDeepCopy); err != nil {
		out <- prometheus.NewInvalidMetric(c.nodes, err)
		return
	}
	var fresh float64
	for i := range reports.Items {
		if c.rates.Fresh(reports.Items[i].Name) != nil {
			fresh++
		}
	}
	for state, count := range map[string]float64{
		"reported": float64(len(reports.Items)), "rates_fresh": fresh, "governed": float64(len(sights)), "metered": sights.metered(),
	} {
		gauge(out, c.nodes, count, state)
	}
}

const collectTimeout = 5 * time.Second
