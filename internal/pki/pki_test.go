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
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/testr"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
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

// api has the authority's bundle, and requests that nobody signs.
type api struct {
	bundle []byte
	gets   int
}

func (a *api) Get(_ context.Context, _ string, into runtime.Object) error {
	a.gets++
	configMap, is := into.(*corev1.ConfigMap)
	if is && a.bundle == nil {
		return apierrors.NewNotFound(corev1.Resource("configmaps"), BundleConfigMap)
	}
	if is {
		configMap.Data = map[string]string{BundleKey: string(a.bundle)}
	}
	return nil
}

func (a *api) Create(_ context.Context, _ string, object runtime.Object) error {
	object.(*certificatesv1.CertificateSigningRequest).Name = "request"
	return nil
}

// Agents that are there before their manager ask the API server ever less often.
func TestAgentsWithoutAManagerAskSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &api{}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := NewAgentTLS(server, "node-a", testNamespace, testr.New(t)).Run(ctx); err != nil {
			t.Fatal(err)
		}
		const least, most = 2 * 100, 2 * 130
		if server.gets < least || server.gets > most {
			t.Errorf("%d requests in an hour, want %d to %d", server.gets, least, most)
		}
	})
}

// servingAgent is an agent's TLS side as after a successful request.
func servingAgent(t *testing.T, authority *Authority, node string) *AgentTLS {
	t.Helper()
	request, key := newRequest(t, ServerName("somebody-else"))
	certPEM, err := authority.SignServing(request, node, time.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(certPEM, key)
	if err != nil {
		t.Fatal(err)
	}
	agent := NewAgentTLS(&api{bundle: authority.BundlePEM()}, node, testNamespace, testr.New(t))
	agent.serving.Store(&pair)
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
		ReadHeaderTimeout: time.Minute,
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
