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

	"github.com/joulevirt/joulevirt/internal/metrics"
	"github.com/joulevirt/joulevirt/internal/metricstest"
	"github.com/joulevirt/joulevirt/test/cluster/binaries"
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

// Rules are of metrics that there are, and promtool objects to none; its cases hold, and each
// rule has one.
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
				t.Errorf("%s is of %s, which is no metric of the product", rule.Name(), found)
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
	write(t, dir, "rules.yaml", text)
	write(t, dir, "rules_test.yaml", cases)
	write(t, dir, "two_managers_test.yaml", ofTwoManagers(t, cases))
	promtool, err := prometheus.Promtool(t.Context(), binaries.FromEnvironment(os.Getenv, nil).Cache, os.Stderr)
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

// Each alert says all that who is woken by it needs, and has a page; no page is of none.
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
