package energy

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"
	"time"
)

// pair returns a certificate and its key.
func pair(t *testing.T) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "c"}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER})
}

func TestCredentials(t *testing.T) {
	cert, key := pair(t)
	_, another := pair(t)
	data := func(pairs ...string) map[string][]byte {
		out := map[string][]byte{}
		for i := 0; i < len(pairs); i += 2 {
			out[pairs[i]] = []byte(pairs[i+1])
		}
		return out
	}
	for name, test := range map[string]struct {
		url  string
		data map[string][]byte
		// refused are words of the message. None: accepted.
		refused []string
	}{
		"token":             {"https://p", data("token", "abc.def-_~+/="), nil},
		"token, line end":   {"https://p", data("token", "abc\n"), nil},
		"everything":        {"https://p", data("token", "abc", "ca.crt", string(cert), "tls.crt", string(cert), "tls.key", string(key)), nil},
		"authority only":    {"https://p", data("ca.crt", string(cert)), nil},
		"pair over http":    {"http://p", data("tls.crt", string(cert), "tls.key", string(key)), nil},
		"token over http":   {"http://p", data("token", "abc"), []string{"token", "https only", "change url"}},
		"token, upper case": {"HTTPS://p", data("token", "abc"), nil},
		"empty":             {"https://p", data(), []string{"token", "ca.crt", "tls.crt", "tls.key"}},
		"another's keys":    {"https://p", data("password", "abc"), []string{"none of the keys token"}},
		"token of blanks":   {"https://p", data("token", " \n"), []string{"none of the keys token"}},
		"two lines":         {"https://p", data("token", "abc\ndef"), []string{"token", "bare token"}},
		"header in a token": {"https://p", data("token", "abc\r\nX-Admin: 1"), []string{"token"}},
		"no key":            {"https://p", data("tls.crt", string(cert)), []string{"tls.crt without tls.key"}},
		"no certificate":    {"https://p", data("tls.key", string(key)), []string{"tls.key without tls.crt"}},
		"not a pair":        {"https://p", data("tls.crt", string(cert), "tls.key", string(another)), []string{"tls.crt and tls.key"}},
		"not an authority":  {"https://p", data("ca.crt", "-----"), []string{"ca.crt", "PEM"}},
		"key as authority":  {"https://p", data("ca.crt", string(key)), []string{"ca.crt"}},
		"a very long token": {"https://p", data("token", strings.Repeat("x", 1<<16)), nil},
	} {
		got, refusal := credentials(Server{URL: test.url, Secret: "reader"}, test.data)
		if (refusal != nil) != (test.refused != nil) {
			t.Errorf("%s: refused: %v, want %v", name, refusal, test.refused)
			continue
		}
		if refusal == nil {
			if strings.ContainsAny(string(got.Token), " \n") {
				t.Errorf("%s: token %q", name, got.Token)
			}
			continue
		}
		if refusal.Reason != ReasonCredentials || !got.Equal(Credentials{}) {
			t.Errorf("%s: %v, and yet %v", name, refusal, got)
		}
		for _, word := range append(test.refused, "Secret reader") {
			if !strings.Contains(refusal.Message, word) {
				t.Errorf("%s: %q does not say %q", name, refusal.Message, word)
			}
		}
		for _, secret := range test.data {
			if len(secret) > 5 && strings.Contains(refusal.Message, string(secret)) {
				t.Errorf("%s: the message holds what the Secret does: %q", name, refusal.Message)
			}
		}
	}
}

func TestServerHidesItsPassword(t *testing.T) {
	for url, want := range map[string]string{
		"https://user:pass@p:9090/x?token=1": "https://user:xxxxx@p:9090/x",
		"https://p/#token=1":                 "https://p/",
		"http://p":                           "http://p",
		"http://p:x%zz":                      "(not a URL)",
	} {
		if got := (Server{URL: url}).String(); got != want {
			t.Errorf("%s shows as %s, want %s", url, got, want)
		}
	}
}
