// Package fleet plays the parts of the product that a test of one of them does
// not run: agents that report and serve rates for nodes that do not exist, and
// a manager inside the test's own process.
package fleet

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/observe/rates"
	"github.com/joulevirt/joulevirt/internal/pki"
)

// certificateLifetime is more than any test lasts.
const certificateLifetime = 24 * time.Hour

// Agents plays the agents of any number of nodes behind one port: the name in
// the TLS handshake tells which node's agent is asked.
type Agents struct {
	authority *pki.Authority
	server    *http.Server
	address   string
	// Faster is how much faster the agents' clocks go than the manager's. It is set before rates are pulled.
	Faster float64
	began  time.Time

	mu sync.Mutex
	// agents by the name that a handshake asks for.
	agents map[string]agent
}

type agent struct {
	certificate *tls.Certificate
	rates       model.NodeRates
}

// NewAgents starts to listen. Close ends it.
func NewAgents() (*Agents, error) { return NewAgentsAt("127.0.0.1") }

// NewAgentsAt listens at an address that the manager reaches.
func NewAgentsAt(address string) (*Agents, error) {
	authority, err := pki.NewAuthority(time.Now())
	if err != nil {
		return nil, err
	}
	a := &Agents{authority: authority, agents: map[string]agent{}, Faster: 1, began: time.Now()}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority.BundlePEM())
	listener, err := tls.Listen("tcp", net.JoinHostPort(address, "0"), &tls.Config{
		MinVersion: tls.VersionTLS13, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: roots,
		GetCertificate: a.certificateFor,
	})
	if err != nil {
		return nil, fmt.Errorf("listen for the agents: %w", err)
	}
	a.address = listener.Addr().String()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/rates", a.serveRates)
	a.server = &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	go func() { _ = a.server.Serve(listener) }()
	return a, nil
}

// Close ends all agents.
func (a *Agents) Close() error { return a.server.Close() }

// Clients returns clients that trust the agents, as the manager uses them.
func (a *Agents) Clients() rates.Clients {
	return pki.NewAgentClients(pki.NewManagerTLS(fixedAuthority{a.authority}, clock.RealClock{}).Settings)
}

// ShareAuthority stores the agents' authority where a manager that runs as a process
// keeps its own, before it starts.
func (a *Agents) ShareAuthority(ctx context.Context, c client.Client, namespace string) error {
	certificate, key, err := a.authority.Encode()
	if err != nil {
		return err
	}
	err = c.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: pki.AuthoritySecret},
		Type:       corev1.SecretTypeTLS,
		Data:       map[string][]byte{corev1.TLSCertKey: certificate, corev1.TLSPrivateKeyKey: key},
	})
	if err != nil {
		return fmt.Errorf("create Secret %s: %w", pki.AuthoritySecret, err)
	}
	return nil
}

type fixedAuthority struct{ authority *pki.Authority }

// Authority implements pki.Authorities.
func (f fixedAuthority) Authority() (*pki.Authority, error) { return f.authority, nil }

// SetRates changes what a node's agent answers; the time of the round is set
// at each answer.
func (a *Agents) SetRates(node string, r model.NodeRates) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	name := pki.ServerName(node)
	known := a.agents[name]
	if known.certificate == nil {
		var err error
		if known.certificate, err = a.issue(node); err != nil {
			return err
		}
	}
	r.Node, r.IntervalSeconds = node, 1
	known.rates = r
	a.agents[name] = known
	return nil
}

// Rates returns what a node's agent would answer now.
func (a *Agents) Rates(node string) (*model.NodeRates, error) {
	known, err := a.agent(pki.ServerName(node))
	known.rates.Time = a.now()
	return &known.rates, err
}

func (a *Agents) now() time.Time {
	return a.began.Add(time.Duration(a.Faster * float64(time.Since(a.began))))
}

// Report writes the NodeReport of a node as its agent would.
func (a *Agents) Report(ctx context.Context, c client.Client, node *corev1.Node, topology v1alpha1.Topology, source v1alpha1.PowerSource) error {
	report := &v1alpha1.NodeReport{ObjectMeta: metav1.ObjectMeta{
		Name:            node.Name,
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}},
	}}
	if err := client.IgnoreAlreadyExists(c.Create(ctx, report)); err != nil {
		return fmt.Errorf("create NodeReport %s: %w", node.Name, err)
	}
	if err := c.Get(ctx, client.ObjectKeyFromObject(report), report); err != nil {
		return fmt.Errorf("get NodeReport %s: %w", node.Name, err)
	}
	now := metav1.Now()
	report.Status = v1alpha1.NodeReportStatus{
		ReportedAt: &now, RatesAddress: a.address, Topology: topology, Power: v1alpha1.Power{Source: source},
	}
	if source == v1alpha1.PowerRAPL {
		watts := int64(100)
		report.Status.Power.Watts = &watts
	}
	if err := c.Status().Update(ctx, report); err != nil {
		return fmt.Errorf("write status of NodeReport %s: %w", node.Name, err)
	}
	return nil
}

func (a *Agents) certificateFor(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	known, err := a.agent(hello.ServerName)
	return known.certificate, err
}

func (a *Agents) serveRates(w http.ResponseWriter, r *http.Request) {
	known, err := a.agent(r.TLS.ServerName)
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	known.rates.Time = a.now()
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(&known.rates) // a client that went needs no answer
}

func (a *Agents) agent(serverName string) (agent, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	known, exists := a.agents[serverName]
	if !exists {
		return agent{}, fmt.Errorf("no agent is named %s", serverName)
	}
	return known, nil
}

func (a *Agents) issue(node string) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("key of the agent of node %s: %w", node, err)
	}
	request, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: node}}, key)
	if err != nil {
		return nil, fmt.Errorf("certificate request of node %s: %w", node, err)
	}
	requestPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: request})
	certPEM, err := a.authority.SignServing(requestPEM, node, time.Now(), certificateLifetime)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode the key of node %s: %w", node, err)
	}
	pair, err := tls.X509KeyPair(certPEM, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}))
	if err != nil {
		return nil, fmt.Errorf("certificate of node %s: %w", node, err)
	}
	return &pair, nil
}
