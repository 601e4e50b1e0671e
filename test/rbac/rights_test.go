package rbac

import (
	"context"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/joulevirt/joulevirt/test/cluster"
)

const (
	manager = "joulevirt-manager"
	agent   = agentAccount
	// page is the account whose tokens open the page.
	page = "joulevirt-page"

	elsewhere = "shop" // a namespace of VM owners
)

// right is a question to the API server. resource is GROUP/RESOURCE or
// GROUP/RESOURCE/SUBRESOURCE, the core group being empty.
type right struct {
	who, verb, resource, namespace, name string
}

// forbidden are rights that the product must never have, whatever else the manifests get. That it
// has those that it needs is shown wherever manager and agent run by their own accounts.
func forbidden() []right {
	return []right{
		{manager, "sign", "certificates.k8s.io/signers", "", "kubernetes.io/kube-apiserver-client"},
		{manager, "update", "/secrets", namespace, "credentials-of-prometheus"},
		{manager, "list", "/secrets", namespace, ""},
		{manager, "watch", "/secrets", namespace, ""},
		{manager, "get", "/secrets", elsewhere, "joulevirt-ca"},
		{manager, "get", "/secrets", elsewhere, "credentials-of-prometheus"},
		{manager, "get", "/secrets", "", ""},
		{manager, "get", "/configmaps", namespace, "another"},
		{manager, "list", "/configmaps", namespace, ""},
		{manager, "delete", "joulevirt.io/energyledgers", "", ""},
		{manager, "watch", "joulevirt.io/energyledgers", "", ""},
		{manager, "update", "coordination.k8s.io/leases", "kube-node-lease", ""},
		{manager, "patch", "joulevirt.io/energypolicies", "", ""},
		{manager, "patch", "joulevirt.io/vmnetworkprofiles", elsewhere, ""},
		{manager, "update", "joulevirt.io/nodereports/status", "", ""},
		{manager, "patch", "/nodes", "", ""},
		{manager, "create", "/pods", elsewhere, ""},
		{manager, "delete", "/pods", elsewhere, ""},
		{manager, "patch", "discovery.k8s.io/endpointslices", elsewhere, ""},
		{manager, "create", "/pods/exec", elsewhere, ""},
		{manager, "create", "/pods/eviction", elsewhere, ""},
		{manager, "update", "kubevirt.io/virtualmachineinstancemigrations", elsewhere, ""},
		{manager, "get", "apiextensions.k8s.io/customresourcedefinitions", "", "nodeplans.joulevirt.io"},

		{page, "list", "kubevirt.io/virtualmachineinstances", "", ""},
		{page, "list", "/nodes", "", ""},
		{page, "list", "joulevirt.io/energypolicies", "", ""},
		{page, "get", "/secrets", namespace, "joulevirt-ca"},

		{agent, "watch", "coordination.k8s.io/leases", namespace, ""},
		{agent, "get", "/configmaps", namespace, "other"},
		{agent, "get", "/secrets", namespace, "joulevirt-ca"},
		{agent, "update", "coordination.k8s.io/leases", namespace, ""},
		{agent, "patch", "joulevirt.io/nodeplans", "", ""},
		{agent, "create", "joulevirt.io/nodeplans", "", ""},
		{agent, "delete", "joulevirt.io/nodereports", "", ""},
		{agent, "get", "joulevirt.io/energypolicies", "", ""},
		{agent, "get", "joulevirt.io/energyledgers", "", ""},
		{agent, "patch", "/nodes", "", ""},
		{agent, "patch", "kubevirt.io/virtualmachineinstances", elsewhere, ""},
		{agent, "create", "/pods/exec", elsewhere, ""},
		{agent, "update", "certificates.k8s.io/certificatesigningrequests/approval", "", ""},
		{agent, "create", "/serviceaccounts/token", namespace, agent},
	}
}

func testRights(t *testing.T, c *cluster.Cluster) {
	check := func(r right, want bool) {
		t.Helper()
		if allowed, err := mayDo(t.Context(), c, r); err != nil || allowed != want {
			t.Errorf("%s may %s %s in namespace %q named %q: %v, %v", r.who, r.verb, r.resource, r.namespace, r.name, allowed, err)
		}
	}
	// The accounts are those that are bound.
	check(right{manager, "get", "/secrets", namespace, "joulevirt-ca"}, true)
	check(right{agent, "get", "/nodes", "", ""}, true)
	for path, want := range map[string]bool{"/page/data/summary": true, "/metrics": false} {
		review := reviewOf(page)
		review.Spec.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Verb: "get", Path: path}
		if err := c.Client().Create(t.Context(), review); err != nil || review.Status.Allowed != want {
			t.Errorf("%s may get %s: %v, %v", page, path, review.Status.Allowed, err)
		}
	}
	for _, r := range forbidden() {
		check(r, false)
	}
}

func mayDo(ctx context.Context, c *cluster.Cluster, r right) (bool, error) {
	group, resource, _ := strings.Cut(r.resource, "/")
	resource, subresource, _ := strings.Cut(resource, "/")
	review := reviewOf(r.who)
	review.Spec.ResourceAttributes = &authorizationv1.ResourceAttributes{
		Verb: r.verb, Group: group, Resource: resource, Subresource: subresource,
		Namespace: r.namespace, Name: r.name,
	}
	err := c.Client().Create(ctx, review)
	return review.Status.Allowed, err
}

func reviewOf(account string) *authorizationv1.SubjectAccessReview {
	return &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User:   "system:serviceaccount:" + namespace + ":" + account,
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"},
	}}
}
