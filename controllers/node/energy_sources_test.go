package node

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	virtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/controllers/objects"
	"github.com/joulevirt/joulevirt/internal/energy"
	"github.com/joulevirt/joulevirt/test/controllertest"
)

// sourceOf changes a policy's sources to one server, whose figures are fresh for so long.
func sourceOf(policy v1alpha1.EnergyPolicy, url string, freshness time.Duration) v1alpha1.EnergyPolicy {
	policy.Spec.Energy.Sources = []v1alpha1.EnergySource{{Type: v1alpha1.PowerRAPL, Freshness: &metav1.Duration{Duration: 2 * time.Minute}}, {
		Type: v1alpha1.PowerPrometheus, Freshness: &metav1.Duration{Duration: freshness},
		Prometheus: &v1alpha1.PrometheusSource{URL: url},
	}}
	return policy
}

// One server is asked once, whatever the number of policies that name it, about
// the nodes that they govern.
func TestEnergyTargets(t *testing.T) {
	scheme, err := objects.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	x := sourceOf(controllertest.PolicyOf("x", 0, "x"), "https://p", 2*time.Minute)
	y := sourceOf(controllertest.PolicyOf("y", 0, "y"), "https://p", 2*time.Minute)
	slow := sourceOf(controllertest.PolicyOf("slow", 0, "slow"), "https://p", time.Minute)
	loses := sourceOf(controllertest.PolicyOf("loses", -1, "x"), "https://other", time.Second)
	none := controllertest.PolicyOf("none", 0, "none")
	stranger := controllertest.NodeOf("5", "x")
	delete(stranger.Labels, virtv1.NodeSchedulable)
	reader := fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		&x, &y, &slow, &loses, &none, controllertest.NodeOf("1", "x"), controllertest.NodeOf("2", "y"), controllertest.NodeOf("3", "slow"), controllertest.NodeOf("4", "none"), stranger,
	).Build()
	got, err := EnergyTargets(t.Context(), reader)
	if err != nil {
		t.Fatal(err)
	}
	node := func(name string) energy.Node {
		return energy.Node{Name: name, Addresses: []string{"10.0.0." + name, name + ".example"}}
	}
	quick := energy.Server{URL: "https://p", Timeout: 10 * time.Second, Freshness: 2 * time.Minute}
	patient := quick
	patient.Freshness = time.Minute
	want := []energy.Target{
		{Server: quick, Nodes: []energy.Node{node("1"), node("2")}},
		{Server: patient, Nodes: []energy.Node{node("3")}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// The cache must keep what sources know nodes by.
func TestStripKeepsAddresses(t *testing.T) {
	node := controllertest.NodeOf("1", "x")
	node.Status.Images = []corev1.ContainerImage{{Names: []string{"large"}}}
	stripped, err := objects.Strip(node)
	got, ok := stripped.(*corev1.Node)
	if err != nil || !ok || len(addressesOf(got)) != 2 || got.Status.Images != nil {
		t.Errorf("%v: %+v", err, stripped)
	}
}

func TestLiveSecrets(t *testing.T) {
	scheme, err := objects.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "mon", Name: "reader", Labels: map[string]string{v1alpha1.LabelEnergyCredentials: ""}}, Data: map[string][]byte{"token": []byte("t")}}
	authority := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "mon", Name: "joulevirt-ca"}}
	other := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "mon", Name: "other"}, Data: map[string][]byte{"token": []byte("t")}}
	secrets := LiveSecrets{Namespace: "mon", Reader: fake.NewClientBuilder().WithScheme(scheme).WithObjects(secret, authority, other).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			switch key.Name {
			case "forbidden":
				return apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, key.Name, errors.New("no"))
			case "lost":
				return errors.New("connection refused")
			}
			return c.Get(ctx, key, o, opts...)
		},
	}).Build()}
	data, err := secrets.Secret(t.Context(), "reader")
	if err != nil || string(data["token"]) != "t" {
		t.Errorf("%v: %v", err, data)
	}
	for name, words := range map[string]string{
		"none":         "Secret mon/none does not exist: create it",
		"forbidden":    "Secret mon/forbidden is not readable: bind the manager's account",
		"other":        "has no label joulevirt.io/energy-credentials",
		"joulevirt-ca": "authority of the agents",
		"lost":         "connection refused",
	} {
		_, err := secrets.Secret(t.Context(), name)
		refusal := (*energy.Refusal)(nil)
		if err == nil || !strings.Contains(err.Error(), words) || errors.As(err, &refusal) == (name == "lost") {
			t.Errorf("%s: %v, want %q", name, err, words)
		}
		if refusal != nil && refusal.Reason != energy.ReasonCredentials {
			t.Errorf("%s: reason %s", name, refusal.Reason)
		}
	}
}
