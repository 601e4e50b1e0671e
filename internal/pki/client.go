package pki

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

const (
	// clientLifetime of the manager's certificate: made in memory, so short.
	clientLifetime = 24 * time.Hour
	dialTimeout    = 5 * time.Second
	idleTimeout    = 2 * time.Minute
)

// Authorities gives the authority in force. Keeper is one.
type Authorities interface {
	Authority() (*Authority, error)
}

// ManagerTLS is the manager's side of mutual TLS: it shows a certificate of the
// authority in force, issued in memory, and accepts no other node's agent.
type ManagerTLS struct {
	authorities Authorities
	clock       clock.PassiveClock

	mu     sync.Mutex
	issuer *Authority
	client *tls.Certificate
}

// NewManagerTLS returns settings that follow the authority in force.
func NewManagerTLS(authorities Authorities, clk clock.PassiveClock) *ManagerTLS {
	return &ManagerTLS{authorities: authorities, clock: clk}
}

// AgentClients gives an HTTP client for each node's agent.
type AgentClients struct {
	settings func(node string) (*tls.Config, error)

	mu      sync.Mutex
	byNodes map[string]*http.Client
}

// NewAgentClients returns clients that take the TLS settings for a node's agent
// anew for each connection.
func NewAgentClients(settings func(node string) (*tls.Config, error)) *AgentClients {
	return &AgentClients{settings: settings, byNodes: map[string]*http.Client{}}
}

// For returns the client for a node's agent. It keeps its connections until
// Forget.
func (c *AgentClients) For(node string) *http.Client {
	c.mu.Lock()
	defer c.mu.Unlock()
	if client, ok := c.byNodes[node]; ok {
		return client
	}
	client := &http.Client{
		Transport: &http.Transport{
			DialTLSContext: func(ctx context.Context, network, address string) (net.Conn, error) {
				return c.dial(ctx, network, address, node)
			},
			IdleConnTimeout:     idleTimeout,
			MaxIdleConnsPerHost: 1,
		},
		// An agent has nowhere to send the manager.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	c.byNodes[node] = client
	return client
}

// Forget closes a node's idle connections and drops its client.
func (c *AgentClients) Forget(node string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if client, ok := c.byNodes[node]; ok {
		client.CloseIdleConnections()
		delete(c.byNodes, node)
	}
}

func (c *AgentClients) dial(ctx context.Context, network, address, node string) (net.Conn, error) {
	settings, err := c.settings(node)
	if err != nil {
		return nil, err
	}
	dialer := tls.Dialer{NetDialer: &net.Dialer{Timeout: dialTimeout}, Config: settings}
	return dialer.DialContext(ctx, network, address)
}

// Settings are those for a node's agent. The manager's certificate is issued
// anew when the authority changed or half of its life is over.
func (m *ManagerTLS) Settings(node string) (*tls.Config, error) {
	authority, err := m.authorities.Authority()
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.clock.Now()
	if m.issuer == nil || !m.issuer.certificate.Equal(authority.certificate) ||
		now.After(m.client.Leaf.NotAfter.Add(-clientLifetime/2)) {
		client, err := authority.IssueClient(now, clientLifetime)
		if err != nil {
			return nil, err
		}
		m.issuer, m.client = authority, client
	}
	roots := x509.NewCertPool()
	roots.AddCert(authority.certificate)
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		RootCAs:      roots,
		ServerName:   ServerName(node),
		Certificates: []tls.Certificate{*m.client},
		Time:         m.clock.Now,
	}, nil
}
