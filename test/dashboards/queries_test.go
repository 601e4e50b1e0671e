package dashboards

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/joulevirt/joulevirt/internal/metrics"
	"github.com/joulevirt/joulevirt/test/cluster/binaries"
	"github.com/joulevirt/joulevirt/test/metricstest"
	"github.com/joulevirt/joulevirt/test/prometheus"
)

const rulesFile = "../../config/prometheus/rules.yaml"

// queries are those of all boards by where they are, with some value for each variable.
func queries(t *testing.T) map[string]string {
	t.Helper()
	boards, err := ReadBoards("../../config/grafana")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, b := range boards {
		values := map[string]string{"__rate_interval": "1m"}
		for _, v := range b.Variables {
			values[v.Name] = "any"
		}
		add := func(where, query string) {
			filled, err := Fill(query, values)
			if err != nil {
				t.Errorf("%s, %s: %v", b.Name, where, err)
			}
			out[b.Name+", "+where] = filled
		}
		for _, v := range b.Variables {
			// The label is one of the series.
			add("variable "+v.Name, fmt.Sprintf("count by (%s) (%s)", v.Label, v.Series))
		}
		for _, p := range b.Panels {
			for i, query := range p.Queries {
				add(fmt.Sprintf("panel %s, query %d", p.Title, i+1), query.Expr)
			}
		}
	}
	if len(out) == 0 {
		t.Fatal("there are no queries")
	}
	return out
}

// labels are those of each metric of the product, and of each series that the rules record.
func labels(t *testing.T, rules *prometheus.Rules) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	for name, m := range metricstest.Described(slices.Concat(metrics.Agent(), metrics.Manager())) {
		out[name] = m.Labels
	}
	for name, m := range metricstest.Described(metrics.Gateway()) {
		out[name] = append(m.Labels, scraped(t)...)
	}
	outermost := regexp.MustCompile(`^\s*\w+ by \(([\w, ]*)\)`)
	for rule := range rules.All() {
		if rule.Record == "" {
			continue
		}
		out[rule.Record] = nil
		if by := outermost.FindStringSubmatch(rule.Expr); by != nil {
			out[rule.Record] = strings.Split(by[1], ", ")
		}
	}
	return out
}

// scraped are the labels that the gateways' PodMonitor adds.
func scraped(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("../../config/prometheus/gateway_pod_monitor.yaml")
	if err != nil {
		t.Fatal(err)
	}
	added := []string{"namespace", "pod"} // those that the Prometheus Operator adds to all
	for _, found := range regexp.MustCompile(`targetLabel: (\w+)`).FindAllStringSubmatch(string(text), -1) {
		added = append(added, found[1])
	}
	return added
}

// TestQueries: PromQL takes each query of the dashboards, which names metrics of the product or recorded
// series, and labels that these have.
func TestQueries(t *testing.T) {
	rules, err := prometheus.ReadRules(rulesFile)
	if err != nil {
		t.Fatal(err)
	}
	known := labels(t, rules)
	var parsed prometheus.Rules
	name := regexp.MustCompile(`((?:\w+:)?joulevirt_[\w:]+)(?:\{([^}]*)\})?`)
	matcher := regexp.MustCompile(`(\w+)\s*(?:=~|!~|!=|=)\s*"`)
	grouping := regexp.MustCompile(`\b(?:by|on|without|ignoring|group_left|group_right)\s*\(([^)]*)\)`)
	for where, query := range queries(t) {
		parsed.Groups = append(parsed.Groups, prometheus.RuleGroup{Name: where, Rules: []prometheus.Rule{{Record: "query", Expr: query}}})
		var any []string
		for _, found := range name.FindAllStringSubmatch(query, -1) {
			has, is := known[found[1]]
			if !is {
				t.Errorf("%s asks for %s, which is neither a metric of the product nor recorded", where, found[1])
			}
			any = append(any, has...)
			for _, label := range matcher.FindAllStringSubmatch(found[2], -1) {
				if !slices.Contains(has, label[1]) {
					t.Errorf("%s: %s has no label %s, but %v", where, found[1], label[1], has)
				}
			}
		}
		for _, found := range grouping.FindAllStringSubmatch(query, -1) {
			for _, label := range strings.FieldsFunc(found[1], func(r rune) bool { return r == ',' || r == ' ' }) {
				if !slices.Contains(any, label) {
					t.Errorf("%s: no series of the query has the label %s: %s", where, label, query)
				}
			}
		}
	}
	text, err := parsed.Native()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "queries.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	promtool, err := prometheus.Promtool(t.Context(), binaries.FromEnvironment(os.Getenv, os.Stderr))
	if err != nil {
		t.Fatal(err)
	}
	if output, err := exec.CommandContext(t.Context(), promtool, "check", "rules", "--lint=none", file).CombinedOutput(); err != nil {
		t.Errorf("promtool: %v\n%s", err, output)
	}
}
