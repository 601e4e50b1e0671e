package prometheus_test

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/joulevirt/joulevirt/internal/metrics"
	"github.com/joulevirt/joulevirt/test/cluster/binaries"
	"github.com/joulevirt/joulevirt/test/metricstest"
	"github.com/joulevirt/joulevirt/test/prometheus"
)

const (
	rulesFile = "../../config/prometheus/rules.yaml"
	runbooks  = "../../docs/runbooks"
)

func shippedRules(t *testing.T) *prometheus.Rules {
	t.Helper()
	rules, err := prometheus.ReadRules(rulesFile)
	if err != nil {
		t.Fatal(err)
	}
	return rules
}

// TestShippedRules: rules use metrics of the product, promtool accepts them, and each has a case
// that passes. Metrics of the manager are summed without their instance, so that rules also hold
// while a second manager serves the same.
func TestShippedRules(t *testing.T) {
	t.Parallel()
	rules := shippedRules(t)
	described := metricstest.Described(append(metrics.Agent(), metrics.Manager()...))
	cases, err := os.ReadFile("testdata/rules_test.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for rule := range rules.All() {
		for _, found := range regexp.MustCompile(`(\w+:)?joulevirt_\w+`).FindAllString(rule.Expr, -1) {
			if _, is := described[found]; !is && !strings.Contains(found, ":") {
				t.Errorf("%s uses %s, which is no metric of the product", rule.Name(), found)
			}
		}
		wanted := "expr: " + rule.Record + "\n"
		if rule.Alert != "" {
			wanted = `expr: ALERTS{alertname="` + rule.Alert + `"`
		}
		if !strings.Contains(string(cases), wanted) {
			t.Errorf("testdata/rules_test.yaml has no case of %s", rule.Name())
		}
	}
	dir := t.TempDir()
	text, err := rules.Native()
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{"rules.yaml": text, "rules_test.yaml": cases, "two_managers_test.yaml": withSecondManager(t, cases)} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	promtool, err := prometheus.Promtool(t.Context(), binaries.FromEnvironment(os.Getenv, os.Stderr))
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"check", "rules", "--lint-fatal", "rules.yaml"}, {"test", "rules", "rules_test.yaml"}, {"test", "rules", "two_managers_test.yaml"}} {
		command := exec.CommandContext(t.Context(), promtool, args...)
		command.Dir = dir
		if output, err := command.CombinedOutput(); err != nil {
			t.Errorf("promtool %v: %v\n%s", args, err, output)
		}
	}
}

// TestAlertsHaveRunbooks: each alert has its annotations and a page, and each page an alert.
func TestAlertsHaveRunbooks(t *testing.T) {
	t.Parallel()
	pages, want := map[string]bool{}, map[string]bool{"README": true}
	for rule := range shippedRules(t).All() {
		if rule.Alert == "" {
			continue
		}
		want[rule.Alert] = true
		if !slices.Contains([]string{"info", "warning", "critical"}, rule.Labels["severity"]) {
			t.Errorf("%s has severity %q", rule.Alert, rule.Labels["severity"])
		}
		for _, name := range []string{"summary", "description"} {
			if rule.Annotations[name] == "" {
				t.Errorf("%s has no %s", rule.Alert, name)
			}
		}
		if got, want := rule.Annotations["runbook_url"], fmt.Sprintf("https://github.com/joulevirt/joulevirt/blob/main/docs/runbooks/%s.md", rule.Alert); got != want {
			t.Errorf("%s has runbook_url %s, want %s", rule.Alert, got, want)
		}
	}
	paths, err := filepath.Glob(filepath.Join(runbooks, "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		name := strings.TrimSuffix(filepath.Base(path), ".md")
		pages[name] = true
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if name == "README" {
			for alert := range maps.Keys(want) {
				if alert != name && !strings.Contains(string(text), "("+alert+".md)") {
					t.Errorf("README.md of the runbooks lacks %s", alert)
				}
			}
			continue
		}
		for _, heading := range []string{"# " + name + "\n", "\n## What it means\n", "\n## What to look at\n", "\n## What to do\n"} {
			if !strings.Contains(string(text), heading) {
				t.Errorf("%s lacks %q", path, heading)
			}
		}
	}
	if diff := cmp.Diff(want, pages); diff != "" {
		t.Errorf("pages (-wanted by alerts +there):\n%s", diff)
	}
}

// withSecondManager adds a second manager that serves all that the first does, as when the leader
// changes: recorded sums stay, and so do alerts, but for the label instance.
func withSecondManager(t *testing.T, cases []byte) []byte {
	t.Helper()
	type object = map[string]any
	var file object
	if err := yaml.Unmarshal(cases, &file); err != nil {
		t.Fatal(err)
	}
	served := metricstest.Described(metrics.Manager())
	instance := regexp.MustCompile(`,? *instance="(\w+)"`)
	for _, each := range file["tests"].([]any) {
		test := each.(object)
		series := test["input_series"].([]any)
		for _, each := range series {
			text := each.(object)["series"].(string)
			name, labels, _ := strings.Cut(text, "{")
			if _, ok := served[name]; !ok {
				continue
			}
			second := "second"
			if first := instance.FindStringSubmatch(text); first != nil {
				second += "-to-" + first[1]
			}
			labels = strings.TrimLeft(instance.ReplaceAllString(labels, ""), " ,")
			series = append(series, object{"series": name + `{instance="` + second + `", ` + labels, "values": each.(object)["values"]})
		}
		test["input_series"] = series
		for _, each := range test["promql_expr_test"].([]any) {
			question := each.(object)
			expr := question["expr"].(string)
			if !strings.HasPrefix(expr, "ALERTS") {
				continue
			}
			question["expr"] = "max without (instance) (" + expr + ")"
			samples, _ := question["exp_samples"].([]any)
			for _, each := range samples {
				sample := each.(object)
				sample["labels"] = instance.ReplaceAllString(strings.TrimPrefix(sample["labels"].(string), "ALERTS"), "")
			}
		}
	}
	out, err := yaml.Marshal(file)
	if err != nil {
		t.Fatal(err)
	}
	return out
}
