package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync"

	"github.com/joulevirt/joulevirt/internal/pki"
)

// fileClients reach agents with certificates from files, for clusters whose
// certificates come from elsewhere. The client certificate is read at each
// handshake, so that it can be renewed; the authority is read once.
type fileClients struct {
	caFile, certFile, keyFile string

	roots  *x509.CertPool
	mu     sync.Mutex
	byNode map[string]*http.Client
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
	if _, err := c.certificate(nil); err != nil {
		return err
	}
	c.byNode = map[string]*http.Client{}
	return nil
}

func (c *fileClients) certificate(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	if err != nil {
		return nil, fmt.Errorf("--client-cert-file and --client-key-file: %w", err)
	}
	return &pair, nil
}

// For returns the client for a node's agent.
func (c *fileClients) For(node string) *http.Client {
	c.mu.Lock()
	defer c.mu.Unlock()
	if client, ok := c.byNode[node]; ok {
		return client
	}
	client := &http.Client{
		Transport: &http.Transport{TLSClientConfig: &tls.Config{
			MinVersion: tls.VersionTLS13, RootCAs: c.roots,
			ServerName: pki.ServerName(node), GetClientCertificate: c.certificate,
		}},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	c.byNode[node] = client
	return client
}

// Forget drops a node's client.
func (c *fileClients) Forget(node string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if client, ok := c.byNode[node]; ok {
		client.CloseIdleConnections()
		delete(c.byNode, node)
	}
}
