package pki

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/util/certificate"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
)

const testNamespace = "joulevirt-system"

// fixedAuthority is an Authorities that never changes.
type fixedAuthority struct{ authority *Authority }

func (f fixedAuthority) Authority() (*Authority, error) { return f.authority, nil }

func newAuthority(t *testing.T) *Authority {
	t.Helper()
	a, err := NewAuthority(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// newRequest returns a certificate request, which may name what it likes, and
// its key.
func newRequest(t *testing.T, name string) (requestPEM, keyPEM []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
	}, key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return encode(blockRequest, der), encode(blockKey, keyDER)
}

// servingAgent is an agent's TLS side as after a successful request.
func servingAgent(t *testing.T, authority *Authority, node string) *AgentTLS {
	t.Helper()
	request, key := newRequest(t, ServerName("somebody-else"))
	certPEM, err := authority.SignServing(request, node, time.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	store := &memoryStore{}
	if _, err := store.Update(certPEM, key); err != nil {
		t.Fatal(err)
	}
	manager, err := certificate.NewManager(&certificate.Config{CertificateStore: store, Usages: AgentUsages()})
	if err != nil {
		t.Fatal(err)
	}
	clients := fake.NewClientset(&corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: BundleConfigMap, Namespace: testNamespace},
		Data:       map[string]string{BundleKey: string(authority.BundlePEM())},
	})
	agent := NewAgentTLS(clients, node, testNamespace, testr.New(t))
	agent.serving.Store(&manager)
	if err := agent.refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	return agent
}

func serve(t *testing.T, agent *AgentTLS) (url string) {
	t.Helper()
	server := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "rates")
		}),
		ErrorLog:          log.New(io.Discard, "", 0),
		ReadHeaderTimeout: time.Second,
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = server.Serve(tls.NewListener(listener, agent.Config())) }()
	t.Cleanup(func() { _ = server.Close() })
	return "https://" + listener.Addr().String()
}

func get(ctx context.Context, client *http.Client, url string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return "", err
	}
	response, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return string(body), err
}

func TestManagerReachesOnlyTheNodesOwnAgent(t *testing.T) {
	authority := newAuthority(t)
	url := serve(t, servingAgent(t, authority, "node-a"))
	clients := NewAgentClients(NewManagerTLS(fixedAuthority{authority}, clock.RealClock{}).Settings)

	if body, err := get(t.Context(), clients.For("node-a"), url); err != nil || body != "rates" {
		t.Errorf("own agent: %q, %v", body, err)
	}
	if _, err := get(t.Context(), clients.For("node-b"), url); err == nil || !strings.Contains(err.Error(), "node-b") {
		t.Errorf("agent of node-a answered for node-b: %v", err)
	}
	other := NewAgentClients(NewManagerTLS(fixedAuthority{newAuthority(t)}, clock.RealClock{}).Settings)
	if _, err := get(t.Context(), other.For("node-a"), url); err == nil {
		t.Error("a manager with another authority got rates")
	}
}

func TestAgentLetsOnlyTheManagerIn(t *testing.T) {
	authority := newAuthority(t)
	url := serve(t, servingAgent(t, authority, "node-a"))
	roots := x509.NewCertPool()
	roots.AddCert(authority.certificate)

	for name, certificates := range map[string][]tls.Certificate{
		"no certificate":      nil,
		"an agent's":          {*servingAgent(t, authority, "node-b").current()},
		"another authority's": {*mustIssue(t, newAuthority(t))},
	} {
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{
			RootCAs: roots, ServerName: ServerName("node-a"), Certificates: certificates,
		}}}
		if body, err := get(t.Context(), client, url); err == nil {
			t.Errorf("%s: let in, got %q", name, body)
		}
	}
}

func mustIssue(t *testing.T, a *Authority) *tls.Certificate {
	t.Helper()
	c, err := a.IssueClient(time.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestOnlyManagerRefusesOtherNamesOfTheSameAuthority(t *testing.T) {
	leaf := &x509.Certificate{Subject: pkix.Name{CommonName: "somebody"}}
	err := onlyManager(tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf}})
	if err == nil || !strings.Contains(err.Error(), "somebody") {
		t.Errorf("error %v, want one that names somebody", err)
	}
}

func TestSignServingRefusesWhatIsNoRequest(t *testing.T) {
	authority := newAuthority(t)
	request, _ := newRequest(t, "x")
	forged := append([]byte(nil), request...)
	copy(forged[80:], "AAAA")
	for name, text := range map[string][]byte{
		"nothing": nil, "text": []byte("hello"), "a certificate": authority.BundlePEM(), "forged": forged,
	} {
		if _, err := authority.SignServing(text, "node-a", time.Now(), time.Hour); err == nil || !strings.Contains(err.Error(), "node-a") {
			t.Errorf("%s: error %v, want one that names the node", name, err)
		}
	}
}

func TestClientCertificateIsRenewed(t *testing.T) {
	authority := newAuthority(t)
	clk := clocktesting.NewFakePassiveClock(time.Now())
	manager := NewManagerTLS(fixedAuthority{authority}, clk)
	serialAt := func(after time.Duration) string {
		clk.SetTime(clk.Now().Add(after))
		settings, err := manager.Settings("node-a")
		if err != nil {
			t.Fatal(err)
		}
		return settings.Certificates[0].Leaf.SerialNumber.String()
	}
	first, soon, late := serialAt(0), serialAt(time.Hour), serialAt(clientLifetime/2)
	if first != soon || first == late {
		t.Errorf("serials %s, %s after an hour, %s after half its life", first, soon, late)
	}
}

func TestKeeperMakesKeepsAndReplacesTheAuthority(t *testing.T) {
	clk := clocktesting.NewFakeClock(time.Now())
	clients := fake.NewClientset()
	keeper := NewKeeper(clients, testNamespace, clk, testr.New(t))
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
		bundle, err := clients.CoreV1().ConfigMaps(testNamespace).Get(t.Context(), BundleConfigMap, metav1.GetOptions{})
		if err != nil || bundle.Data[BundleKey] != string(authority.BundlePEM()) {
			t.Fatalf("published bundle is not the authority's: %v", err)
		}
		return authority.certificate.SerialNumber.String()
	}
	first := sync(keeper)
	if again := sync(NewKeeper(clients, testNamespace, clk, testr.New(t))); again != first {
		t.Error("a second manager made another authority")
	}
	secrets := clients.CoreV1().Secrets(testNamespace)
	if err := secrets.Delete(t.Context(), AuthoritySecret, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if again := sync(keeper); again != first {
		t.Error("a deleted Secret changed the authority of a manager that still knew it")
	}
	secret, err := secrets.Get(t.Context(), AuthoritySecret, metav1.GetOptions{})
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
	clk.SetTime(clk.Now().Add(authorityLifetime - time.Hour))
	if third := sync(keeper); third == second {
		t.Error("an authority that ends within the hour was kept")
	}
}

func TestAgentNoticesAReplacedAuthority(t *testing.T) {
	agent := servingAgent(t, newAuthority(t), "node-a")
	if !agent.servingIsTrusted() {
		t.Fatal("own authority is not trusted")
	}
	pool := x509.NewCertPool()
	pool.AddCert(newAuthority(t).certificate)
	agent.trusted.Store(pool)
	if agent.servingIsTrusted() {
		t.Error("a certificate of a replaced authority is taken for trusted")
	}
}
