package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/joulevirt/joulevirt/internal/metrics"
)

// TestConditionsAndEvents compares the page of conditions and Events with the words of the code.
func TestConditionsAndEvents(t *testing.T) {
	page := readPages(t)["docs/reference/conditions.md"]
	conditions, events, found := strings.Cut(page, "| object | reason | when |")
	if !found {
		t.Fatal("the page has no table of Events")
	}
	api := goFiles(t, "api/v1alpha1")
	if diff := cmp.Diff(firstGroups(`\tCondition\w+ += "(\w+)"|const Condition\w+ = "(\w+)"`, api), firstGroups("(?m)^\\|[^|]+\\| `(\\w+)`", conditions)); diff != "" {
		t.Errorf("conditions (-api +page):\n%s", diff)
	}
	code := api + goFiles(t, "controllers")
	for _, row := range firstGroups(`(?m)^\|[^|]+\|([^|]+)\|`, events) {
		for _, reason := range firstGroups("`([A-Z]\\w+)`", row) {
			if !strings.Contains(code, `"`+reason+`"`) {
				t.Errorf("no Event has reason %s", reason)
			}
		}
	}
}

// TestMetricsOfPages finds each metric that a page names.
func TestMetricsOfPages(t *testing.T) {
	known := map[string]bool{}
	for _, metric := range slices.Concat(metrics.Agent(), metrics.Manager(), metrics.Gateway()) {
		known[metric.Name] = true
	}
	for name, text := range readPages(t) {
		for _, metric := range firstGroups("`(joulevirt_\\w*[a-z])`", text) {
			if !known[metric] {
				t.Errorf("%s: there is no metric %s", name, metric)
			}
		}
	}
}

// firstGroups are what the first group that matched found, sorted, each once.
func firstGroups(expression, text string) []string {
	var all []string
	for _, match := range regexp.MustCompile(expression).FindAllStringSubmatch(text, -1) {
		all = append(all, strings.Join(match[1:], ""))
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// goFiles is the text of the Go files below a folder, without tests.
func goFiles(t *testing.T, folder string) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir(filepath.Join(root, folder), func(name string, entry os.DirEntry, err error) error {
		if err != nil || filepath.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") {
			return err
		}
		text, err := os.ReadFile(name)
		all.Write(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}
