package main

import (
	"encoding/json"
	"fmt"
	"strings"

	"sigs.k8s.io/yaml"
)

// addValues adds the files that tell of values: values.yaml, its schema, and the table
// of the README.
func (g *generator) addValues(files map[string][]byte) error {
	yamlText, err := g.valuesYAML()
	if err != nil {
		return err
	}
	schema, err := json.MarshalIndent(g.schema(), "", "  ")
	if err != nil {
		return fmt.Errorf("encode the schema of the values: %w", err)
	}
	table, err := g.table()
	if err != nil {
		return err
	}
	files["values.yaml"] = []byte(yamlText)
	files["values.schema.json"] = append(schema, '\n')
	files["README.md"] = []byte(strings.Replace(string(files["README.md"]), "<!-- values -->\n", table, 1))
	return nil
}

// valuesYAML has a comment before each value; values of one part follow each other.
func (g *generator) valuesYAML() (string, error) {
	var out strings.Builder
	out.WriteString(header)
	var open []string
	for _, v := range g.values {
		keys := strings.Split(v.path, ".")
		parents := keys[:len(keys)-1]
		for i, parent := range parents {
			if i < len(open) && open[i] == parent {
				continue
			}
			fmt.Fprintf(&out, "%s%s:\n", strings.Repeat("  ", i), parent)
			open = open[:i]
		}
		open = append([]string(nil), parents...)
		encoded, err := yaml.Marshal(map[string]any{keys[len(keys)-1]: v.standard})
		if err != nil {
			return "", fmt.Errorf("encode the default of %s: %w", v.path, err)
		}
		indent := strings.Repeat("  ", len(parents))
		fmt.Fprintf(&out, "%s# %s\n", indent, v.about)
		for line := range strings.Lines(string(encoded)) {
			out.WriteString(indent + line)
		}
	}
	return out.String(), nil
}

// schema refuses values that are unknown, so that a slip of the pen is not silent.
func (g *generator) schema() map[string]any {
	root := closed()
	root["$schema"] = "http://json-schema.org/draft-07/schema#"
	// Helm passes this to charts that others depend on.
	child(root, "properties")["global"] = map[string]any{"type": "object"}
	for _, v := range g.values {
		here := root
		keys := strings.Split(v.path, ".")
		for _, parent := range keys[:len(keys)-1] {
			properties := child(here, "properties")
			if _, known := properties[parent]; !known {
				properties[parent] = closed()
			}
			here = child(properties, parent)
		}
		of := map[string]any{"description": v.about}
		for key, value := range v.schema {
			of[key] = value
		}
		child(here, "properties")[keys[len(keys)-1]] = of
	}
	return root
}

func closed() map[string]any {
	return map[string]any{"type": "object", "additionalProperties": false, "properties": map[string]any{}}
}

func (g *generator) table() (string, error) {
	var out strings.Builder
	out.WriteString("| value | default | what it is |\n|---|---|---|\n")
	for _, v := range g.values {
		standard, err := json.Marshal(v.standard)
		if err != nil {
			return "", fmt.Errorf("encode the default of %s: %w", v.path, err)
		}
		fmt.Fprintf(&out, "| `%s` | `%s` | %s |\n", v.path, standard, v.about)
	}
	return out.String(), nil
}
