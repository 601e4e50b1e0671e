package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
)

// tlsFiles hold the agent's side of mutual TLS, for clusters whose
// certificates come from elsewhere.
type tlsFiles struct {
	cert, key, clientCA string
}

func (f tlsFiles) configured() bool { return f.cert != "" }

func (f tlsFiles) validate() error {
	all := f.cert != "" && f.key != "" && f.clientCA != ""
	none := f.cert == "" && f.key == "" && f.clientCA == ""
	if !all && !none {
		return errors.New("--tls-cert-file, --tls-key-file and --client-ca-file go together: give all, or none")
	}
	return nil
}

// config reads the files anew at each handshake, so that they can be renewed.
func (f tlsFiles) config() (*tls.Config, error) {
	if _, err := f.read(); err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion:         tls.VersionTLS13,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return f.read() },
	}, nil
}

func (f tlsFiles) read() (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(f.cert, f.key)
	if err != nil {
		return nil, fmt.Errorf("--tls-cert-file and --tls-key-file: %w", err)
	}
	bundle, err := os.ReadFile(f.clientCA)
	if err != nil {
		return nil, fmt.Errorf("--client-ca-file: %w", err)
	}
	clients := x509.NewCertPool()
	if !clients.AppendCertsFromPEM(bundle) {
		return nil, fmt.Errorf("--client-ca-file %s: no certificate in it", f.clientCA)
	}
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{pair},
		ClientAuth:   tls.RequireAndVerifyClientCert,
		ClientCAs:    clients,
	}, nil
}
