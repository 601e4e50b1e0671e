package rbac

import (
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/test/cluster"
)

// testPlans: only the manager may change what agents do, not even an administrator.
func testPlans(t *testing.T, c *cluster.Cluster) {
	const other = "node-c"
	admin := joulevirtClient(t, c.RESTConfig())
	account, _, err := c.ServiceAccountConfig(t.Context(), namespace, manager, "")
	if err != nil {
		t.Fatal(err)
	}
	leader := joulevirtClient(t, account)
	words := []string{"only the manager", `NodePlan "`, "EnergyPolicy", "pause"}
	moves := &v1alpha1.PlacementPlan{
		ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: v1alpha1.PlacementPlanSpec{Policy: "p", Mode: v1alpha1.ModeEnforce},
	}
	const apply = `{"spec":{"apply":true}}`
	err = c.WaitFor(t.Context(), policyDelay, "admission policy refuses the administrator another plan", func(ctx context.Context) error {
		return isForbidden(mergePatch(ctx, admin, plan(nodeA), apply, client.DryRunAll))
	})
	if err != nil {
		t.Fatal(err)
	}
	wantForbidden(t, mergePatch(t.Context(), admin, plan(nodeA), apply), append(words, nodeA)...)
	wantForbidden(t, mergePatch(t.Context(), admin, plan(nodeA), `{"metadata":{"labels":{"a":"b"}},"spec":{"apply":true}}`), append(words, nodeA)...)
	byHand := &v1alpha1.NodePlan{
		ObjectMeta: metav1.ObjectMeta{Name: other},
		Spec:       v1alpha1.NodePlanSpec{Policy: "p", Mode: v1alpha1.ModeEnforce, Revision: "r1", Apply: true, Reason: v1alpha1.ReasonPlanned},
	}
	wantForbidden(t, admin.Create(t.Context(), byHand.DeepCopy()), append(words, other)...)
	wantForbidden(t, admin.Create(t.Context(), moves.DeepCopy()), "only the manager", `PlacementPlan "p"`)
	changed := plan(nodeA)
	if err := leader.Get(t.Context(), client.ObjectKeyFromObject(changed), changed); err != nil {
		t.Fatal(err)
	}
	changed.Spec.Message = "in words"
	for what, err := range map[string]error{
		"the manager changes a plan":             leader.Update(t.Context(), changed),
		"the administrator labels a plan":        mergePatch(t.Context(), admin, plan(nodeA), `{"metadata":{"labels":{"a":"b"}}}`),
		"the administrator repeats what it says": mergePatch(t.Context(), admin, plan(nodeA), `{"spec":{"apply":false}}`),
		"the manager makes a plan":               leader.Create(t.Context(), byHand),
		"the manager makes a plan of moves":      leader.Create(t.Context(), moves),
	} {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := admin.Delete(t.Context(), plan(other)); err != nil {
		t.Errorf("the administrator deletes a plan: %v", err)
	}
}
