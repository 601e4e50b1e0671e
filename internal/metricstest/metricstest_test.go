package metricstest

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
)

func TestParseRow(t *testing.T) {
	for line, want := range map[string]*Metric{
		"| `joulevirt_a_watts` | gauge | node, source | W | The power. |": {Type: "gauge", Labels: []string{"node", "source"}},
		"| `joulevirt_b_total` | counter | | | Something. |":              {Type: "counter"},
		"| name | type | labels | unit | meaning |":                       nil,
		"|---|---|---|---|---|":                                           nil,
		"`joulevirt_a_watts` is a gauge":                                  nil,
		"":                                                                nil,
	} {
		name, got, ok := parseRow(line)
		if ok != (want != nil) {
			t.Errorf("%q: %v", line, ok)
		}
		if want != nil {
			if diff := cmp.Diff(*want, got); diff != "" || name == "" {
				t.Errorf("%q: %q -want +got:\n%s", line, name, diff)
			}
		}
	}
}

// recorder notes that a test would have failed.
type recorder struct {
	testing.TB
	failures int
}

func (r *recorder) Helper()               {}
func (r *recorder) Errorf(string, ...any) { r.failures++ }

func TestCheckObjects(t *testing.T) {
	registry := prometheus.NewRegistry()
	for _, name := range []string{"joulevirt_undocumented_total", "other_total"} {
		registry.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: "A gauge with a counter's name."}))
	}
	r := &recorder{TB: t}
	Check(r, "No such heading", registry)
	if r.failures != 2 {
		t.Errorf("%d failures, want one for the documentation and one by promlint", r.failures)
	}
}
