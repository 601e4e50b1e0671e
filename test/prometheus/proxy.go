package prometheus

import (
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync"
)

// Proxy stands before a Server as kube-rbac-proxy and others do: it serves TLS
// and asks for a bearer token.
type Proxy struct {
	// URL of the proxy.
	URL string
	// CA is the authority of its certificate, PEM.
	CA []byte

	server *httptest.Server

	mu     sync.Mutex
	tokens map[string]int
	agents map[string]bool
}

// NewProxy starts a proxy. Call Close to end it.
func NewProxy(to *Server) (*Proxy, error) {
	address, err := url.Parse(to.URL)
	if err != nil {
		return nil, fmt.Errorf("URL of the Prometheus server: %w", err)
	}
	p := &Proxy{tokens: map[string]int{}, agents: map[string]bool{}}
	next := httputil.NewSingleHostReverseProxy(address)
	p.server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if status := p.judge(r); status != http.StatusOK {
			http.Error(w, http.StatusText(status), status)
			return
		}
		next.ServeHTTP(w, r)
	}))
	p.URL = p.server.URL
	p.CA = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.server.Certificate().Raw})
	return p, nil
}

// Close ends the proxy.
func (p *Proxy) Close() { p.server.Close() }

// Admit lets requests with a token pass.
func (p *Proxy) Admit(token string) { p.set(token, http.StatusOK) }

// Expire lets requests with a token fail as those without one do.
func (p *Proxy) Expire(token string) { p.set(token, http.StatusUnauthorized) }

// ReadOnly lets requests with a token pass when they only read by their method:
// kube-rbac-proxy asks for the verb create when it is POST.
func (p *Proxy) ReadOnly(token string) { p.set(token, http.StatusForbidden) }

// UserAgents returns who asked.
func (p *Proxy) UserAgents() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []string
	for agent := range p.agents {
		all = append(all, agent)
	}
	return all
}

func (p *Proxy) set(token string, status int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tokens["Bearer "+token] = status
}

func (p *Proxy) judge(r *http.Request) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.agents[r.UserAgent()] = true
	status, known := p.tokens[r.Header.Get("Authorization")]
	switch {
	case !known:
		return http.StatusUnauthorized
	case status == http.StatusForbidden && r.Method == http.MethodGet:
		return http.StatusOK
	}
	return status
}
