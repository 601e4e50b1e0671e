package placement

import (
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// KubeVirt takes a migration's target node if the schema of its kind has the field, in the version that
// the manager writes.
func TestSupported(t *testing.T) {
	version := func(name, field string) map[string]any {
		spec := map[string]any{"properties": map[string]any{field: map[string]any{"type": "object"}}}
		return map[string]any{"name": name, "schema": map[string]any{"openAPIV3Schema": map[string]any{"properties": map[string]any{"spec": spec}}}}
	}
	for name, test := range map[string]struct {
		versions  []any
		supported bool
	}{
		"1.6":            {[]any{version("v1", "addedNodeSelector")}, true},
		"1.5":            {[]any{version("v1", "vmiName")}, false},
		"in another one": {[]any{version("v1", "vmiName"), version("v2", "addedNodeSelector")}, false},
	} {
		crd := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
			"metadata": map[string]any{"name": "virtualmachineinstancemigrations.kubevirt.io"}, "spec": map[string]any{"versions": test.versions},
		}}
		r := &Reconciler{Live: fake.NewClientBuilder().WithObjects(crd).Build()}
		err := r.checkSupported(t.Context())
		if (err == nil) != test.supported || err != nil && !errors.Is(err, errUnsupported) {
			t.Errorf("KubeVirt %s: %v", name, err)
		}
	}
	if err := (&Reconciler{Live: fake.NewFakeClient()}).checkSupported(t.Context()); err == nil || errors.Is(err, errUnsupported) {
		t.Errorf("a kind that cannot be read: %v", err)
	}
}
