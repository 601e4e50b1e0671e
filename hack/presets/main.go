// Command presets writes the tables of docs/presets from the EnergyPolicies in policies/,
// so that the pages say what the policies do:
//
//	go run ./hack/presets [--out=docs/presets]
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/policies"
)

// The table of a page stands between these lines.
const (
	begin = "<!-- from the policy: make chart -->\n"
	end   = "<!-- end -->\n"
)

func main() {
	from := flag.String("from", "docs/presets", "Folder of the pages.")
	out := flag.String("out", "docs/presets", "Folder that they are written to.")
	flag.Parse()
	if err := run(*from, *out); err != nil {
		fmt.Fprintln(os.Stderr, "presets:", err)
		os.Exit(1)
	}
}

func run(from, out string) error {
	pages, err := filepath.Glob(filepath.Join(from, "*.md"))
	if err != nil || len(pages) == 0 {
		return fmt.Errorf("no pages in %s: %w", from, err)
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			return err
		}
		name := strings.TrimSuffix(filepath.Base(page), ".md")
		written, err := withTable(name, string(text))
		if err != nil {
			return fmt.Errorf("%s: %w", page, err)
		}
		if err := os.WriteFile(filepath.Join(out, filepath.Base(page)), []byte(written), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// withTable returns the page of a preset with the table that its policy makes.
func withTable(name, page string) (string, error) {
	text, err := policies.Files.ReadFile(name + ".yaml")
	if err != nil {
		return "", fmt.Errorf("its preset: %w", err)
	}
	var policy v1alpha1.EnergyPolicy
	if err := yaml.UnmarshalStrict(text, &policy); err != nil {
		return "", fmt.Errorf("its preset: %w", err)
	}
	before, rest, found := strings.Cut(page, begin)
	_, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		return "", fmt.Errorf("there are no lines %q and %q for the table", strings.TrimSpace(begin), strings.TrimSpace(end))
	}
	return before + begin + table(&policy) + end + after, nil
}
