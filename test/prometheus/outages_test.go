package prometheus_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/joulevirt/joulevirt/internal/energy"
	source "github.com/joulevirt/joulevirt/internal/energy/prometheus"
	"github.com/joulevirt/joulevirt/test/prometheus"
)

func TestOutages(t *testing.T) {
	t.Parallel()
	server := start(t, nil)
	s, from := steady(t, server, "outages")
	impatient := newSource(t, source.Config{URL: server.URL, Timeout: time.Second})

	t.Run("hanging", func(t *testing.T) {
		if err := server.Pause(); err != nil {
			t.Fatal(err)
		}
		s.wantFailure(impatient, "Unreachable", "does not answer within 1s")
		if err := server.Resume(); err != nil {
			t.Fatal(err)
		}
		poll(t, "a reading", func() (bool, string) {
			all, err := impatient.Read(t.Context(), []energy.Node{s.node}) // a busy machine may take longer than it waits
			return err == nil && len(all.Readings) == 1, fmt.Sprint(all, err)
		})
	})
	t.Run("restarted", func(t *testing.T) {
		before := *s.await("a reading", from, meanFull, nil).reading
		if err := server.Restart(t.Context(), true); err != nil {
			t.Fatal(err)
		}
		// What was scraped before is there, so the mean goes on over the gap.
		s.await("a newer reading", from, func(a answer) bool {
			return a.reading != nil && a.reading.Time.After(before.Time)
		}, s.good)
		s.right(from)
	})
	t.Run("data lost", func(t *testing.T) {
		if err := server.Restart(t.Context(), false); err != nil {
			t.Fatal(err)
		}
		s.await("a reading", from, anyReading, nil)
		s.right(from)
	})
	t.Run("stopped", func(t *testing.T) {
		if err := server.Stop(); err != nil {
			t.Fatal(err)
		}
		s.wantFailure(from, "Unreachable", "refused")
	})
}

func TestTokens(t *testing.T) {
	t.Parallel()
	server := start(t, nil)
	s, _ := steady(t, server, "tokens")
	proxy, err := prometheus.NewProxy(server)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	with := func(token string) *source.Source {
		return newSource(t, source.Config{URL: proxy.URL, Credentials: source.Credentials{Token: []byte(token), CA: proxy.CA}})
	}
	proxy.Admit("first")
	first := with("first\n")
	s.good(s.ask(first))
	proxy.Expire("first")
	s.wantFailure(first, "Unauthorized", "401")
	s.wantFailure(with(""), "Unauthorized", "401")
	proxy.Admit("second")
	s.await("a reading with a new token", with("second"), anyReading, nil)
	// kube-rbac-proxy takes POST for the verb create, which nobody grants.
	proxy.ReadOnly("third")
	s.await("a reading with a token that may only GET", with("third"), anyReading, nil)
	s.wantFailure(newSource(t, source.Config{URL: proxy.URL, Credentials: source.Credentials{Token: []byte("second")}}),
		"CredentialsInvalid", "ca.crt")
	if diff := cmp.Diff([]string{"joulevirt-manager"}, proxy.UserAgents()); diff != "" {
		t.Errorf("who asked (-want +got):\n%s", diff)
	}
}

func TestClientCertificates(t *testing.T) {
	t.Parallel()
	cert, key := ownAuthority(t)
	dir := t.TempDir()
	certFile, keyFile := write(t, dir, "tls.crt", cert), write(t, dir, "tls.key", key)
	server := start(t, &prometheus.TLS{CertFile: certFile, KeyFile: keyFile, ClientCAFile: certFile})
	s := newStory(t, server, "certified", kepler("package", rapl("0"), 80))
	with := func(credentials source.Credentials) *source.Source {
		return newSource(t, source.Config{URL: server.URL, Credentials: credentials})
	}
	s.await("a reading", with(source.Credentials{CA: cert, Cert: cert, Key: key}), anyReading, nil)
	other, otherKey := ownAuthority(t)
	for _, credentials := range []source.Credentials{{CA: cert}, {CA: cert, Cert: other, Key: otherKey}} {
		// Unauthorized, or Unreachable when the server was faster in closing the
		// connection than we in asking: the message is to the point in both cases.
		_, err := with(credentials).Read(t.Context(), []energy.Node{s.node})
		if err == nil || !strings.Contains(err.Error(), "client certificate") {
			t.Errorf("Read = %v, want it to ask for a client certificate", err)
		}
	}
	s.wantFailure(with(source.Credentials{CA: other, Cert: cert, Key: key}), "CredentialsInvalid", "not trusted")
}

// ownAuthority makes a certificate, PEM, for servers on the loopback address
// and for clients, which is its own authority.
func ownAuthority(t *testing.T) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(time.Now().UnixNano()),
		Subject:               pkix.Name{CommonName: "test"},
		IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(time.Hour),
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	privateDER, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: privateDER})
}
