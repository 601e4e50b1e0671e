package dashboard

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/joulevirt/joulevirt/internal/metrics"
)

const folder = "../../config/grafana"

func TestBoardsAreUpToDate(t *testing.T) {
	boards, err := All()
	if err != nil {
		t.Fatal(err)
	}
	kustomization, err := os.ReadFile(filepath.Join(folder, "kustomization.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var files []string
	for _, b := range boards {
		committed, err := os.ReadFile(filepath.Join(folder, b.Name+".json"))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(committed), string(b.JSON)); diff != "" {
			t.Errorf("config/grafana/%s.json is not what make manifests writes (-committed +now):\n%s", b.Name, diff)
		}
		if !strings.Contains(string(kustomization), "files: ["+b.Name+".json]") {
			t.Errorf("config/grafana/kustomization.yaml lacks %s.json", b.Name)
		}
		files = append(files, filepath.Join(folder, b.Name+".json"))
	}
	there, err := filepath.Glob(filepath.Join(folder, "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(files)
	if diff := cmp.Diff(files, there); diff != "" {
		t.Errorf("files of config/grafana (-made +there):\n%s", diff)
	}
}

// Panels tell what they show, fill their rows, and ask for metrics that there are, by
// variables that there are.
func TestPanels(t *testing.T) {
	known := map[string]bool{}
	for _, m := range append(metrics.Agent(), metrics.Manager()...) {
		known[m.Name] = true
	}
	for _, b := range []board{fleetBoard(), nodeBoard(), groupBoard(), proofBoard()} {
		variables := map[string]bool{"datasource": true, "__rate_interval": true}
		for _, v := range b.variables {
			checkExpr(t, b.name+", variable "+v.name, v.of, known, variables)
			variables[v.name] = true
		}
		titles := map[string]bool{}
		for _, r := range b.rows {
			across := uint32(0)
			for _, p := range r.panels {
				where := b.name + ", " + p.title
				if titles[p.title] {
					t.Errorf("%s is there twice", where)
				}
				titles[p.title] = true
				if p.about == "" || p.unit == "" || p.height == 0 || len(p.queries) == 0 {
					t.Errorf("%s lacks something: %+v", where, p)
				}
				across += p.width
				for _, q := range p.queries {
					if q.legend == "" {
						t.Errorf("%s: a query has no legend", where)
					}
					checkExpr(t, where, q.expr, known, variables)
					checkChoice(t, where, b, p, q)
				}
				checkBands(t, where, p)
			}
			if across%full != 0 {
				t.Errorf("%s: row %s is %d of %d wide", b.name, r.title, across%full, full)
			}
		}
	}
}

func checkExpr(t *testing.T, where, expr string, known, variables map[string]bool) {
	t.Helper()
	for _, name := range regexp.MustCompile(`(\w+:)?joulevirt_\w+`).FindAllString(expr, -1) {
		if !known[name] && !strings.Contains(name, ":") {
			t.Errorf("%s asks for %s, which is no metric of the product", where, name)
		}
	}
	for _, name := range regexp.MustCompile(`\$(\w+)`).FindAllStringSubmatch(expr, -1) {
		if !variables[name[1]] {
			t.Errorf("%s uses $%s, which is not there", where, name[1])
		}
	}
}

// checkChoice wants that a panel shows what was chosen, or says that it shows all.
func checkChoice(t *testing.T, where string, b board, p panel, q query) {
	t.Helper()
	chosen := slices.ContainsFunc(b.variables, func(v variable) bool { return strings.Contains(q.expr, `"$`+v.name+`"`) })
	if says := strings.HasPrefix(p.about, "Of all policies: "); chosen == says {
		t.Errorf("%s: chooses by a variable: %v, says that it is of all policies: %v: %s", where, chosen, says, q.expr)
	}
}

// checkBands wants lines of a name, and of both ends of its interval.
func checkBands(t *testing.T, where string, p panel) {
	t.Helper()
	if len(p.bands) == 0 {
		return
	}
	legends := map[string]bool{}
	for _, q := range p.queries {
		legends[q.legend] = true
	}
	bounded := 0
	for legend := range maps.Keys(legends) {
		if legends[legend+lowEnd] && legends[legend+highEnd] {
			bounded++
		}
	}
	if bounded != 1 {
		t.Errorf("%s has bands, and legends %v", where, legends)
	}
}

// The first panel of each board, as Grafana reads it.
func TestJSON(t *testing.T) {
	boards, err := All()
	if err != nil {
		t.Fatal(err)
	}
	ids := map[string]bool{}
	for _, b := range boards {
		var read struct {
			UID    string `json:"uid"`
			Panels []struct {
				ID         int                        `json:"id"`
				Type       string                     `json:"type"`
				Datasource struct{ Type, UID string } `json:"datasource"`
				Targets    []struct{ Expr, RefID string }
			} `json:"panels"`
			Templating struct{ List []struct{ Name, Type string } } `json:"templating"`
		}
		if err := json.Unmarshal(b.JSON, &read); err != nil {
			t.Fatal(err)
		}
		if read.UID != "joulevirt-"+b.Name || ids[read.UID] {
			t.Errorf("%s has uid %s", b.Name, read.UID)
		}
		ids[read.UID] = true
		if len(read.Templating.List) < 2 || read.Templating.List[0].Name != "datasource" || read.Templating.List[0].Type != "datasource" {
			t.Errorf("%s has variables %+v", b.Name, read.Templating.List)
		}
		seen := map[int]bool{}
		for _, p := range read.Panels {
			if seen[p.ID] {
				t.Errorf("%s has two panels %d", b.Name, p.ID)
			}
			seen[p.ID] = true
			if p.Type != "row" && (p.Datasource.UID != "${datasource}" || len(p.Targets) == 0) {
				t.Errorf("%s, panel %d: %+v", b.Name, p.ID, p)
			}
		}
	}
}
