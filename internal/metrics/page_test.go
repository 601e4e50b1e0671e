package metrics

import (
	"bytes"
	_ "embed" // the page's text is a file
	"fmt"
	"io"
	"slices"
	"strings"
	"text/template"
)

//go:embed metrics.md.tmpl
var page string

// writePage writes docs/metrics.md.
func writePage(w io.Writer) error {
	t, err := template.New("metrics.md").Funcs(template.FuncMap{
		"agent": func() string { return markdown(Agent()) }, "manager": func() string { return markdown(Manager()) }, "gateway": func() string { return markdown(Gateway()) },
		"atMost": atMost,
	}).Parse(page)
	if err != nil {
		return fmt.Errorf("read the template of docs/metrics.md: %w", err)
	}
	var out bytes.Buffer
	if err := t.Execute(&out, nil); err != nil {
		return fmt.Errorf("fill the template of docs/metrics.md: %w", err)
	}
	_, err = w.Write(out.Bytes())
	return err
}

// atMost is how many series there are of each of per, by both programs.
func atMost(per Per) int {
	sum := 0
	for _, m := range slices.Concat(Agent(), Manager(), Gateway()) {
		if m.Per == per {
			sum += m.Series
		}
	}
	return sum
}

// markdown is a table of metrics.
func markdown(t Table) string {
	var out strings.Builder
	out.WriteString("| name | type | labels | unit | series at most | meaning |\n|---|---|---|---|---|---|\n")
	for _, m := range t {
		meaning := m.Help
		if m.More != "" {
			meaning += " " + m.More
		}
		fmt.Fprintf(&out, "| `%s` | %s | %s | %s | %d a %s | %s |\n", m.Name, m.Type, strings.Join(m.Labels, ", "), m.Unit, m.Series, m.Per, meaning)
	}
	return strings.TrimSuffix(out.String(), "\n")
}
