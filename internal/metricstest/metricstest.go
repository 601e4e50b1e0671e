// Package metricstest holds metrics to their documentation in docs/metrics.md,
// and to Prometheus' conventions, in tests.
package metricstest

import (
	"bufio"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// prefix of the product's own metrics: a registry may hold a library's, too.
const prefix = "joulevirt_"

// Metric is what the documentation and a program have to agree on.
type Metric struct {
	// Type is counter, gauge, histogram or summary.
	Type string
	// Labels in their order.
	Labels []string
}

// Check fails the test when the product's metrics are not those in the table
// below a heading of docs/metrics.md, by name, type and labels, or when promlint
// objects to one. The gatherer has to show each metric at least once.
func Check(t testing.TB, heading string, gatherer prometheus.Gatherer) {
	t.Helper()
	if diff := cmp.Diff(Documented(t, heading), Gathered(t, gatherer)); diff != "" {
		t.Errorf("docs/metrics.md, %q, and the program differ (-documented +gathered):\n%s", heading, diff)
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
		one := Metric{Type: strings.ToLower(family.GetType().String())}
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

// Documented returns the metrics of the table below a heading of
// docs/metrics.md by their name. Its columns begin with name, type and labels,
// which are separated by commas.
func Documented(t testing.TB, heading string) map[string]Metric {
	t.Helper()
	file, err := os.Open(filepath.Join(root(t), "docs", "metrics.md"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	found := map[string]Metric{}
	below := false
	scanner := bufio.NewScanner(file)
	for scanner.Scan() {
		line := scanner.Text()
		if text, ok := strings.CutPrefix(line, "## "); ok {
			below = strings.TrimSpace(text) == heading
		}
		name, metric, ok := parseRow(line)
		if !below || !ok {
			continue
		}
		if _, twice := found[name]; twice {
			t.Errorf("docs/metrics.md has %s twice", name)
		}
		found[name] = metric
	}
	if err := scanner.Err(); err != nil {
		t.Fatal(err)
	}
	return found
}

// parseRow reads a row of a table; false when it is not one of a metric.
func parseRow(line string) (string, Metric, bool) {
	cells := strings.Split(line, "|")
	const least = 4 // the text before the first bar, name, type, labels
	if len(cells) < least {
		return "", Metric{}, false
	}
	for i := range cells {
		cells[i] = strings.Trim(strings.TrimSpace(cells[i]), "`")
	}
	if !strings.HasPrefix(cells[1], prefix) {
		return "", Metric{}, false
	}
	metric := Metric{Type: cells[2]}
	for label := range strings.SplitSeq(cells[3], ",") {
		if label = strings.TrimSpace(label); label != "" {
			metric.Labels = append(metric.Labels, label)
		}
	}
	slices.Sort(metric.Labels)
	return cells[1], metric, true
}

// root is the folder of the module that the test belongs to.
func root(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		above := filepath.Dir(dir)
		if above == dir {
			t.Fatal("no go.mod in this folder or above: run the test in the module")
		}
		dir = above
	}
}
