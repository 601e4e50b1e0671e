package energy

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"net/url"

	corev1 "k8s.io/api/core/v1"
)

// Keys of a Secret with credentials for a Prometheus server. All are optional,
// but at least one is needed, and the certificate goes with its key.
const (
	KeyToken = "token"
	KeyCA    = "ca.crt"
	KeyCert  = corev1.TLSCertKey
	KeyKey   = corev1.TLSPrivateKeyKey
)

// Credentials are how the manager shows a server who it is, and knows the
// server. They must not be logged.
type Credentials struct {
	// Token is a bearer token.
	Token []byte
	// CA is the authority of the server's certificate, in PEM. Empty: those of
	// the system.
	CA []byte
	// Cert and Key are the manager's own certificate, in PEM.
	Cert, Key []byte
}

// Equal reports whether two credentials are the same.
func (c Credentials) Equal(other Credentials) bool {
	return bytes.Equal(c.Token, other.Token) && bytes.Equal(c.CA, other.CA) &&
		bytes.Equal(c.Cert, other.Cert) && bytes.Equal(c.Key, other.Key)
}

// Secrets reads Secrets as they are now, not as they were cached. An error that
// only a person can help against wraps a Refusal.
type Secrets interface {
	Secret(ctx context.Context, name string) (map[string][]byte, error)
}

// ReadCredentials reads those of a server, if it needs any. An error without a Refusal says
// that the Secret could not be asked for.
func ReadCredentials(ctx context.Context, secrets Secrets, server Server) (Credentials, error) {
	if server.Secret == "" {
		return Credentials{}, nil
	}
	data, err := secrets.Secret(ctx, server.Secret)
	if err != nil {
		return Credentials{}, err
	}
	taken, refusal := credentials(server, data)
	if refusal != nil {
		return Credentials{}, refusal
	}
	return taken, nil
}

// unread is an error of ReadCredentials as a Refusal.
func unread(server Server, err error) error {
	if RefusalIn(err) != nil {
		return err
	}
	return Refuse(ReasonCredentials, "Secret %s cannot be read: %v", server.Secret, err)
}

// credentials takes those of a server from the data of its Secret. What is
// refused names the Secret and the key.
//
// A token is only sent over https: in clear, everybody on the way could take it
// and read all of the cluster's metrics, or whatever else it opens.
func credentials(server Server, data map[string][]byte) (Credentials, *Refusal) {
	c := Credentials{Token: bytes.TrimSpace(data[KeyToken]), CA: data[KeyCA], Cert: data[KeyCert], Key: data[KeyKey]}
	refuse := func(format string, args ...any) (Credentials, *Refusal) {
		return Credentials{}, Refuse(ReasonCredentials, "Secret "+server.Secret+" "+format, args...)
	}
	switch {
	case len(c.Token)+len(c.CA)+len(c.Cert)+len(c.Key) == 0:
		return refuse("has none of the keys %s, %s, %s and %s: add what the server asks for, or remove secret from the policy",
			KeyToken, KeyCA, KeyCert, KeyKey)
	case len(c.Cert) > 0 && len(c.Key) == 0:
		return refuse("has %s without %s: add the certificate's private key", KeyCert, KeyKey)
	case len(c.Key) > 0 && len(c.Cert) == 0:
		return refuse("has %s without %s: add the key's certificate", KeyKey, KeyCert)
	case bytes.ContainsFunc(c.Token, func(r rune) bool { return r <= ' ' || r >= 0x7f }):
		return refuse("has a %s with blanks or characters that no token has: write the bare token", KeyToken)
	case len(c.Token) > 0 && !isHTTPS(server.URL):
		return refuse("has a %s, which is sent over https only: change url from http to https, or remove the %s", KeyToken, KeyToken)
	case len(c.CA) > 0 && !x509.NewCertPool().AppendCertsFromPEM(c.CA):
		return refuse("has no certificate in %s: write the PEM of the server's authority", KeyCA)
	}
	if len(c.Cert) > 0 {
		if _, err := tls.X509KeyPair(c.Cert, c.Key); err != nil {
			return refuse("has no usable pair in %s and %s: %v", KeyCert, KeyKey, err)
		}
	}
	return c, nil
}

func isHTTPS(address string) bool {
	parsed, err := url.Parse(address)
	return err == nil && parsed.Scheme == "https"
}
