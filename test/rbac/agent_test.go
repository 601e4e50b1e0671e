package rbac

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/test/cluster"
)

func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme, gatewayv1.Install, virtv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	return scheme, nil
}

// podConfig is config with the token that a kubelet would put into the agent's
// pod on nodeA: bound to the pod, not to the node.
func podConfig(t *testing.T, c *cluster.Cluster, config *rest.Config) *rest.Config {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "agent-on-a"},
		Spec: corev1.PodSpec{
			NodeName: nodeA, ServiceAccountName: agentAccount,
			Containers: []corev1.Container{{Name: "agent", Image: "agent"}},
		},
	}
	if err := c.Client().Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: agentAccount}}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID},
	}}
	if err := c.Client().SubResource("token").Create(t.Context(), account, request); err != nil {
		t.Fatal(err)
	}
	config = rest.CopyConfig(config)
	config.BearerToken = request.Status.Token
	return config
}

// write is something that an agent tries.
type write struct {
	name string
	do   func(context.Context, client.Client, string) error
}

func ownWrites() []write {
	return []write{
		{"create NodeReport", func(ctx context.Context, c client.Client, node string) error {
			return c.Create(ctx, report(node), client.DryRunAll)
		}},
		{"patch NodeReport status", func(ctx context.Context, c client.Client, node string) error {
			return patchStatus(ctx, c, report(node), `{"status":{"kernelVersion":"6.12"}}`)
		}},
		{"patch NodePlan status", func(ctx context.Context, c client.Client, node string) error {
			return patchStatus(ctx, c, plan(node), `{"status":{"vmsInForce":1}}`)
		}},
	}
}

func plan(node string) *v1alpha1.NodePlan {
	return &v1alpha1.NodePlan{ObjectMeta: metav1.ObjectMeta{Name: node}}
}

func patchStatus(ctx context.Context, c client.Client, object client.Object, patch string) error {
	return c.Status().Patch(ctx, object, client.RawPatch("application/merge-patch+json", []byte(patch)))
}

func testAgent(t *testing.T, c *cluster.Cluster, agents agents) {
	admin := joulevirtClient(t, c.RESTConfig())
	for _, tokens := range []struct {
		name  string
		agent client.Client
	}{{"bound to its node", agents.boundToA}, {"of its pod", agents.inPodOnA}} {
		t.Run("token "+tokens.name, func(t *testing.T) {
			createFresh(t, admin, tokens.agent)
			for _, write := range ownWrites() {
				t.Run(write.name, func(t *testing.T) {
					// It exists already: admission let it through.
					if err := write.do(t.Context(), tokens.agent, nodeA); err != nil && !apierrors.IsAlreadyExists(err) {
						t.Errorf("own node: %v, want no error", err)
					}
					wantForbidden(t, write.do(t.Context(), tokens.agent, nodeB), `"`+nodeA+`"`, `"`+nodeB+`"`, "its own node")
				})
			}
		})
	}
	t.Run("token bound to no node", func(t *testing.T) {
		for _, write := range ownWrites() {
			wantForbidden(t, write.do(t.Context(), agents.unbound, nodeA), "bound to no node", "the kubelet gives")
		}
	})
	t.Run("metadata", func(t *testing.T) {
		if err := admin.Delete(t.Context(), report(nodeA)); err != nil {
			t.Fatal(err)
		}
		for _, change := range []func(client.Object){
			func(o client.Object) { o.SetFinalizers([]string{"example.org/stay"}) },
			func(o client.Object) { o.SetLabels(map[string]string{"a": "b"}) },
			func(o client.Object) { o.SetAnnotations(map[string]string{"a": "b"}) },
		} {
			changed := report(nodeA)
			change(changed)
			wantForbidden(t, agents.boundToA.Create(t.Context(), changed), "name and ownerReferences")
		}
		createFresh(t, admin, agents.boundToA)
		// What others add does not keep it from its status.
		if err := mergePatch(t.Context(), admin, report(nodeA), `{"metadata":{"labels":{"a":"b"},"finalizers":["example.org/stay"]}}`); err != nil {
			t.Fatal(err)
		}
		if err := patchStatus(t.Context(), agents.boundToA, report(nodeA), `{"metadata":{"finalizers":null},"status":{"kernelVersion":"6.12"}}`); err != nil {
			t.Errorf("status of a report with a label and a finalizer of somebody else: %v", err)
		}
		if err := mergePatch(t.Context(), admin, report(nodeA), `{"metadata":{"finalizers":null}}`); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("spec of its NodePlan", func(t *testing.T) {
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"apply":true}}`))
		wantForbidden(t, agents.boundToA.Patch(t.Context(), plan(nodeA), patch), "nodeplans", nodeA)
	})
	t.Run("spec of its NodePlan beside the status", func(t *testing.T) {
		if err := patchStatus(t.Context(), agents.boundToA, plan(nodeA), `{"spec":{"apply":true},"status":{"vmsInForce":7}}`); err != nil {
			t.Fatal(err)
		}
		got := &v1alpha1.NodePlan{}
		if err := admin.Get(t.Context(), client.ObjectKey{Name: nodeA}, got); err != nil {
			t.Fatal(err)
		}
		if got.Spec.Apply || got.Status.VMsInForce != 7 {
			t.Errorf("apply = %v, vmsInForce = %d, want the spec untouched and the status written", got.Spec.Apply, got.Status.VMsInForce)
		}
	})
}

// createFresh lets an agent create its NodeReport anew; that of node B is the
// administrator's doing.
func createFresh(t *testing.T, admin, agent client.Client) {
	t.Helper()
	for _, node := range []string{nodeA, nodeB} {
		if err := client.IgnoreNotFound(admin.Delete(t.Context(), report(node))); err != nil {
			t.Fatal(err)
		}
	}
	if err := agent.Create(t.Context(), report(nodeA)); err != nil {
		t.Fatal(err)
	}
	if err := admin.Create(t.Context(), report(nodeB)); err != nil {
		t.Fatal(err)
	}
}

func wantForbidden(t *testing.T, err error, parts ...string) {
	t.Helper()
	if !apierrors.IsForbidden(err) {
		t.Errorf("error %v, want the reason Forbidden", err)
		return
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the refusal lacks %q: %v", part, err)
		}
	}
}

func testCertificateRequests(t *testing.T, agent client.Client) {
	if err := agent.Create(t.Context(), certificateRequest(t, "joulevirt.io/agent-serving")); err != nil {
		t.Errorf("request to the product's own signer: %v", err)
	}
	err := agent.Create(t.Context(), certificateRequest(t, certificatesv1.KubeAPIServerClientSignerName))
	wantForbidden(t, err, "only signer joulevirt.io/agent-serving", certificatesv1.KubeAPIServerClientSignerName)
}

func certificateRequest(t *testing.T, signer string) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		t.Fatal(err)
	}
	return &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			SignerName: signer,
			Request:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
			Usages:     []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth},
		},
	}
}
