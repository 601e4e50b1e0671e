// Package pki is the trust between the manager and the agents: a certificate
// authority that the manager keeps in a Secret, serving certificates that
// agents ask for through the cluster's CertificateSigningRequests, and the TLS
// settings of both ends.
package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"time"
)

const (
	// authorityLifetime is long because agents trust only this authority, and
	// a lost one costs no more than a new Secret.
	authorityLifetime = 10 * 365 * 24 * time.Hour
	// backdate allows for clocks that differ between nodes.
	backdate = 5 * time.Minute

	// AuthoritySecret is where the manager keeps its authority.
	AuthoritySecret = "joulevirt-ca"
	// ManagerName is the common name of the manager's client certificates.
	ManagerName = "joulevirt-manager"
	// serverDomain ends the server names of agents. It is never looked up.
	serverDomain = ".agent.joulevirt.io"

	blockCertificate = "CERTIFICATE"
	blockKey         = "EC PRIVATE KEY"
	blockRequest     = "CERTIFICATE REQUEST"
)

// ServerName is the name in the serving certificate of a node's agent. The
// manager asks for it whatever address it dials, so that no agent can answer
// for another node.
func ServerName(node string) string { return node + serverDomain }

// Authority signs the certificates of agents and of the manager. It is
// immutable.
type Authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	// certPEM is the authority's own certificate.
	certPEM []byte
}

// NewAuthority makes an authority with a fresh key.
func NewAuthority(now time.Time) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate the authority's key: %w", err)
	}
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: "joulevirt-ca"},
		NotBefore:             now.Add(-backdate),
		NotAfter:              now.Add(authorityLifetime),
		KeyUsage:              x509.KeyUsageCertSign,
		IsCA:                  true,
		BasicConstraintsValid: true,
		MaxPathLenZero:        true,
	}
	if template.SerialNumber, err = serial(); err != nil {
		return nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("sign the authority's certificate: %w", err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("read back the authority's certificate: %w", err)
	}
	return &Authority{certificate: certificate, key: key, certPEM: encode(blockCertificate, der)}, nil
}

// ParseAuthority reads an authority that Encode wrote. The error says which
// part is wrong.
func ParseAuthority(certPEM, keyPEM []byte) (*Authority, error) {
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, fmt.Errorf("certificate and key of the authority: %w", err)
	}
	key, ok := pair.PrivateKey.(*ecdsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("key of the authority is a %T, want an ECDSA key", pair.PrivateKey)
	}
	if !pair.Leaf.IsCA {
		return nil, fmt.Errorf("certificate %q is not that of an authority", pair.Leaf.Subject.CommonName)
	}
	return &Authority{certificate: pair.Leaf, key: key, certPEM: encode(blockCertificate, pair.Leaf.Raw)}, nil
}

// Encode returns the authority's certificate and key as PEM.
func (a *Authority) Encode() (certPEM, keyPEM []byte, err error) {
	der, err := x509.MarshalECPrivateKey(a.key)
	if err != nil {
		return nil, nil, fmt.Errorf("encode the authority's key: %w", err)
	}
	return a.certPEM, encode(blockKey, der), nil
}

// BundlePEM returns the certificate that the other end must trust.
func (a *Authority) BundlePEM() []byte { return a.certPEM }

// Expires is when the authority ends.
func (a *Authority) Expires() time.Time { return a.certificate.NotAfter }

// SignServing signs the serving certificate of a node's agent over the public
// key of a certificate request. Nothing but the key is taken from the request,
// whose signature proves that the asker holds it.
func (a *Authority) SignServing(requestPEM []byte, node string, now time.Time, lifetime time.Duration) ([]byte, error) {
	block, _ := pem.Decode(requestPEM)
	if block == nil || block.Type != blockRequest {
		return nil, fmt.Errorf("certificate request of node %s: no %s block", node, blockRequest)
	}
	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("certificate request of node %s: %w", node, err)
	}
	if err := request.CheckSignature(); err != nil {
		return nil, fmt.Errorf("certificate request of node %s: %w", node, err)
	}
	return a.sign(&x509.Certificate{
		Subject:     pkix.Name{CommonName: ServerName(node)},
		DNSNames:    []string{ServerName(node)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, request.PublicKey, now, lifetime)
}

// IssueClient makes a client certificate of the manager with a fresh key.
func (a *Authority) IssueClient(now time.Time, lifetime time.Duration) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate the manager's client key: %w", err)
	}
	certPEM, err := a.sign(&x509.Certificate{
		Subject:     pkix.Name{CommonName: ManagerName},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, key.Public(), now, lifetime)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode the manager's client key: %w", err)
	}
	pair, err := tls.X509KeyPair(certPEM, encode(blockKey, der))
	if err != nil {
		return nil, fmt.Errorf("manager's client certificate: %w", err)
	}
	return &pair, nil
}

func (a *Authority) sign(template *x509.Certificate, publicKey any, now time.Time, lifetime time.Duration) ([]byte, error) {
	var err error
	if template.SerialNumber, err = serial(); err != nil {
		return nil, err
	}
	template.NotBefore = now.Add(-backdate)
	template.NotAfter = now.Add(lifetime)
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.BasicConstraintsValid = true
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, publicKey, a.key)
	if err != nil {
		return nil, fmt.Errorf("sign certificate %s: %w", template.Subject.CommonName, err)
	}
	return encode(blockCertificate, der), nil
}

func serial() (*big.Int, error) {
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, fmt.Errorf("draw a serial number: %w", err)
	}
	return n.Add(n, big.NewInt(1)), nil
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
