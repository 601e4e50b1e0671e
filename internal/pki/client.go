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

// AgentClients gives an HTTP client for each node's agent: one that shows the
// manager's certificate and accepts no other node's agent.
type AgentClients struct {
	authorities Authorities
	clock       clock.PassiveClock

	mu      sync.Mutex
	issuer  *Authority
	client  *tls.Certificate
	byNodes map[string]*http.Client
}

// NewAgentClients returns clients that trust the authority in force.
func NewAgentClients(authorities Authorities, clk clock.PassiveClock) *AgentClients {
	return &AgentClients{authorities: authorities, clock: clk, byNodes: map[string]*http.Client{}}
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

// settings issues the manager's certificate anew when the authority changed or
// half of its life is over.
func (c *AgentClients) settings(node string) (*tls.Config, error) {
	authority, err := c.authorities.Authority()
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.clock.Now()
	if c.issuer == nil || !c.issuer.certificate.Equal(authority.certificate) ||
		now.After(c.client.Leaf.NotAfter.Add(-clientLifetime/2)) {
		client, err := authority.IssueClient(now, clientLifetime)
		if err != nil {
			return nil, err
		}
		c.issuer, c.client = authority, client
	}
	roots := x509.NewCertPool()
	roots.AddCert(authority.certificate)
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		RootCAs:      roots,
		ServerName:   ServerName(node),
		Certificates: []tls.Certificate{*c.client},
		Time:         c.clock.Now,
	}, nil
}
