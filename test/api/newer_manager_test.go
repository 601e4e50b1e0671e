package api

import (
	"context"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/test/cluster"
)

// A manager that is newer than the kinds cannot write a plan with what they do not know,
// and the plan that is there stays as it is: nothing of a plan is lost on its way.
func testNewerManager(t *testing.T, c *cluster.Cluster) {
	const entry = `{namespace: shop, name: web, podUID: a, `
	plan := func(revision, vms string) error {
		object := newObject("NodePlan", false)
		object.Object["spec"] = merge(t, nodePlans().minimal, `{revision: `+revision+`, vms: [`+vms+`]}`)
		return c.Client().Apply(t.Context(), client.ApplyConfigurationFromUnstructured(object), client.FieldOwner("manager"), client.ForceOwnership)
	}
	if err := plan("known", entry+`slice: {microseconds: 3000}}`); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Client().Delete(context.WithoutCancel(t.Context()), newObject("NodePlan", false)); err != nil {
			t.Error(err)
		}
	})
	for name, tc := range map[string]struct{ vm, message string }{
		"a field":      {entry + `levitation: {height: 1}}`, "levitation"},
		"a lever":      {entry + `reasons: [{lever: Levitation, reason: Pinned}]}`, "Unsupported value"},
		"another word": {entry + `pool: Ether}`, "Unsupported value"},
	} {
		if err := plan("newer", tc.vm); err == nil || !strings.Contains(err.Error(), tc.message) {
			t.Errorf("%s: %v, want an error with %q", name, err, tc.message)
		}
	}
	stored := newObject("NodePlan", false)
	if err := c.Client().Get(t.Context(), client.ObjectKeyFromObject(stored), stored); err != nil {
		t.Fatal(err)
	}
	if spec, _ := stored.Object["spec"].(map[string]any); spec["revision"] != "known" {
		t.Errorf("the plan became %v", spec)
	}
}
