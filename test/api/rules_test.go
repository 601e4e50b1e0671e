package api

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
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
	// full is a valid spec with every field that can have required ones below.
	full string
	rows []row
}

// row tests one rule. Specs are YAML that is merged into the minimal one, as a
// JSON merge patch: null removes a field.
type row struct {
	// field and rule say which constraint is tested, see constraint.
	field, rule string
	accepts     []string
	refuses     []string
}

func tables() map[string]table {
	return map[string]table{
		"VMNetworkProfile": vmNetworkProfiles(),
		"EnergyPolicy":     energyPolicies(),
		"NodePlan":         nodePlans(),
		"NodeReport":       {minimal: "{}", full: "{}"},
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
	fix, isKeyword := phrases()[r.rule]
	if !isKeyword {
		fix = r.rule
	}
	for _, part := range []string{at(r.field), fix} {
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

// testRequired removes each required field from a full object.
func testRequired(t *testing.T, c *cluster.Cluster) {
	tables := tables()
	for kind, schema := range loadSchemas(t) {
		for _, field := range requiredFields(schema) {
			t.Run(kind+"/"+field, func(t *testing.T) {
				object := newObject(kind, tables[kind].namespaced)
				object.Object["spec"] = merge(t, tables[kind].full, "{}")
				found, err := remove(object.Object, field)
				if err != nil || !found {
					t.Fatalf("the full %s has no %s: add it there (%v)", kind, field, err)
				}
				err = c.Client().Create(t.Context(), object, client.DryRunAll)
				if want := at(field) + ": Required value"; err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("without %s: %v, want %q", field, err, want)
				}
			})
		}
	}
}

// repeated is a YAML list of n elements that format makes from their index.
func repeated(n int, format string) string {
	elements := make([]string, n)
	for i := range elements {
		elements[i] = fmt.Sprintf(format, i)
	}
	return "[" + strings.Join(elements, ", ") + "]"
}
