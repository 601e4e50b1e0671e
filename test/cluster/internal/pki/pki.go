// Package pki makes the keys and certificates of a test cluster.
package pki

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
	"os"
	"path/filepath"
	"time"
)

// validity outlives any test run or demo; a little of it lies in the past, so
// that clocks set back by some minutes do not matter.
const (
	validity = 30 * 24 * time.Hour
	backdate = time.Hour
)

// Authority signs certificates.
type Authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	now         time.Time
	// Pair is the authority's own certificate and key.
	Pair Pair
}

// Pair is a PEM-encoded certificate (or public key) and its private key.
type Pair struct{ Cert, Key []byte }

// Identity is what a certificate says.
type Identity struct {
	CommonName    string
	Organizations []string
	DNSNames      []string
	IPs           []net.IP
}

// NewAuthority returns a self-signed authority, valid around now.
func NewAuthority(name string, now time.Time) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make the key of %s: %w", name, err)
	}
	template, err := template(Identity{CommonName: name}, now)
	if err != nil {
		return nil, err
	}
	template.IsCA = true
	template.KeyUsage |= x509.KeyUsageCertSign
	certificate, pair, err := sign(template, template, key, key)
	if err != nil {
		return nil, fmt.Errorf("certificate of %s: %w", name, err)
	}
	return &Authority{certificate: certificate, key: key, now: now, Pair: pair}, nil
}

// Issue returns a certificate that serves as server's and as client's.
func (a *Authority) Issue(identity Identity) (Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, fmt.Errorf("make the key of %s: %w", identity.CommonName, err)
	}
	template, err := template(identity, a.now)
	if err != nil {
		return Pair{}, err
	}
	_, pair, err := sign(template, a.certificate, key, a.key)
	if err != nil {
		return Pair{}, fmt.Errorf("certificate of %s: %w", identity.CommonName, err)
	}
	return pair, nil
}

// SigningKey returns a key pair for signing tokens; Cert holds the public key.
func SigningKey() (Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, fmt.Errorf("make a signing key: %w", err)
	}
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return Pair{}, fmt.Errorf("encode a public key: %w", err)
	}
	private, err := encodeKey(key)
	if err != nil {
		return Pair{}, err
	}
	return Pair{Cert: encode("PUBLIC KEY", public), Key: private}, nil
}

// Write stores the pair as NAME.crt and NAME.key in dir.
func (p Pair) Write(dir, name string) (certFile, keyFile string, err error) {
	certFile, keyFile = filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")
	if err := os.WriteFile(certFile, p.Cert, 0o644); err != nil {
		return "", "", fmt.Errorf("write a certificate: %w", err)
	}
	if err := os.WriteFile(keyFile, p.Key, 0o600); err != nil {
		return "", "", fmt.Errorf("write a key: %w", err)
	}
	return certFile, keyFile, nil
}

func template(identity Identity, now time.Time) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("draw a serial number: %w", err)
	}
	return &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: identity.CommonName, Organization: identity.Organizations},
		DNSNames:              identity.DNSNames,
		IPAddresses:           identity.IPs,
		NotBefore:             now.Add(-backdate),
		NotAfter:              now.Add(validity),
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		BasicConstraintsValid: true,
	}, nil
}

func sign(template, parent *x509.Certificate, key, signer *ecdsa.PrivateKey) (*x509.Certificate, Pair, error) {
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		return nil, Pair{}, err
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, Pair{}, err
	}
	private, err := encodeKey(key)
	if err != nil {
		return nil, Pair{}, err
	}
	return certificate, Pair{Cert: encode("CERTIFICATE", der), Key: private}, nil
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode a private key: %w", err)
	}
	return encode("EC PRIVATE KEY", der), nil
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
