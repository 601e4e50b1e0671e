package gateway

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"
)

// handshake is how long a connection to the VM with TLS may take.
const handshake = 10 * time.Second

// ErrTLS is returned where the owner has to correct the Secret, or what the VM serves.
var ErrTLS = errors.New("TLS")

// certificate is that of a Secret of type kubernetes.io/tls, mounted at dir. nginx reads it there.
type certificate struct {
	dir string
	// read is what was read of it last, and expires when it ends.
	read    []byte
	expires time.Time
	// vm is how the VM is verified: against ca.crt, or tls.crt where the Secret lacks it, and by the first name
	// of tls.crt.
	vm atomic.Pointer[tls.Config]
}

// load reads the certificate, and reports whether it is another one than before.
func (c *certificate) load() (changed bool, err error) {
	var files [3][]byte
	for i, name := range []string{"tls.crt", "tls.key", "ca.crt"} {
		files[i], err = os.ReadFile(filepath.Join(c.dir, name))
		if err != nil && (name != "ca.crt" || !errors.Is(err, fs.ErrNotExist)) {
			return false, fmt.Errorf("%w: %w: create the Secret with type kubernetes.io/tls, such as by a Certificate of cert-manager", ErrTLS, err)
		}
	}
	crt, key, ca := files[0], files[1], files[2]
	pair, err := tls.X509KeyPair(crt, key)
	if err != nil {
		return false, fmt.Errorf("%w: tls.crt and tls.key: %w: renew both together", ErrTLS, err)
	}
	if time.Now().After(pair.Leaf.NotAfter) {
		return false, fmt.Errorf("%w: tls.crt expired at %s: renew it", ErrTLS, pair.Leaf.NotAfter.Format(time.RFC3339))
	}
	name := nameOf(pair.Leaf)
	if name == "" {
		return false, fmt.Errorf("%w: tls.crt has no name to verify the VM by: issue it for the DNS name of the Service, in dnsNames of a Certificate", ErrTLS)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(cmp.Or(strings.TrimSpace(string(ca)), string(crt)))) {
		return false, fmt.Errorf("%w: ca.crt has no certificate: put the issuer's there in PEM, or remove it", ErrTLS)
	}
	read := bytes.Join(files[:], nil)
	if bytes.Equal(read, c.read) {
		return false, nil
	}
	c.read, c.expires = read, pair.Leaf.NotAfter
	c.vm.Store(&tls.Config{ServerName: name, RootCAs: roots, MinVersion: tls.VersionTLS12})
	return true, nil
}

// nameOf is the name that a certificate is first for. Of a wildcard it is some name that it is for.
func nameOf(leaf *x509.Certificate) string {
	switch {
	case len(leaf.DNSNames) > 0:
		return strings.Replace(leaf.DNSNames[0], "*", "gateway", 1)
	case len(leaf.IPAddresses) > 0:
		return leaf.IPAddresses[0].String()
	}
	return ""
}

// dial connects to the VM, and verifies it.
func (c *certificate) dial(ctx context.Context, network, address string) (net.Conn, error) {
	dialer := tls.Dialer{NetDialer: &net.Dialer{Timeout: handshake}, Config: c.vm.Load()}
	return dialer.DialContext(ctx, network, address)
}

// verifyVM returns an error if the VM answers without TLS, or with a certificate that does not fit. That it
// does not answer may pass.
func (c *certificate) verifyVM(ctx context.Context, address string) error {
	conn, err := c.dial(ctx, "tcp", address)
	var unverified *tls.CertificateVerificationError
	var plain tls.RecordHeaderError
	switch {
	case err == nil:
		return conn.Close()
	case errors.As(err, &unverified), errors.As(err, &plain):
		return fmt.Errorf("%w: the VM at %s: %w: have it serve TLS with a certificate of the same issuer, for %s", ErrTLS, address, err, c.vm.Load().ServerName)
	}
	return nil
}

// prepareTLS reads the certificate, and verifies the VM by it.
func (g *gateway) prepareTLS(ctx context.Context) error {
	if g.TLS == "" {
		return nil
	}
	g.certificate = &certificate{dir: g.TLS}
	if _, err := g.certificate.load(); err != nil {
		return err
	}
	return g.certificate.verifyVM(ctx, g.Upstream)
}

// renew has nginx take up the Secret's certificate when it has changed. One that cannot be used is logged,
// and an error once the earlier one has expired.
func (g *gateway) renew(ctx context.Context) error {
	if g.certificate == nil {
		return nil
	}
	changed, err := g.certificate.load()
	switch {
	case err != nil && time.Now().After(g.certificate.expires):
		return err
	case err != nil:
		g.log.WarnContext(ctx, "the certificate of before stays", "expires", g.certificate.expires, "error", err)
	case changed:
		g.log.InfoContext(ctx, "the certificate was renewed", "expires", g.certificate.expires)
		return g.reload()
	}
	return nil
}
