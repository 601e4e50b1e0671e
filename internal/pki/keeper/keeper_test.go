package keeper

import (
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/joulevirt/joulevirt/internal/pki"
)

const testNamespace = "joulevirt-system"

func TestKeeperMakesKeepsAndReplacesTheAuthority(t *testing.T) {
	clk := clocktesting.NewFakeClock(time.Now())
	clients := fake.NewClientset()
	keeper := New(clients, testNamespace, clk, testr.New(t))
	if _, err := keeper.Authority(); err == nil {
		t.Fatal("an authority before the first sync")
	}
	sync := func(k *Keeper) string {
		t.Helper()
		if err := k.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		authority, err := k.Authority()
		if err != nil {
			t.Fatal(err)
		}
		bundle, err := clients.CoreV1().ConfigMaps(testNamespace).Get(t.Context(), pki.BundleConfigMap, metav1.GetOptions{})
		if err != nil || bundle.Data[pki.BundleKey] != string(authority.BundlePEM()) {
			t.Fatalf("published bundle is not the authority's: %v", err)
		}
		return string(authority.BundlePEM())
	}
	first := sync(keeper)
	if again := sync(New(clients, testNamespace, clk, testr.New(t))); again != first {
		t.Error("a second manager made another authority")
	}
	secrets := clients.CoreV1().Secrets(testNamespace)
	if err := secrets.Delete(t.Context(), pki.AuthoritySecret, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if again := sync(keeper); again != first {
		t.Error("a deleted Secret changed the authority of a manager that still knew it")
	}
	secret, err := secrets.Get(t.Context(), pki.AuthoritySecret, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	secret.Data[corev1.TLSPrivateKeyKey] = []byte("damaged")
	if _, err := secrets.Update(t.Context(), secret, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	second := sync(keeper)
	if second == first {
		t.Error("a damaged authority was kept")
	}
	expires, _ := keeper.Expires()
	clk.SetTime(expires.Add(-time.Hour))
	if third := sync(keeper); third == second {
		t.Error("an authority that ends within the hour was kept")
	}
}
