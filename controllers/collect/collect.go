// Package collect has what the manager's Prometheus collectors share.
package collect

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/ledger"
	"github.com/joulevirt/joulevirt/internal/metrics"
)

// Set are the metrics that one collector sends, by their names without prefix joulevirt_.
type Set map[string]*prometheus.Desc

// NewSet finds the descriptions of metrics.
func NewSet(names ...string) Set {
	table, set := metrics.Manager(), make(Set, len(names))
	for _, name := range names {
		set[name] = table.Desc("joulevirt_"+name, nil)
	}
	return set
}

// Describe implements a part of prometheus.Collector.
func (s Set) Describe(out chan<- *prometheus.Desc) {
	for _, desc := range s {
		out <- desc
	}
}

// Gauge sends the value of a gauge.
func (s Set) Gauge(out chan<- prometheus.Metric, name string, value float64, labels ...string) {
	out <- prometheus.MustNewConstMetric(s[name], prometheus.GaugeValue, value, labels...)
}

// Counter sends the value of a counter.
func (s Set) Counter(out chan<- prometheus.Metric, name string, value float64, labels ...string) {
	out <- prometheus.MustNewConstMetric(s[name], prometheus.CounterValue, value, labels...)
}

// Bounds sends an estimate with the ends of its interval, by the name without its unit.
func (s Set) Bounds(out chan<- prometheus.Metric, name, unit string, r ledger.Range, labels ...string) {
	for end, value := range map[string]float64{"": r.Value, "_low": r.Low, "_high": r.High} {
		s.Gauge(out, name+end+"_"+unit, value, labels...)
	}
}

// OneIf is 1 or 0.
func OneIf(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// Metrics are counted by the controllers themselves. None has a label per node or VM: their
// number must not grow with the cluster.
type Metrics struct {
	// GuardBreaches counts levers that were withdrawn because they hurt, by sign and lever.
	GuardBreaches *prometheus.CounterVec
}

// NewMetrics registers the manager's figures.
func NewMetrics(registry prometheus.Registerer) (*Metrics, error) {
	breaches := prometheus.CounterOpts(metrics.Manager().Opts("joulevirt_global_guard_breaches_total"))
	m := &Metrics{GuardBreaches: prometheus.NewCounterVec(breaches, []string{"sign", "lever"})}
	if err := registry.Register(m.GuardBreaches); err != nil {
		return nil, err
	}
	// All series are there from the start: Prometheus sees no increase in a series that appears.
	for _, sign := range []v1alpha1.GuardSign{v1alpha1.GuardSteal, v1alpha1.GuardDrops, v1alpha1.GuardThroughput, v1alpha1.GuardReadiness} {
		for _, lever := range append(v1alpha1.NodeLevers(), v1alpha1.LeverTrafficShare) {
			m.GuardBreaches.WithLabelValues(string(sign), string(lever))
		}
	}
	for _, sign := range []v1alpha1.GuardSign{v1alpha1.GuardReadiness, v1alpha1.GuardErrors, v1alpha1.GuardDelay} {
		m.GuardBreaches.WithLabelValues(string(sign), string(v1alpha1.LeverOffload))
	}
	return m, nil
}

// NewAuthorityCollector shows when the authority of the agents' certificates ends. expires
// answers false while that is not known.
func NewAuthorityCollector(expires func() (time.Time, bool)) prometheus.Collector {
	return &authorityCollector{NewSet(authorityExpiry), expires}
}

const authorityExpiry = "authority_expiry_timestamp_seconds"

type authorityCollector struct {
	Set
	expires func() (time.Time, bool)
}

// Collect implements prometheus.Collector.
func (c *authorityCollector) Collect(out chan<- prometheus.Metric) {
	if at, known := c.expires(); known {
		c.Gauge(out, authorityExpiry, float64(at.Unix()))
	}
}

// CollectTimeout bounds what a collector reads from the cache.
const CollectTimeout = 5 * time.Second
