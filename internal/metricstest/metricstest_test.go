package metricstest

import (
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/joulevirt/joulevirt/internal/metrics"
)

// recorder notes that a test would have failed.
type recorder struct {
	testing.TB
	failures int
	said     []string
}

func (r *recorder) Helper() {}
func (r *recorder) Errorf(format string, args ...any) {
	r.failures++
	r.said = append(r.said, fmt.Sprintf(format, args...))
}

func TestCheckObjects(t *testing.T) {
	table := metrics.Table{{Name: "joulevirt_a_watts", Type: metrics.Gauge, Labels: []string{"node", "cause"}, Help: "A."}}
	for name, test := range map[string]struct {
		show     map[string][]string
		failures int
	}{
		"as described":                {show: map[string][]string{"joulevirt_a_watts": {"cause", "node"}, "other_total": nil}},
		"other labels":                {show: map[string][]string{"joulevirt_a_watts": {"node"}}, failures: 1},
		"not there":                   {failures: 1},
		"another, with a bad name":    {show: map[string][]string{"joulevirt_a_watts": {"node", "cause"}, "joulevirt_other_total": nil}, failures: 2},
		"another, with a decent name": {show: map[string][]string{"joulevirt_a_watts": {"node", "cause"}, "joulevirt_other": nil}, failures: 1},
	} {
		t.Run(name, func(t *testing.T) {
			registry := prometheus.NewRegistry()
			for name, labels := range test.show {
				gauge := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: "A."}, labels)
				values := prometheus.Labels{}
				for _, label := range labels {
					values[label] = "x"
				}
				gauge.With(values).Set(1)
				registry.MustRegister(gauge)
			}
			r := &recorder{TB: t}
			Check(r, table, registry)
			if r.failures != test.failures {
				t.Errorf("%d failures: %q, want %d", r.failures, r.said, test.failures)
			}
		})
	}
}
