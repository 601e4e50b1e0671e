package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"

	"github.com/joulevirt/joulevirt/internal/pki"
)

// fileClients reach agents with certificates from files, for clusters whose
// certificates come from elsewhere. The client certificate is read at each
// handshake, so that it can be renewed; the authority is read once.
type fileClients struct {
	caFile, certFile, keyFile string

	roots *x509.CertPool
}

func (c *fileClients) configured() bool { return c.caFile != "" }

func (c *fileClients) validate() error {
	all := c.caFile != "" && c.certFile != "" && c.keyFile != ""
	none := c.caFile == "" && c.certFile == "" && c.keyFile == ""
	if !all && !none {
		return errors.New("--agent-ca-file, --client-cert-file and --client-key-file go together: give all, or none")
	}
	return nil
}

// load reads the authority and tries the certificate.
func (c *fileClients) load() error {
	bundle, err := os.ReadFile(c.caFile)
	if err != nil {
		return fmt.Errorf("--agent-ca-file: %w", err)
	}
	c.roots = x509.NewCertPool()
	if !c.roots.AppendCertsFromPEM(bundle) {
		return fmt.Errorf("--agent-ca-file %s: no certificate in it", c.caFile)
	}
	_, err = c.certificate(nil)
	return err
}

func (c *fileClients) certificate(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	if err != nil {
		return nil, fmt.Errorf("--client-cert-file and --client-key-file: %w", err)
	}
	return &pair, nil
}

// settings are those for a node's agent.
func (c *fileClients) settings(node string) (*tls.Config, error) {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, RootCAs: c.roots,
		ServerName: pki.ServerName(node), GetClientCertificate: c.certificate,
	}, nil
}
