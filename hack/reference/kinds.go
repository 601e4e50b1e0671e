package main

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// kind is one of the API's.
type kind struct {
	name string
	crd  *apiextensionsv1.CustomResourceDefinition
	// fields of spec and status, in the order of their paths.
	fields []field
	// conditions that statuses have, by the comment on the field.
	conditions []string
}

// field is one of an object's, at any depth.
type field struct {
	path   string
	schema *apiextensionsv1.JSONSchemaProps
	// required in the object that has it.
	required bool
	// about is the comment on the field, or else on its type.
	about string
}

func readKinds(root fs.FS) ([]kind, error) {
	names, err := fs.Glob(root, "config/crd/bases/*.yaml")
	if err != nil || len(names) == 0 {
		return nil, fmt.Errorf("config/crd/bases: no kind found (%w): run this in the root of the repository", err)
	}
	var kinds []kind
	for _, name := range names {
		text, err := fs.ReadFile(root, name)
		if err != nil {
			return nil, err
		}
		k := kind{crd: &apiextensionsv1.CustomResourceDefinition{}}
		if err := yaml.UnmarshalStrict(text, k.crd); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		k.name = k.crd.Spec.Names.Kind
		top := k.crd.Spec.Versions[0].Schema.OpenAPIV3Schema
		for _, part := range []string{"spec", "status"} {
			if schema, ok := top.Properties[part]; ok {
				k.walk(part, &schema)
			}
		}
		kinds = append(kinds, k)
	}
	return kinds, nil
}

// walk adds the fields below a path.
func (k *kind) walk(path string, schema *apiextensionsv1.JSONSchemaProps) {
	names := make([]string, 0, len(schema.Properties))
	for name := range schema.Properties {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		below := schema.Properties[name]
		f := field{path: path + "." + name, schema: &below, required: slices.Contains(schema.Required, name), about: below.Description}
		k.fields = append(k.fields, f)
		switch inner := items(&below); {
		case isSelector(&below) || name == "conditions":
			if name == "conditions" {
				k.conditions = append(k.conditions, wordsOf(below.Description)...)
			}
		case inner != nil && len(inner.Properties) > 0:
			k.walk(f.path+"[]", inner)
		case len(below.Properties) > 0:
			k.walk(f.path, &below)
		}
	}
}

func items(schema *apiextensionsv1.JSONSchemaProps) *apiextensionsv1.JSONSchemaProps {
	if schema.Items == nil {
		return nil
	}
	return schema.Items.Schema
}

// isSelector is true of label selectors, whose fields are Kubernetes' own.
func isSelector(schema *apiextensionsv1.JSONSchemaProps) bool {
	_, labels := schema.Properties["matchLabels"]
	_, expressions := schema.Properties["matchExpressions"]
	return labels && expressions
}

// wordsOf are the CamelCase words of a text.
func wordsOf(text string) (words []string) {
	for word := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == ' ' || r == ',' || r == '.' || r == ';' || r == ':' || r == '\n' }) {
		if strings.ToUpper(word[:1]) == word[:1] && strings.ToUpper(word) != word {
			words = append(words, word)
		}
	}
	return words
}

// page tells of a kind and its fields.
func (k *kind) page(words *words) string {
	names, version := k.crd.Spec.Names, &k.crd.Spec.Versions[0]
	var page strings.Builder
	page.WriteString(heading(k.name, cell(version.Schema.OpenAPIV3Schema.Description)))
	fmt.Fprintf(&page, "`%s/%s`, short name `%s`, %s.\n\n", k.crd.Spec.Group, version.Name,
		strings.Join(names.ShortNames, "`, `"), map[bool]string{true: "one for the whole cluster", false: "in a namespace"}[k.crd.Spec.Scope == apiextensionsv1.ClusterScoped])
	page.WriteString("`[]` after a name is each item of a list. Defaults are those that the API server stores; *required* is what it refuses to be without. [Conditions](conditions.md) and [reasons](reasons.md) have pages of their own.\n")
	for _, part := range []string{"spec", "status"} {
		rows := ""
		for i := range k.fields {
			if f := &k.fields[i]; strings.HasPrefix(f.path, part+".") {
				rows += row(code(f.path), typeOf(f.schema), f.given(), f.meaning(words))
			}
		}
		if rows != "" {
			page.WriteString("\n## " + part + "\n\n" + table("field", "type", "default", "meaning") + rows)
		}
	}
	page.WriteString("\n## kubectl get\n\n" + table("column", "field", "shown"))
	for _, column := range version.AdditionalPrinterColumns {
		shown := "always"
		if column.Priority > 0 {
			shown = "with `-o wide`"
		}
		page.WriteString(row(column.Name, code(cell(column.JSONPath)), shown))
	}
	return page.String()
}

// given is what a field has when nobody says anything.
func (f *field) given() string {
	switch {
	case f.schema.Default != nil:
		return code(cell(string(f.schema.Default.Raw)))
	case f.required && strings.HasPrefix(f.path, "spec."):
		return "*required*"
	}
	return ""
}

// meaning is the comment on a field, the words that it may have, and what is refused.
func (f *field) meaning(words *words) string {
	parts := []string{cell(f.about)}
	schema := f.schema
	if inner := items(schema); inner != nil && len(inner.Properties) == 0 {
		schema = inner
	}
	parts = append(parts, words.enum(schema.Enum)...)
	for _, rule := range f.schema.XValidations {
		parts = append(parts, "*Rule:* "+sentence(rule.Message))
	}
	if inner := items(f.schema); inner != nil {
		for _, rule := range inner.XValidations {
			parts = append(parts, "*Rule of each:* "+sentence(rule.Message))
		}
	}
	if f.schema.MaxItems != nil {
		parts = append(parts, fmt.Sprintf("At most %d.", *f.schema.MaxItems))
	}
	if f.schema.Minimum != nil && f.schema.Maximum != nil {
		parts = append(parts, fmt.Sprintf("From %g to %g.", *f.schema.Minimum, *f.schema.Maximum))
	}
	return strings.Join(parts, "<br>")
}

func sentence(text string) string {
	return strings.TrimSuffix(cell(text), ".") + "."
}

func typeOf(schema *apiextensionsv1.JSONSchemaProps) string {
	switch {
	case isSelector(schema):
		return "label selector"
	case schema.XIntOrString:
		return "quantity"
	case schema.Type == "array":
		return "list of " + typeOf(items(schema))
	case schema.AdditionalProperties != nil:
		return "map"
	case schema.Format == "date-time":
		return "time"
	case schema.Format == "byte":
		return "bytes"
	case len(schema.Enum) > 0:
		return "word"
	}
	return schema.Type
}

// unquoted is a JSON value as people write it.
func unquoted(value apiextensionsv1.JSON) string {
	var text string
	if json.Unmarshal(value.Raw, &text) == nil {
		return text
	}
	return string(value.Raw)
}
