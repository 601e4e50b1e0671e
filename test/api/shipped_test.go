package api

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"

	"github.com/joulevirt/joulevirt/policies"
	"github.com/joulevirt/joulevirt/test/cluster"
)

const samplesFolder = "../../config/samples"

// testShipped applies what users are given to apply, as they would.
func testShipped(t *testing.T, c *cluster.Cluster) {
	folders := []string{"../../config/default/namespace.yaml", samplesFolder, samplesFolder + "/energy", "../../policies", "../../policies/profiles"}
	for _, folder := range folders {
		t.Run(folder, func(t *testing.T) {
			if err := c.ApplyManifests(t.Context(), folder); err != nil {
				t.Error(err)
			}
		})
	}
	t.Run("every embedded preset by itself", func(t *testing.T) {
		names, err := fs.Glob(policies.Files, "*.yaml")
		if err != nil || len(names) == 0 {
			t.Fatalf("presets: %v, %v", names, err)
		}
		for _, name := range names {
			if err := c.ApplyManifests(t.Context(), "../../policies/"+name); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// TestSamplesAndPresetsSpeakForEveryKind keeps a sample of each kind that users
// write, and presets that are EnergyPolicies only.
func TestSamplesAndPresetsSpeakForEveryKind(t *testing.T) {
	found := map[string]int{}
	for _, object := range readObjects(t, os.DirFS(samplesFolder)) {
		found[object.GetKind()]++
	}
	for _, kind := range []string{"VMNetworkProfile", "EnergyPolicy", "HybridWorkload"} {
		if found[kind] == 0 {
			t.Errorf("config/samples has no %s", kind)
		}
	}
	for _, object := range readObjects(t, policies.Files) {
		if levers, _, _ := unstructured.NestedStringSlice(object.Object, "spec", "levers"); slices.Contains(levers, "Offload") {
			t.Errorf("preset %s has lever Offload, which needs what is installed with it alone", object.GetName())
		}
		if object.GetKind() != "EnergyPolicy" {
			t.Errorf("preset %s is a %s, want an EnergyPolicy", object.GetName(), object.GetKind())
		}
		if object.GetAnnotations()[policies.DescriptionAnnotation] == "" {
			t.Errorf("preset %s does not say in annotation %s what it does", object.GetName(), policies.DescriptionAnnotation)
		}
	}
}

// readObjects returns the objects of all YAML files but kustomizations.
func readObjects(t *testing.T, folder fs.FS) []*unstructured.Unstructured {
	t.Helper()
	names, err := fs.Glob(folder, "*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var all []*unstructured.Unstructured
	for _, name := range names {
		if name == "kustomization.yaml" {
			continue
		}
		text, err := fs.ReadFile(folder, name)
		if err != nil {
			t.Fatal(err)
		}
		decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
		for {
			object := &unstructured.Unstructured{}
			err := decoder.Decode(object)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			all = append(all, object)
		}
	}
	return all
}
