package pki

import (
	"crypto/x509"
	"encoding/pem"
	"net"
	"os"
	"testing"
	"time"
)

func parse(t *testing.T, text []byte) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode(text)
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return certificate
}

func TestIssuedCertificatesVerify(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	authority, err := NewAuthority("test", now)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := authority.Issue(Identity{
		CommonName: "someone", Organizations: []string{"group"},
		DNSNames: []string{"localhost"}, IPs: []net.IP{net.IPv4(127, 0, 0, 1)},
	})
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(parse(t, authority.Pair.Cert))
	certificate := parse(t, pair.Cert)
	for _, test := range []struct {
		name  string
		at    time.Time
		valid bool
	}{
		{"localhost", now, true},
		{"127.0.0.1", now, true},
		{"localhost", now.Add(-backdate / 2), true},
		{"elsewhere", now, false},
		{"localhost", now.Add(validity + time.Second), false},
	} {
		_, err := certificate.Verify(x509.VerifyOptions{
			Roots: roots, DNSName: test.name, CurrentTime: test.at,
			KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
		})
		if (err == nil) != test.valid {
			t.Errorf("verify for %s at %s: %v, want valid: %v", test.name, test.at, err, test.valid)
		}
	}
	if certificate.Subject.CommonName != "someone" || certificate.Subject.Organization[0] != "group" {
		t.Errorf("subject = %v", certificate.Subject)
	}
}

func TestKeysAreWrittenForTheirOwnerOnly(t *testing.T) {
	pair, err := SigningKey()
	if err != nil {
		t.Fatal(err)
	}
	_, key, err := pair.Write(t.TempDir(), "tokens")
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(key)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("the key's mode is %v, want 0600", info.Mode().Perm())
	}
}
