package gateway

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
)

// shop is whom certificates are for.
const shop = "shop.example"

// issuer signs certificates.
type issuer struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	i := &issuer{certificate: &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}}
	i.certificate, i.key = i.sign(t, i.certificate)
	return i
}

func (i *issuer) sign(t *testing.T, template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	if template.NotAfter.IsZero() {
		template.NotAfter = time.Now().Add(time.Hour)
	}
	signer := i.key
	if signer == nil {
		signer = key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, i.certificate, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return certificate, key
}

// files returns those of a Secret with a certificate for the shop.
func (i *issuer) files(t *testing.T, change func(*x509.Certificate)) map[string]string {
	t.Helper()
	template := &x509.Certificate{DNSNames: []string{shop}}
	if change != nil {
		change(template)
	}
	certificate, key := i.sign(t, template)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	encode := func(kind string, der []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	return map[string]string{
		"tls.crt": encode("CERTIFICATE", certificate.Raw), "tls.key": encode("PRIVATE KEY", der), "ca.crt": encode("CERTIFICATE", i.certificate.Raw),
	}
}

// mount has a folder have the files of a Secret, all at once, as kubelet does.
func mount(t *testing.T, at string, files map[string]string) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o444); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Symlink(dir, dir+".link"), os.Rename(dir+".link", at)); err != nil {
		t.Fatal(err)
	}
}

// serve has a VM serve the certificate in a folder.
func (v *vm) serve(t *testing.T, dir string) {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"))
	if err != nil {
		t.Fatal(err)
	}
	v.certificate.Store(&pair)
}

// tlsScene is a gateway with a Secret, whose clients trust the issuer.
type tlsScene struct {
	*scene
	issuer *issuer
}

// tlsClient speaks TLS to all but probes.
type tlsClient struct {
	http.Transport
	probes string
}

func (c *tlsClient) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Host != c.probes {
		r.URL.Scheme = "https"
	}
	return c.Transport.RoundTrip(r)
}

// newTLSScene starts a gateway, and a client of TLS 1.3.
func newTLSScene(t *testing.T, change func(*Config)) *tlsScene {
	s := &tlsScene{issuer: newIssuer(t)}
	at := filepath.Join(t.TempDir(), "tls")
	mount(t, at, s.issuer.files(t, nil))
	s.scene = newScene(t, func(c *Config) {
		c.TLS = at
		if change != nil {
			change(c)
		}
	})
	trusted := x509.NewCertPool()
	trusted.AddCert(s.issuer.certificate)
	s.client = &http.Client{Timeout: patience, Transport: &tlsClient{probes: s.config.ProbeListen, Transport: http.Transport{
		DisableCompression: true, MaxIdleConnsPerHost: 64,
		TLSClientConfig: &tls.Config{RootCAs: trusted, ServerName: shop, MinVersion: tls.VersionTLS13},
	}}}
	return s
}

// served is the certificate that new clients get.
func (s *tlsScene) served() *big.Int {
	s.Helper()
	config := s.client.Transport.(*tlsClient).TLSClientConfig
	conn, err := tls.Dial("tcp", s.config.Listen, config)
	s.must(err)
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0].SerialNumber
}

// TestTLSVersions checks which clients are served, and that the VM gets to know.
func TestTLSVersions(t *testing.T) {
	s := newTLSScene(t, nil)
	if got := s.ask(s.config.Listen, "POST", "/echo", map[string]string{"X-Forwarded-Proto": "http"}, ""); !strings.HasSuffix(got.Body, "https") {
		t.Errorf("the VM was asked %q, want X-Forwarded-Proto https", got.Body)
	}
	trusted := s.client.Transport.(*tlsClient).TLSClientConfig
	for name, test := range map[string]struct {
		least, most uint16
		cipher      uint16
		served      bool
	}{
		"TLS 1.1":                      {tls.VersionTLS10, tls.VersionTLS11, 0, false},
		"TLS 1.2":                      {tls.VersionTLS12, tls.VersionTLS12, tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, true},
		"TLS 1.2, and ciphers of past": {tls.VersionTLS12, tls.VersionTLS12, tls.TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA, false},
	} {
		config := trusted.Clone()
		config.MinVersion, config.MaxVersion, config.CipherSuites = test.least, test.most, []uint16{test.cipher}
		conn, err := tls.Dial("tcp", s.config.Listen, config)
		if (err == nil) != test.served {
			t.Errorf("a client of %s: %v", name, err)
		}
		if err == nil {
			conn.Close()
		}
	}
	got, err := http.Get("http://" + s.config.Listen)
	s.must(err)
	defer got.Body.Close()
	if got.StatusCode != http.StatusBadRequest {
		t.Errorf("plain HTTP has status %d", got.StatusCode)
	}
}

// TestShareByTLS sends a part of a file of the VM's share.
func TestShareByTLS(t *testing.T) {
	share := newStore(t, shareSize)
	s := &sharedScene{scene: newTLSScene(t, func(c *Config) { c.Share = share }).scene}
	s.write("a.ts")
	got := s.get("GET", v1alpha1.ShareLocation+"a.ts", map[string]string{"Range": "bytes=0-3"})
	if got.Status != http.StatusPartialContent || got.Body != "sent" {
		t.Errorf("range: %+v", got)
	}
}

// TestTLSOfVM checks that no answer comes from a VM whose certificate does not fit, and that this counts as the
// gateway's error, so that its guard lets clients judge themselves.
func TestTLSOfVM(t *testing.T) {
	s := newTLSScene(t, nil)
	other := filepath.Join(t.TempDir(), "other")
	errorsBefore := 0.0
	for name, files := range map[string]map[string]string{
		"another issuer": newIssuer(t).files(t, nil),
		"another name":   s.issuer.files(t, func(c *x509.Certificate) { c.DNSNames = []string{"other.example"} }),
		"expired":        s.issuer.files(t, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Hour) }),
	} {
		mount(t, other, files)
		s.vm.serve(t, other)
		s.vm.CloseClientConnections()
		if got := s.ask(s.config.Listen, "GET", "/x/1", nil, ""); got.Status != http.StatusBadGateway {
			t.Errorf("%s: %+v", name, got)
		}
		s.eventually(name+" is counted", func() bool { return s.metric("joulevirt_gateway_errors_total") > errorsBefore })
		errorsBefore = s.metric("joulevirt_gateway_errors_total")
	}
	mount(t, other, s.issuer.files(t, func(c *x509.Certificate) { c.DNSNames = []string{"vm.example", shop} }))
	s.vm.serve(t, other)
	if got := s.ask(s.config.Listen, "GET", "/x/1", nil, ""); got.Status != http.StatusOK {
		t.Errorf("a certificate of its own: %+v", got)
	}
	if n := s.vm.count("/x/1"); n != 1 {
		t.Errorf("the VM got %d requests, want that by the connection that was verified", n)
	}
}

// TestRenewal renews the certificate while a download runs. One that cannot be used leaves the earlier one.
func TestRenewal(t *testing.T) {
	s := newTLSScene(t, nil)
	const path = "/stored/slow/30000000"
	request, err := http.NewRequest(http.MethodGet, "https://"+s.config.Listen+path, nil)
	s.must(err)
	response, err := s.client.Do(request)
	s.must(err)
	defer response.Body.Close()
	first := s.served()
	renewed := s.issuer.files(t, nil)
	mount(t, s.config.TLS, map[string]string{"tls.crt": renewed["tls.crt"], "tls.key": s.issuer.files(t, nil)["tls.key"]})
	s.ticks <- time.Time{}
	s.ticks <- time.Time{} // the first is over
	if now := s.served(); now.Cmp(first) != 0 {
		t.Error("a key that does not fit is taken up")
	}
	mount(t, s.config.TLS, renewed)
	s.ticks <- time.Time{}
	s.eventually("clients get the new certificate", func() bool { return s.served().Cmp(first) != 0 })
	s.vm.serve(t, s.config.TLS) // for a new connection: the download has the other
	if got := s.ask(s.config.Listen, "POST", "/echo", nil, ""); got.Status != http.StatusOK {
		t.Errorf("after the renewal: %+v", got)
	}
	text, err := io.ReadAll(response.Body)
	if err != nil || string(text) != string(content(path)) {
		t.Errorf("the download had %d bytes, %v", len(text), err)
	}
}

// TestExpiry: a gateway ends when its certificate has expired and was not renewed.
func TestExpiry(t *testing.T) {
	g := &gateway{certificate: &certificate{dir: writeDir(t, newIssuer(t).files(t, nil))}, log: slog.New(slog.DiscardHandler)}
	_, err := g.certificate.load()
	if err == nil {
		err = g.renew(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	mount(t, g.certificate.dir, nil)
	if err := g.renew(t.Context()); err != nil {
		t.Errorf("before: %v", err)
	}
	g.certificate.expires = time.Now().Add(-time.Second)
	if err := g.renew(t.Context()); !errors.Is(err, ErrTLS) {
		t.Errorf("after: %v", err)
	}
}

// TestBadSecret checks that a gateway does not start with a Secret or a VM that its owner has to correct.
func TestBadSecret(t *testing.T) {
	i := newIssuer(t)
	good := i.files(t, nil)
	with := func(name, text string) map[string]string {
		files := map[string]string{"tls.crt": good["tls.crt"], "tls.key": good["tls.key"], "ca.crt": good["ca.crt"]}
		if files[name] = text; text == "" {
			delete(files, name)
		}
		return files
	}
	changed := func(change func(*x509.Certificate)) map[string]string { return i.files(t, change) }
	plain, secure := httptest.NewServer(http.NotFoundHandler()), newVM(t, writeDir(t, good))
	defer plain.Close()
	for name, test := range map[string]struct {
		files map[string]string
		vm    string
		want  []string
	}{
		"missing":            {map[string]string{}, "", []string{"tls.crt: no such file", "type kubernetes.io/tls"}},
		"of another type":    {with("tls.key", ""), "", []string{"tls.key: no such file", "type kubernetes.io/tls"}},
		"another key":        {with("tls.key", i.files(t, nil)["tls.key"]), "", []string{"private key does not match", "renew both"}},
		"no certificate":     {with("tls.crt", "x"), "", []string{"tls.crt", "failed to find any PEM"}},
		"no issuer":          {with("ca.crt", "x"), "", []string{"ca.crt has no certificate", "remove it"}},
		"expired":            {changed(func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Hour) }), "", []string{"expired at", "renew"}},
		"no name":            {changed(func(c *x509.Certificate) { c.DNSNames = nil }), "", []string{"no name", "dnsNames"}},
		"VM of plain HTTP":   {good, plain.Listener.Addr().String(), []string{plain.Listener.Addr().String(), "serve TLS", shop}},
		"VM of another name": {changed(func(c *x509.Certificate) { c.DNSNames = []string{"other.example"} }), secure.Listener.Addr().String(), []string{"other.example", "serve TLS"}},
		"VM of no issuer":    {with("ca.crt", newIssuer(t).files(t, nil)["ca.crt"]), secure.Listener.Addr().String(), []string{"unknown authority"}},
		"good":               {good, secure.Listener.Addr().String(), nil},
		"the same, no ca":    {with("ca.crt", ""), secure.Listener.Addr().String(), nil},
		"an empty ca":        {with("ca.crt", "\n"), secure.Listener.Addr().String(), nil},
		"a VM that is down":  {good, "127.0.0.1:" + freePort(t), nil},
	} {
		t.Run(name, func(t *testing.T) {
			g := &gateway{Config: Config{TLS: writeDir(t, test.files), Upstream: test.vm}}
			err := g.prepareTLS(t.Context())
			if (err != nil) != (len(test.want) > 0) || err != nil && !errors.Is(err, ErrTLS) {
				t.Fatalf("the error is %v, want %q", err, test.want)
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the error is %v, want %q in it", err, want)
				}
			}
		})
	}
	config := Config{TLS: writeDir(t, nil), Store: newStore(t, 32*megabyte), MemoryMax: 32 * megabyte}
	if err := Run(context.Background(), config, nil, slog.New(slog.DiscardHandler)); !errors.Is(err, ErrTLS) {
		t.Errorf("Run ends with %v", err)
	}
}

func writeDir(t *testing.T, files map[string]string) string {
	t.Helper()
	at := filepath.Join(t.TempDir(), "tls")
	mount(t, at, files)
	return at
}

func TestNameOf(t *testing.T) {
	wildcard := &x509.Certificate{DNSNames: []string{"*.shop.example", "other.example"}}
	if err := wildcard.VerifyHostname(nameOf(wildcard)); err != nil {
		t.Error(err)
	}
	address := &x509.Certificate{IPAddresses: []net.IP{net.IPv4(10, 0, 0, 7)}}
	if got := nameOf(address); got != "10.0.0.7" {
		t.Errorf("the name is %q", got)
	}
}
