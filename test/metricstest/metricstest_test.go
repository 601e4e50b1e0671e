package metricstest

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/joulevirt/joulevirt/internal/metrics"
)

func TestTooMany(t *testing.T) {
	table := metrics.Table{
		{Name: "joulevirt_of_node", Type: metrics.Gauge, Labels: []string{"node", "cause"}, Help: "A.", Series: 2, Per: metrics.PerNode},
		{Name: "joulevirt_shown", Type: metrics.Gauge, Labels: []string{"cause"}, Help: "A.", Series: 2, Per: metrics.PerManager},
		{Name: "joulevirt_taken", Type: metrics.Histogram, Help: "A.", Series: 5, Per: metrics.PerManager},
	}
	for name, test := range map[string]struct {
		nodes, causes []string
		buckets       int
		want          []string
	}{
		"as described": {nodes: []string{"n", "m", "o"}, causes: []string{"x", "y"}, buckets: 2},
		"one more of each": {
			nodes: []string{"n", "m"}, causes: []string{"x", "y", "z"}, buckets: 3, want: []string{
				"joulevirt_of_node has 3 series of node node=m, internal/metrics says 2 at most",
				"joulevirt_of_node has 3 series of node node=n, internal/metrics says 2 at most",
				"joulevirt_shown has 3 series of manager , internal/metrics says 2 at most",
				"joulevirt_taken has 6 series of manager , internal/metrics says 5 at most",
			},
		},
	} {
		registry := prometheus.NewRegistry()
		a := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "joulevirt_of_node", Help: "A."}, []string{"node", "cause"})
		b := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "joulevirt_shown", Help: "A."}, []string{"cause"})
		c := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "joulevirt_taken", Help: "A.", Buckets: prometheus.LinearBuckets(1, 1, test.buckets)})
		registry.MustRegister(a, b, c)
		for _, cause := range test.causes {
			for _, node := range test.nodes {
				a.WithLabelValues(node, cause).Set(1)
			}
			b.WithLabelValues(cause).Set(1)
		}
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(test.want, TooMany(table, families)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// Metrics have the labels that tell of what their series are.
func TestOwnerLabels(t *testing.T) {
	for _, table := range []metrics.Table{metrics.Agent(), metrics.Manager(), metrics.Gateway()} {
		for _, m := range table {
			for _, label := range ownerLabels(m) {
				if !slices.Contains(m.Labels, label) {
					t.Errorf("%s has series of each %s, and no label %s", m.Name, m.Per, label)
				}
			}
		}
	}
}
