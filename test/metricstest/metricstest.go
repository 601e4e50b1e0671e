// Package metricstest compares metrics with their descriptions, and with Prometheus'
// conventions, in tests.
package metricstest

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"

	"github.com/joulevirt/joulevirt/internal/metrics"
)

// prefix of the product's own metrics: a registry may hold a library's, too.
const prefix = "joulevirt_"

// Metric is a metric of a program, or its description.
type Metric struct {
	// Type is counter, gauge, histogram or summary.
	Type string
	// Labels in alphabetical order.
	Labels []string
	Help   string
}

// Check fails the test if the product's metrics differ from a table, if one has more series
// than the table allows, or if promlint reports one. The gatherer must have each metric.
func Check(t testing.TB, table metrics.Table, gatherer prometheus.Gatherer) {
	t.Helper()
	if diff := cmp.Diff(Described(table), gathered(t, gatherer)); diff != "" {
		t.Errorf("internal/metrics and the program differ (-described +gathered):\n%s", diff)
	}
	families, err := gatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, problem := range TooMany(table, families) {
		t.Error(problem)
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

// TooMany returns problems of metrics that have more series for one owner, such as a node or a
// policy, than the table allows.
func TooMany(table metrics.Table, families []*dto.MetricFamily) (problems []string) {
	for _, family := range families {
		at := slices.IndexFunc(table, func(m metrics.Metric) bool { return m.Name == family.GetName() })
		if at < 0 {
			continue
		}
		counts := map[string]int{}
		for _, series := range family.GetMetric() {
			var owner []string
			for _, label := range series.GetLabel() {
				if slices.Contains(ownerLabels(table[at]), label.GetName()) {
					owner = append(owner, label.GetName()+"="+label.GetValue())
				}
			}
			slices.Sort(owner)
			counts[strings.Join(owner, ", ")] += width(series)
		}
		for _, owner := range slices.Sorted(maps.Keys(counts)) {
			if most := table[at].Series; counts[owner] > most {
				problems = append(problems, fmt.Sprintf("%s has %d series of %s %s, internal/metrics says %d at most", family.GetName(), counts[owner], table[at].Per, owner, most))
			}
		}
	}
	return problems
}

// width is the number of series: a histogram has one per bucket, the total, a sum and a count.
func width(metric *dto.Metric) int {
	if metric.Histogram == nil {
		return 1
	}
	const others = 3
	bounded := slices.DeleteFunc(slices.Clone(metric.Histogram.GetBucket()), func(b *dto.Bucket) bool { return math.IsInf(b.GetUpperBound(), 1) })
	return len(bounded) + others
}

// gathered returns the product's metrics by their name. Series of one metric must have the same
// labels.
func gathered(t testing.TB, gatherer prometheus.Gatherer) map[string]Metric {
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

// ownerLabels are the labels whose values tell of what a series is: of the same values there are at
// most Series. While a VM migrates it is on two nodes.
func ownerLabels(m metrics.Metric) []string {
	switch m.Per {
	case metrics.PerNode, metrics.PerAgent:
		return []string{"node"}
	case metrics.PerCPU:
		return []string{"node", "cpu"}
	case metrics.PerVM:
		return []string{"node", "namespace", "name"}
	case metrics.PerPolicy:
		return []string{"policy"}
	case metrics.PerProfile, metrics.PerGroup:
		return []string{"namespace", "profile"}
	case metrics.PerHybridWorkload:
		return []string{"namespace", "hybrid_workload"}
	case metrics.PerSource:
		return []string{"type", "server"}
	case metrics.PerManager, metrics.PerGateway:
		return nil
	}
	panic(fmt.Sprintf("metrics: nothing is known of what %s has series of, %q", m.Name, m.Per))
}
