// Package metricstest holds metrics to their descriptions, and to Prometheus'
// conventions, in tests.
package metricstest

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/joulevirt/joulevirt/internal/metrics"
)

// prefix of the product's own metrics: a registry may hold a library's, too.
const prefix = "joulevirt_"

// Metric is what the descriptions and a program have to agree on.
type Metric struct {
	// Type is counter, gauge, histogram or summary.
	Type string
	// Labels in alphabetical order.
	Labels []string
	Help   string
}

// Check fails the test when the product's metrics are not those of a table, or when
// promlint objects to one. The gatherer has to show each metric at least once.
func Check(t testing.TB, table metrics.Table, gatherer prometheus.Gatherer) {
	t.Helper()
	if diff := cmp.Diff(Described(table), Gathered(t, gatherer)); diff != "" {
		t.Errorf("internal/metrics and the program differ (-described +gathered):\n%s", diff)
	}
	problems, err := testutil.GatherAndLint(gatherer)
	if err != nil {
		t.Fatal(err)
	}
	for _, problem := range problems {
		if strings.HasPrefix(problem.Metric, prefix) {
			t.Errorf("%s: %s", problem.Metric, problem.Text)
		}
	}
}

// Gathered returns the product's metrics by their name. Series of one metric
// have to have the same labels.
func Gathered(t testing.TB, gatherer prometheus.Gatherer) map[string]Metric {
	t.Helper()
	families, err := gatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]Metric{}
	for _, family := range families {
		if !strings.HasPrefix(family.GetName(), prefix) {
			continue
		}
		one := Metric{Type: strings.ToLower(family.GetType().String()), Help: family.GetHelp()}
		for i, series := range family.GetMetric() {
			var labels []string
			for _, label := range series.GetLabel() {
				labels = append(labels, label.GetName())
			}
			slices.Sort(labels)
			if i > 0 && !slices.Equal(labels, one.Labels) {
				t.Errorf("%s has series with labels %v and with %v", family.GetName(), one.Labels, labels)
			}
			one.Labels = labels
		}
		found[family.GetName()] = one
	}
	return found
}

// Described returns the metrics of a table by their name.
func Described(table metrics.Table) map[string]Metric {
	found := map[string]Metric{}
	for _, m := range table {
		found[m.Name] = Metric{Type: string(m.Type), Labels: slices.Sorted(slices.Values(m.Labels)), Help: m.Help}
	}
	return found
}
