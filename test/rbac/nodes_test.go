package rbac

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/test/cluster"
)

// testNodes shows what the manager may change of nodes once it may power hosts, and that it may nothing before.
func testNodes(t *testing.T, c *cluster.Cluster) {
	config, _, err := c.ServiceAccountConfig(t.Context(), namespace, manager, "")
	if err != nil {
		t.Fatal(err)
	}
	account, admin := joulevirtClient(t, config), joulevirtClient(t, c.RESTConfig())
	patch := func(ctx context.Context, merge string) error {
		node := &corev1.Node{}
		if err := admin.Get(ctx, types.NamespacedName{Name: nodeB}, node); err != nil {
			return err
		}
		return account.Patch(ctx, node, client.RawPatch(types.MergePatchType, []byte(merge)), client.DryRunAll)
	}
	const cordon = `{"metadata":{"labels":{"remediation.medik8s.io/exclude-from-remediation":"true"},"annotations":{"joulevirt.io/host-power":"{}","joulevirt.io/host-failed":"x",
		"joulevirt.io/host-boot":"{}","cluster-autoscaler.kubernetes.io/scale-down-disabled":"true"}},"spec":{"unschedulable":true}}`
	wantForbidden(t, patch(t.Context(), cordon), "nodes")
	if err := c.ApplyManifests(t.Context(), "../../config/host-power"); err != nil {
		t.Fatal(err)
	}
	err = c.WaitFor(t.Context(), policyDelay, "admission policy refuses the manager another change", func(ctx context.Context) error {
		return isForbidden(patch(ctx, `{"metadata":{"labels":{"other":"x"}}}`))
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := patch(t.Context(), cordon); err != nil {
		t.Errorf("cordon and marks: %v", err)
	}
	for name, merge := range map[string]string{
		"label":      `{"metadata":{"labels":{"node-role.kubernetes.io/control-plane":""}}}`,
		"annotation": `{"metadata":{"annotations":{"other":"x"}}}`,
		"taint":      `{"spec":{"taints":[{"key":"other","effect":"NoExecute"}]}}`,
		"provider":   `{"spec":{"providerID":"metal3://other/host/machine"}}`,
		"finalizer":  `{"metadata":{"finalizers":["example.org/stays"]}}`,
		"opt-out":    `{"metadata":{"annotations":{"` + v1alpha1.AnnotationOptOut + `":"false"}}}`,
	} {
		if err := patch(t.Context(), merge); isForbidden(err) != nil {
			t.Errorf("%s: %v, want a refusal", name, err)
		}
	}
}
