package prometheus_test

import (
	"os"
	"regexp"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/joulevirt/joulevirt/internal/metrics"
	"github.com/joulevirt/joulevirt/internal/metricstest"
)

// ruleFile is the part of a PrometheusRule that a server evaluates.
type ruleFile struct {
	Spec struct {
		Groups []struct {
			Rules []struct{ Alert, Expr, For string }
		}
	}
}

// The alerts that are shipped are of metrics that there are, and a server can
// evaluate them.
func TestShippedAlerts(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../config/prometheus/rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var file ruleFile
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	documented := metricstest.Described(append(metrics.Agent(), metrics.Manager()...))
	api, err := start(t, nil).API()
	if err != nil {
		t.Fatal(err)
	}
	rules := 0
	for _, group := range file.Spec.Groups {
		for _, rule := range group.Rules {
			rules++
			for _, name := range regexp.MustCompile(`joulevirt_\w+`).FindAllString(rule.Expr, -1) {
				if _, found := documented[name]; !found {
					t.Errorf("%s is of %s, which docs/metrics.md does not have", rule.Alert, name)
				}
			}
			if _, _, _, err := api.Query(t.Context(), rule.Expr, time.Time{}); err != nil {
				t.Errorf("%s: %v", rule.Alert, err)
			}
		}
	}
	if rules == 0 {
		t.Error("no rules")
	}
}
