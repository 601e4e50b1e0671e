package metrics

import (
	"bytes"
	"flag"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
)

// Each metric is there once, and says all that its row tells.
func TestTables(t *testing.T) {
	seen := map[string]bool{}
	for program, table := range map[string]Table{"agent": Agent(), "manager": Manager(), "gateway": Gateway()} {
		for _, m := range table {
			if seen[m.Name] {
				t.Errorf("%s is there twice", m.Name)
			}
			seen[m.Name] = true
			if !strings.HasPrefix(m.Name, "joulevirt_") || m.Unit == "" && m.Type != Counter || m.Series < 1 || m.Per == "" || !strings.HasSuffix(m.Help, ".") {
				t.Errorf("%+v lacks something", m)
			}
			if strings.ContainsAny(m.Help, "`|[") || strings.Contains(m.More, "|") {
				t.Errorf("%s: help is plain text, and no cell of a table has a bar: %q, %q", m.Name, m.Help, m.More)
			}
			if info := strings.HasSuffix(m.Name, "_info"); info && m.Unit != "1" {
				t.Errorf("%s: the unit of an _info is 1", m.Name)
			}
			if program == "agent" && (len(m.Labels) == 0 || m.Labels[0] != "node") {
				t.Errorf("%s of the agent has labels %v, the first has to be node", m.Name, m.Labels)
			}
			slices.Sort(m.Labels)
			if len(slices.Compact(m.Labels)) != len(m.Labels) {
				t.Errorf("%s has a label twice", m.Name)
			}
		}
	}
}

func TestDesc(t *testing.T) {
	table := Table{{Name: "joulevirt_a", Type: Gauge, Labels: []string{"node", "cause"}, Help: "A."}}
	got := table.Desc("joulevirt_a", prometheus.Labels{"node": "n"}).String()
	if want := prometheus.NewDesc("joulevirt_a", "A.", []string{"cause"}, prometheus.Labels{"node": "n"}).String(); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	defer func() {
		if recover() == nil {
			t.Error("a metric that is not described is described")
		}
	}()
	table.Desc("joulevirt_b", nil)
}

// update writes docs/metrics.md: make manifests.
var update = flag.Bool("update", false, "write docs/metrics.md")

func TestPageIsUpToDate(t *testing.T) {
	const file = "../../docs/metrics.md"
	var page bytes.Buffer
	if err := writePage(&page); err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(file, page.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	committed, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(committed), page.String()); diff != "" {
		t.Errorf("docs/metrics.md is not what make manifests writes (-committed +now):\n%s", diff)
	}
}
