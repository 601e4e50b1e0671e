// Package dashboards asks what the committed dashboards and alerts ask, of a real Prometheus
// server that scrapes the product at work on a simulated fleet.
package dashboards

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// Board is a dashboard, as far as its queries need it.
type Board struct {
	Name      string
	Variables []Variable
	Panels    []Panel
}

// Variable has its values from a label of series.
type Variable struct {
	Name, Series, Label string
	// Multi is true where all values may be chosen at once.
	Multi bool
}

// Panel is its title and what it asks.
type Panel struct {
	Title   string
	Queries []Query
}

// Query is asked for now, when Instant, else for a range of time.
type Query struct {
	Expr    string
	Instant bool
}

// ReadBoards reads all dashboards of a folder.
func ReadBoards(folder string) ([]Board, error) {
	paths, err := filepath.Glob(filepath.Join(folder, "*.json"))
	if err != nil {
		return nil, err
	}
	var boards []Board
	for _, path := range paths {
		b, err := readBoard(path)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		boards = append(boards, b)
	}
	return boards, nil
}

func readBoard(path string) (Board, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return Board{}, err
	}
	var read struct {
		Panels []struct {
			Title   string
			Type    string
			Targets []Query
		}
		Templating struct {
			List []struct {
				Name, Type string
				Multi      bool
				// Query is text of a data source's type, else an object.
				Query json.RawMessage
			}
		}
	}
	if err := json.Unmarshal(text, &read); err != nil {
		return Board{}, err
	}
	b := Board{Name: strings.TrimSuffix(filepath.Base(path), ".json")}
	for _, v := range read.Templating.List {
		if v.Type != "query" {
			continue
		}
		var query struct{ Query string }
		if err := json.Unmarshal(v.Query, &query); err != nil {
			return Board{}, fmt.Errorf("variable %s: %w", v.Name, err)
		}
		found := regexp.MustCompile(`^label_values\((.+), (\w+)\)$`).FindStringSubmatch(query.Query)
		if found == nil {
			return Board{}, fmt.Errorf("variable %s asks %q, want label_values(SERIES, LABEL)", v.Name, query.Query)
		}
		b.Variables = append(b.Variables, Variable{Name: v.Name, Series: found[1], Label: found[2], Multi: v.Multi})
	}
	for _, p := range read.Panels {
		if p.Type == "row" {
			continue
		}
		b.Panels = append(b.Panels, Panel{Title: p.Title, Queries: p.Targets})
	}
	return b, nil
}

// Fill puts values in for variables, as Grafana does.
func Fill(query string, values map[string]string) (string, error) {
	missing := ""
	filled := regexp.MustCompile(`\$\{?(\w+)\}?`).ReplaceAllStringFunc(query, func(name string) string {
		value, found := values[strings.Trim(name, "${}")]
		if !found {
			missing = name
		}
		return value
	})
	if missing != "" {
		return "", fmt.Errorf("%s has no value in %s", missing, query)
	}
	return filled, nil
}
