package api

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/test/cluster"
)

// table is how one kind's rules are tested.
type table struct {
	namespaced bool
	// minimal is the spec that the rows change: what must be set, and no more.
	minimal string
	rows    []row
}

// row tests one CEL rule. Specs are YAML that is merged into the minimal one, as a
// JSON merge patch: null removes a field.
type row struct {
	// field is the path as the API server prints it, with [] for any index; rule is the message.
	field, rule string
	accepts     []string
	refuses     []string
}

func tables() map[string]table {
	return map[string]table{
		"VMNetworkProfile": vmNetworkProfiles(),
		"EnergyPolicy":     energyPolicies(),
		"HybridWorkload":   hybridWorkloads(),
		"NodePlan":         nodePlans(),
		"NodeReport":       {minimal: "{}"},
	}
}

func testRules(t *testing.T, c *cluster.Cluster) {
	for kind, table := range tables() {
		for _, row := range table.rows {
			name := row.rule
			if cut, _, found := strings.Cut(name, ":"); found {
				name = cut
			}
			t.Run(kind+"/"+row.field+"/"+name, func(t *testing.T) {
				if len(row.accepts) == 0 || len(row.refuses) == 0 {
					t.Fatal("a rule needs both: something accepted and something refused")
				}
				for _, patch := range row.accepts {
					if err := create(t, c, kind, table, patch); err != nil {
						t.Errorf("%s: refused, want it accepted: %v", patch, err)
					}
				}
				for _, patch := range row.refuses {
					checkRefusal(t, row, patch, create(t, c, kind, table, patch))
				}
			})
		}
	}
}

func checkRefusal(t *testing.T, r row, patch string, err error) {
	t.Helper()
	if err == nil {
		t.Errorf("%s: accepted, want it refused", patch)
		return
	}
	if !apierrors.IsInvalid(err) {
		t.Errorf("%s: error %v, want the reason Invalid", patch, err)
	}
	for _, part := range []string{at(r.field), r.rule} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%s: the refusal does not say %q: %v", patch, part, err)
		}
	}
}

// create asks the API server to create an object of the minimal spec with a
// patch, without keeping it.
func create(t *testing.T, c *cluster.Cluster, kind string, table table, patch string) error {
	t.Helper()
	object := newObject(kind, table.namespaced)
	object.Object["spec"] = merge(t, table.minimal, patch)
	return c.Client().Create(t.Context(), object, client.DryRunAll)
}

func newObject(kind string, namespaced bool) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{}}
	object.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind))
	object.SetName("example")
	if namespaced {
		object.SetNamespace(namespace)
	}
	return object
}

// merge applies a YAML merge patch to a YAML document.
func merge(t *testing.T, document, patch string) map[string]any {
	t.Helper()
	base, err := yaml.YAMLToJSON([]byte(document))
	if err != nil {
		t.Fatalf("%s: %v", document, err)
	}
	change, err := yaml.YAMLToJSON([]byte(patch))
	if err != nil {
		t.Fatalf("%s: %v", patch, err)
	}
	merged, err := jsonpatch.MergePatch(base, change)
	if err != nil {
		t.Fatalf("%s: %v", patch, err)
	}
	var out map[string]any
	if err := json.Unmarshal(merged, &out); err != nil {
		t.Fatal(err)
	}
	return out
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

// TestEveryRuleIsTested compares the CEL rules of the schemas with the tables of this package,
// and wants messages to name what is wrong. Keywords such as enum and maxLength are the API
// server's.
func TestEveryRuleIsTested(t *testing.T) {
	tables := tables()
	for kind, schema := range loadSchemas(t) {
		type rule struct{ field, message string }
		tested := map[rule]bool{}
		for _, row := range tables[kind].rows {
			tested[rule{row.field, row.rule}] = true
		}
		walk("", schema, func(path string, s apiextensionsv1.JSONSchemaProps) {
			for _, r := range s.XValidations {
				if key := (rule{path, r.Message}); !tested[key] {
					t.Errorf("%s %s: no row tests %q: add one with what it accepts and refuses", kind, path, r.Message)
				} else {
					delete(tested, key)
				}
				words := append(slices.Collect(maps.Keys(s.Properties)), strings.TrimSuffix(path[strings.LastIndex(path, ".")+1:], "[]"))
				if !slices.ContainsFunc(words, func(w string) bool { return strings.Contains(r.Message, w) }) {
					t.Errorf("%s %s: message %q names none of %v", kind, path, r.Message, words)
				}
			}
		})
		for stale := range tested {
			t.Errorf("%s: a row tests %q, which is not in the schema: remove it or mend its field and rule", kind, stale)
		}
	}
}

// at names the first element wherever a path goes through a list.
func at(path string) string { return strings.ReplaceAll(path, "[]", "[0]") }
