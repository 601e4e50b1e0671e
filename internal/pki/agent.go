package pki

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/certificate"
	"k8s.io/klog/v2"
)

const (
	// AgentSigner names the signer of agents' serving certificates.
	AgentSigner = "joulevirt.io/agent-serving"
	// BundleConfigMap is where agents find the authority to trust, under
	// BundleKey.
	BundleConfigMap = "joulevirt-agent-ca"
	// BundleKey is the key of the authority's certificate in BundleConfigMap.
	BundleKey = "ca.crt"
	// ServingLifetime of an agent's certificate. It is renewed well before.
	ServingLifetime = 7 * 24 * time.Hour

	bundleRefresh = time.Minute
	bundleRetry   = time.Second
)

// AgentUsages are the key usages that an agent asks for and is given.
func AgentUsages() []certificatesv1.KeyUsage {
	return []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth}
}

// AgentTLS is the serving side of an agent: a certificate that the manager
// signed, renewed in time, and only the manager let in.
type AgentTLS struct {
	clients   kubernetes.Interface
	node      string
	namespace string
	log       logr.Logger

	serving atomic.Pointer[certificate.Manager]
	trusted atomic.Pointer[x509.CertPool]
}

// NewAgentTLS prepares the serving side of a node's agent. namespace is where
// the authority's bundle is found. Nothing is asked of the cluster before Run.
func NewAgentTLS(clients kubernetes.Interface, node, namespace string, log logr.Logger) *AgentTLS {
	return &AgentTLS{clients: clients, node: node, namespace: namespace, log: log}
}

// Run asks for a certificate and keeps it and the trusted authority fresh
// until the context ends.
func (a *AgentTLS) Run(ctx context.Context) error {
	stop, err := a.request(ctx)
	if err != nil {
		return err
	}
	defer func() { stop() }()
	said := ""
	for {
		delay := bundleRefresh
		if err := a.refresh(ctx); err != nil {
			// Said once: an agent may be there long before its manager.
			if said != err.Error() {
				said = err.Error()
				a.log.Info("authority not read: /v1/rates keeps to the last one, if any", "reason", said)
			}
			delay = bundleRetry
		}
		if !a.servingIsTrusted() {
			a.log.Info("authority changed: asking for a new serving certificate")
			stop()
			if stop, err = a.request(ctx); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait.Jitter(delay, 0.2)):
		}
	}
}

// request starts to ask for a serving certificate, and to renew it, until the
// returned function is called.
func (a *AgentTLS) request(ctx context.Context) (context.CancelFunc, error) {
	ctx, cancel := context.WithCancel(klog.NewContext(ctx, a.log))
	lifetime := ServingLifetime
	manager, err := certificate.NewManager(&certificate.Config{
		ClientsetFn: func(*tls.Certificate) (kubernetes.Interface, error) { return a.clients, nil },
		Template: &x509.CertificateRequest{
			Subject:  pkix.Name{CommonName: ServerName(a.node)},
			DNSNames: []string{ServerName(a.node)},
		},
		SignerName:                   AgentSigner,
		RequestedCertificateLifetime: &lifetime,
		Usages:                       AgentUsages(),
		CertificateStore:             &memoryStore{},
		Name:                         "agent-serving",
		Ctx:                          &ctx,
	})
	if err != nil {
		cancel()
		return nil, fmt.Errorf("serving certificate of node %s: %w", a.node, err)
	}
	manager.Start()
	a.serving.Store(&manager)
	return cancel, nil
}

// current is the serving certificate, nil until there is a valid one.
func (a *AgentTLS) current() *tls.Certificate {
	if manager := a.serving.Load(); manager != nil {
		return (*manager).Current()
	}
	return nil
}

// Expires is when the serving certificate ends. False: there is none yet.
func (a *AgentTLS) Expires() (time.Time, bool) {
	if serving := a.current(); serving != nil && serving.Leaf != nil {
		return serving.Leaf.NotAfter, true
	}
	return time.Time{}, false
}

// servingIsTrusted is false when the manager would refuse the certificate that
// it signed itself with an authority that is gone.
func (a *AgentTLS) servingIsTrusted() bool {
	serving, trusted := a.current(), a.trusted.Load()
	if serving == nil || trusted == nil {
		return true
	}
	_, err := serving.Leaf.Verify(x509.VerifyOptions{Roots: trusted, DNSName: ServerName(a.node)})
	return err == nil
}

func (a *AgentTLS) refresh(ctx context.Context) error {
	bundle, err := a.clients.CoreV1().ConfigMaps(a.namespace).Get(ctx, BundleConfigMap, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("ConfigMap %s/%s, which the manager writes: %w", a.namespace, BundleConfigMap, err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM([]byte(bundle.Data[BundleKey])) {
		return fmt.Errorf("ConfigMap %s/%s: key %s holds no certificate", a.namespace, BundleConfigMap, BundleKey)
	}
	a.trusted.Store(pool)
	return nil
}

// Config returns TLS settings that follow renewals. Handshakes fail until the
// certificate and the authority are there.
func (a *AgentTLS) Config() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			serving, trusted := a.current(), a.trusted.Load()
			if serving == nil {
				return nil, errors.New("no serving certificate yet: its CertificateSigningRequest awaits the manager")
			}
			if trusted == nil {
				return nil, errors.New("no authority yet: its ConfigMap awaits the manager")
			}
			return &tls.Config{
				MinVersion:       tls.VersionTLS13,
				Certificates:     []tls.Certificate{*serving},
				ClientAuth:       tls.RequireAndVerifyClientCert,
				ClientCAs:        trusted,
				VerifyConnection: onlyManager,
			}, nil
		},
	}
}

// onlyManager refuses every client but the manager: the authority signs
// certificates of agents too.
func onlyManager(state tls.ConnectionState) error {
	if name := state.PeerCertificates[0].Subject.CommonName; name != ManagerName {
		return fmt.Errorf("client certificate is of %.64q: only %s may ask", name, ManagerName)
	}
	return nil
}

// memoryStore keeps the certificate in memory: an agent that restarts asks for
// a new one, and no key ever lies on the node's disk.
type memoryStore struct {
	current atomic.Pointer[tls.Certificate]
}

func (s *memoryStore) Current() (*tls.Certificate, error) {
	if c := s.current.Load(); c != nil {
		return c, nil
	}
	return nil, new(certificate.NoCertKeyError)
}

func (s *memoryStore) Update(certPEM, keyPEM []byte) (*tls.Certificate, error) {
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, fmt.Errorf("certificate from signer %s: %w", AgentSigner, err)
	}
	s.current.Store(&pair)
	return &pair, nil
}
