package api

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// constraint is one rule of a schema: a keyword such as enum, or the message of
// a CEL rule.
type constraint struct {
	// field is the path as the API server prints it, with [] for any index.
	field string
	rule  string
}

func (c constraint) String() string { return c.field + ": " + c.rule }

// phrases are what the API server says when the rule of a keyword is broken.
func phrases() map[string]string {
	return map[string]string{
		"enum":      "supported values: ",
		"pattern":   "should match",
		"minLength": "should be at least",
		"maxLength": "may not be more than",
		"minimum":   "should be greater than or equal to",
		"maximum":   "should be less than or equal to",
		"minItems":  "should have at least",
		"maxItems":  "must have at most",
		"unique":    "Duplicate value",
	}
}

// loadSchemas returns the schema of each kind.
func loadSchemas(t *testing.T) map[string]apiextensionsv1.JSONSchemaProps {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(crdFolder, "bases", "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("find CRDs in %s: %v, %v", crdFolder, files, err)
	}
	schemas := map[string]apiextensionsv1.JSONSchemaProps{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var crd apiextensionsv1.CustomResourceDefinition
		if err := yaml.UnmarshalStrict(text, &crd); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if n := len(crd.Spec.Versions); n != 1 {
			t.Fatalf("%s: %d versions, want 1: say here which one is tested", file, n)
		}
		schemas[crd.Spec.Names.Kind] = *crd.Spec.Versions[0].Schema.OpenAPIV3Schema
	}
	return schemas
}

// walk calls visit for a schema and all below it.
func walk(path string, schema apiextensionsv1.JSONSchemaProps, visit func(path string, schema apiextensionsv1.JSONSchemaProps)) {
	visit(path, schema)
	for name, property := range schema.Properties {
		walk(strings.TrimPrefix(path+"."+name, "."), property, visit)
	}
	if schema.Items != nil && schema.Items.Schema != nil {
		walk(path+"[]", *schema.Items.Schema, visit)
	}
}

// constraints lists what a user can break: all CEL rules, and every keyword of
// the spec. The status is written by programs, whose tests cover its keywords.
func constraints(schema apiextensionsv1.JSONSchemaProps) []constraint {
	var all []constraint
	walk("", schema, func(path string, s apiextensionsv1.JSONSchemaProps) {
		for _, rule := range s.XValidations {
			all = append(all, constraint{path, rule.Message})
		}
		if path != "spec" && !strings.HasPrefix(path, "spec.") {
			return
		}
		for keyword, present := range map[string]bool{
			"enum":      len(s.Enum) > 0,
			"pattern":   s.Pattern != "",
			"minLength": s.MinLength != nil,
			"maxLength": s.MaxLength != nil,
			"minimum":   s.Minimum != nil,
			"maximum":   s.Maximum != nil,
			"minItems":  s.MinItems != nil,
			"maxItems":  s.MaxItems != nil,
			"unique":    s.XListType != nil && *s.XListType != "atomic",
		} {
			if present {
				all = append(all, constraint{path, keyword})
			}
		}
	})
	return all
}

// requiredFields lists the paths that must be set, with [] for any index.
func requiredFields(schema apiextensionsv1.JSONSchemaProps) []string {
	var all []string
	walk("", schema, func(path string, s apiextensionsv1.JSONSchemaProps) {
		if path != "spec" && !strings.HasPrefix(path, "spec.") {
			return
		}
		for _, name := range s.Required {
			all = append(all, path+"."+name)
		}
	})
	slices.Sort(all)
	return all
}

// TestEveryRuleIsTested compares the schemas with the tables of this package.
func TestEveryRuleIsTested(t *testing.T) {
	tables := tables()
	for kind, schema := range loadSchemas(t) {
		tested := map[constraint]bool{}
		for _, row := range tables[kind].rows {
			tested[constraint{row.field, row.rule}] = true
		}
		for _, want := range constraints(schema) {
			if !tested[want] {
				t.Errorf("%s: no row tests %q: add one with what it accepts and refuses", kind, want)
			}
			delete(tested, want)
		}
		for stale := range tested {
			t.Errorf("%s: a row tests %q, which is not in the schema: remove it or mend its field and rule", kind, stale)
		}
	}
}

// TestCELMessagesNameTheirField holds messages to naming what is wrong.
func TestCELMessagesNameTheirField(t *testing.T) {
	for kind, schema := range loadSchemas(t) {
		walk("", schema, func(path string, s apiextensionsv1.JSONSchemaProps) {
			for _, rule := range s.XValidations {
				name := path[strings.LastIndex(path, ".")+1:]
				words := append([]string{strings.TrimSuffix(name, "[]")}, childNames(s)...)
				if !slices.ContainsFunc(words, func(w string) bool { return strings.Contains(rule.Message, w) }) {
					t.Errorf("%s %s: message %q names none of %v", kind, path, rule.Message, words)
				}
			}
		})
	}
}

func childNames(s apiextensionsv1.JSONSchemaProps) []string {
	var names []string
	for name := range s.Properties {
		names = append(names, name)
	}
	return names
}

// at names the first element wherever a path goes through a list.
func at(path string) string { return strings.ReplaceAll(path, "[]", "[0]") }

// remove deletes the field that path names from an object; false when it was
// not there.
func remove(object map[string]any, path string) (bool, error) {
	var here any = object
	names := strings.Split(path, ".")
	for _, name := range names[:len(names)-1] {
		fields, ok := here.(map[string]any)
		if !ok {
			return false, fmt.Errorf("%s: %s is below a %T", path, name, here)
		}
		here = fields[strings.TrimSuffix(name, "[]")]
		if strings.HasSuffix(name, "[]") {
			list, ok := here.([]any)
			if !ok || len(list) == 0 {
				return false, nil
			}
			here = list[0]
		}
	}
	fields, ok := here.(map[string]any)
	if !ok {
		return false, nil
	}
	last := names[len(names)-1]
	_, found := fields[last]
	delete(fields, last)
	return found, nil
}
