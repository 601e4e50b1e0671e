package install

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
)

// TestPolicyOfKubectlStays installs the chart, with its preset, where kinds and a policy of
// the preset's name came by kubectl.
func TestPolicyOfKubectlStays(t *testing.T) {
	w := newWorld(t)
	h := newHelm(t, w.Kubeconfig())
	for _, args := range [][]string{
		{"--server-side", "--kustomize", root + "/config/crd"},
		{"--server-side", "--filename", root + "/policies/observe.yaml"},
	} {
		_, err := w.RunKubectl(t.Context(), append([]string{"apply"}, args...)...)
		w.check(err)
	}
	edited := w.editPreset()
	h.must(t, append(installPage(t, "install"), "--set", "crds.enabled=false")...)
	w.presetIs(edited)
}

// TestUpgradeFromOlderChart upgrades a release of a chart whose kinds have a field less, and
// rolls it back: the field is kept while the kind knows it, and objects all the while.
func TestUpgradeFromOlderChart(t *testing.T) {
	w := newWorld(t)
	h := newHelm(t, w.Kubeconfig())
	install := installPage(t, "install")
	install[slices.Index(install, chart)] = olderChart(t)
	h.must(t, install...)
	made := w.editPreset()
	w.eventually("the older kind drops the field", w.policyKeepsField(false))

	h.must(t, installPage(t, "upgrade")...)
	w.eventually("the newer kind has the field", w.policyKeepsField(true))
	w.presetIs(made)

	h.must(t, installPage(t, "rollback")...)
	w.eventually("the field is gone with the newer kind", w.policyKeepsField(false))
	w.presetIs(made)
}

// policyKeepsField writes the field that the older chart does not know, and reads it back.
func (w *world) policyKeepsField(want bool) func(context.Context) error {
	return func(ctx context.Context) error {
		policy := &v1alpha1.EnergyPolicy{}
		policy.Name = "observe"
		patch := []byte(`{"spec":{"recommendationValidity":"2h"}}`)
		if err := w.Client().Patch(ctx, policy, client.RawPatch(types.MergePatchType, patch)); err != nil {
			return err
		}
		if kept := policy.Spec.RecommendationValidity != nil; kept != want {
			return fmt.Errorf("its spec.recommendationValidity is kept: %t, want %t", kept, want)
		}
		return nil
	}
}

// olderChart is a copy of the chart, of a version before it, without
// spec.recommendationValidity of EnergyPolicies.
func olderChart(t *testing.T) string {
	t.Helper()
	older := t.TempDir()
	if err := os.CopyFS(older, os.DirFS(filepath.Join(root, chart))); err != nil {
		t.Fatal(err)
	}
	without(t, filepath.Join(older, "Chart.yaml"), `(?m)^version: .*$`, "version: 0.0.1")
	// The field's own lines are indented deeper than it is.
	without(t, filepath.Join(older, "templates/crds.yaml"), `(?m)^( {14})recommendationValidity:\n(?: {15}.*\n)+`, "")
	return older
}

func without(t *testing.T, file, pattern, instead string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	expression := regexp.MustCompile(pattern)
	if found := expression.FindAll(text, -1); len(found) != 1 {
		t.Fatalf("%s has %d places that match %s, want 1", file, len(found), pattern)
	}
	if err := os.WriteFile(file, expression.ReplaceAll(text, []byte(instead)), 0o600); err != nil {
		t.Fatal(err)
	}
}
