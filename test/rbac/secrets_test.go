package rbac

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/test/cluster"
)

// testSecrets: the manager may create Secrets in its namespace, but none that Kubernetes fills with
// a token.
func testSecrets(t *testing.T, c *cluster.Cluster) {
	account := joulevirtClient(t, c.AsServiceAccount(namespace, manager))
	secret := func(name string, kind corev1.SecretType) *corev1.Secret {
		return &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: namespace, Name: name, Annotations: map[string]string{corev1.ServiceAccountNameKey: "joulevirt-page"},
			},
			Type: kind, Data: map[string][]byte{corev1.TLSCertKey: {}, corev1.TLSPrivateKeyKey: {}},
		}
	}
	bundle := func(name string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	}
	const words = "only Secret joulevirt-ca"
	err := c.WaitFor(t.Context(), policyDelay, "admission policy refuses the manager another Secret", func(ctx context.Context) error {
		return isForbidden(account.Create(ctx, secret("another", corev1.SecretTypeTLS), client.DryRunAll))
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range []client.Object{
		secret("another", corev1.SecretTypeTLS), secret("token", corev1.SecretTypeServiceAccountToken),
		secret("joulevirt-ca", corev1.SecretTypeServiceAccountToken), bundle("another"),
	} {
		wantForbidden(t, account.Create(t.Context(), object, client.DryRunAll), words)
	}
	for _, object := range []client.Object{secret("joulevirt-ca", corev1.SecretTypeTLS), bundle("joulevirt-agent-ca")} {
		if err := account.Create(t.Context(), object, client.DryRunAll); err != nil {
			t.Errorf("%T %s: %v", object, object.GetName(), err)
		}
	}
}
