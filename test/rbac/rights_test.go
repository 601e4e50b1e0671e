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

	elsewhere = "shop" // a namespace of VM owners
)

// right is a question to the API server. resource is GROUP/RESOURCE or
// GROUP/RESOURCE/SUBRESOURCE, the core group being empty.
type right struct {
	who, verb, resource, namespace, name string
	want                                 bool
}

// rights are those that must stay as they are whatever else the manifests get:
// what the product cannot do without, and what it must never be able to do.
func rights() []right {
	return []right{
		{manager, "create", "joulevirt.io/nodeplans", "", "", true},
		{manager, "update", "certificates.k8s.io/certificatesigningrequests/approval", "", "", true},
		{manager, "sign", "certificates.k8s.io/signers", "", "joulevirt.io/agent-serving", true},
		{manager, "sign", "certificates.k8s.io/signers", "", "kubernetes.io/kube-apiserver-client", false},
		{manager, "get", "/secrets", namespace, "joulevirt-ca", true},
		{manager, "update", "/secrets", namespace, "joulevirt-ca", true},
		{manager, "get", "/secrets", namespace, "credentials-of-prometheus", true},
		{manager, "update", "/secrets", namespace, "credentials-of-prometheus", false},
		{manager, "list", "/secrets", namespace, "", false},
		{manager, "watch", "/secrets", namespace, "", false},
		{manager, "get", "/secrets", elsewhere, "joulevirt-ca", false},
		{manager, "get", "/secrets", elsewhere, "credentials-of-prometheus", false},
		{manager, "get", "/secrets", "", "", false},
		{manager, "patch", "/configmaps", namespace, "joulevirt-agent-ca", true},
		{manager, "get", "/configmaps", namespace, "another", false},
		{manager, "list", "/configmaps", namespace, "", false},
		{manager, "get", "joulevirt.io/energyledgers", "", "", true},
		{manager, "create", "joulevirt.io/energyledgers", "", "", true},
		{manager, "patch", "joulevirt.io/energyledgers", "", "", true},
		{manager, "update", "joulevirt.io/energyledgers/status", "", "", true},
		{manager, "delete", "joulevirt.io/energyledgers", "", "", false},
		{manager, "watch", "joulevirt.io/energyledgers", "", "", false},
		{manager, "update", "coordination.k8s.io/leases", namespace, "", true},
		{manager, "update", "coordination.k8s.io/leases", "kube-node-lease", "", false},
		{manager, "create", "authentication.k8s.io/tokenreviews", "", "", true},
		{manager, "patch", "joulevirt.io/energypolicies", "", "", false},
		{manager, "patch", "joulevirt.io/vmnetworkprofiles", elsewhere, "", false},
		{manager, "update", "joulevirt.io/nodereports/status", "", "", false},
		{manager, "patch", "/nodes", "", "", false},
		{manager, "patch", "/pods", elsewhere, "", true},
		{manager, "create", "/pods", elsewhere, "", false},
		{manager, "delete", "/pods", elsewhere, "", false},
		{manager, "patch", "/services", elsewhere, "", true},
		{manager, "patch", "gateway.networking.k8s.io/httproutes", elsewhere, "", true},
		{manager, "patch", "discovery.k8s.io/endpointslices", elsewhere, "", false},
		{manager, "create", "/pods/exec", elsewhere, "", false},

		{agent, "get", "/nodes", "", "", true},
		{agent, "watch", "/pods", "", "", true},
		{agent, "watch", "kubevirt.io/virtualmachineinstances", "", "", true},
		{agent, "watch", "coordination.k8s.io/leases", namespace, "joulevirt-manager", true},
		{agent, "watch", "coordination.k8s.io/leases", namespace, "", false},
		{agent, "create", "authentication.k8s.io/tokenreviews", "", "", true},
		{agent, "get", "/configmaps", namespace, "joulevirt-agent-ca", true},
		{agent, "get", "/configmaps", namespace, "other", false},
		{agent, "get", "/secrets", namespace, "joulevirt-ca", false},
		{agent, "update", "coordination.k8s.io/leases", namespace, "", false},
		{agent, "patch", "joulevirt.io/nodeplans", "", "", false},
		{agent, "create", "joulevirt.io/nodeplans", "", "", false},
		{agent, "delete", "joulevirt.io/nodereports", "", "", false},
		{agent, "get", "joulevirt.io/energypolicies", "", "", false},
		{agent, "get", "joulevirt.io/energyledgers", "", "", false},
		{agent, "patch", "/nodes", "", "", false},
		{agent, "patch", "kubevirt.io/virtualmachineinstances", elsewhere, "", false},
		{agent, "create", "/pods/exec", elsewhere, "", false},
		{agent, "update", "certificates.k8s.io/certificatesigningrequests/approval", "", "", false},
		{agent, "create", "/serviceaccounts/token", namespace, agent, false},
	}
}

func testRights(t *testing.T, c *cluster.Cluster) {
	for _, r := range rights() {
		checkRight(t, c, r)
	}
}

func checkRight(t *testing.T, c *cluster.Cluster, r right) {
	t.Helper()
	allowed, err := mayDo(t.Context(), c, r)
	if err != nil {
		t.Fatal(err)
	}
	if allowed != r.want {
		t.Errorf("%s may %s %s in namespace %q named %q: %v, want %v", r.who, r.verb, r.resource, r.namespace, r.name, allowed, r.want)
	}
}

func mayDo(ctx context.Context, c *cluster.Cluster, r right) (bool, error) {
	group, resource, _ := strings.Cut(r.resource, "/")
	resource, subresource, _ := strings.Cut(resource, "/")
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: "system:serviceaccount:" + namespace + ":" + r.who,
		Groups: []string{
			"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated",
		},
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: r.verb, Group: group, Resource: resource, Subresource: subresource,
			Namespace: r.namespace, Name: r.name,
		},
	}}
	err := c.Client().Create(ctx, review)
	return review.Status.Allowed, err
}
