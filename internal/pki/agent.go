package pki

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
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

	// checkInterval is how often the authority is read. What fails is tried again after
	// leastRetry, and ever later: thousands of agents may wait for a manager that is not there.
	checkInterval         = time.Minute
	leastRetry, mostRetry = time.Second, 30 * time.Second

	requests = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
)

// AgentUsages are the key usages that an agent asks for and is given.
func AgentUsages() []certificatesv1.KeyUsage {
	return []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth}
}

// API reads and creates objects of the API server by their paths. A kube.Client is one.
type API interface {
	Get(ctx context.Context, path string, into runtime.Object) error
	Create(ctx context.Context, path string, object runtime.Object) error
}

// AgentTLS is the serving side of an agent: a certificate that the manager
// signed, renewed in time, and only the manager let in. It is in memory: an agent that starts
// again asks for a new one, and no key ever lies on the node's disk.
type AgentTLS struct {
	api       API
	node      string
	namespace string
	log       logr.Logger

	serving atomic.Pointer[tls.Certificate]
	trusted atomic.Pointer[x509.CertPool]
	// renewAt is when the serving certificate is to be replaced.
	renewAt time.Time
	// request is the name of the CertificateSigningRequest that awaits the manager, and key its
	// key. Empty: none does.
	request string
	key     []byte
}

// NewAgentTLS prepares the serving side of a node's agent. namespace is where
// the authority's bundle is found. Nothing is asked of the cluster before Run.
func NewAgentTLS(api API, node, namespace string, log logr.Logger) *AgentTLS {
	return &AgentTLS{api: api, node: node, namespace: namespace, log: log}
}

// Run asks for a certificate and keeps it and the trusted authority fresh
// until the context ends.
func (a *AgentTLS) Run(ctx context.Context) error {
	retry, said := newRetry(), ""
	for {
		delay := checkInterval
		if err := errors.Join(a.refresh(ctx), a.renew(ctx)); err != nil {
			// Said once: an agent may be there long before its manager.
			if said != err.Error() && ctx.Err() == nil {
				said = err.Error()
				a.log.Info("/v1/rates keeps to the certificates that it has, if any", "reason", said)
			}
			delay = retry.Step()
		} else {
			retry, said = newRetry(), ""
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait.Jitter(delay, 0.2)):
		}
	}
}

func newRetry() *wait.Backoff {
	const steps = 100 // more than until the cap
	return &wait.Backoff{Duration: leastRetry, Factor: 2, Steps: steps, Cap: mostRetry}
}

// renew asks for a certificate when that is due, and takes it once the manager has signed it.
func (a *AgentTLS) renew(ctx context.Context) error {
	if a.current() != nil && a.servingIsTrusted() && time.Now().Before(a.renewAt) {
		return nil
	}
	if a.request == "" {
		if err := a.ask(ctx); err != nil {
			return fmt.Errorf("ask for the serving certificate of node %s: %w", a.node, err)
		}
	}
	var request certificatesv1.CertificateSigningRequest
	err := a.api.Get(ctx, requests+"/"+a.request, &request)
	if err == nil {
		err = refusalOf(&request)
	}
	switch {
	case apierrors.IsNotFound(err) || errors.Is(err, errRefused):
		a.request = "" // the next one may be signed
		fallthrough
	case err != nil:
		return fmt.Errorf("serving certificate of node %s: %w", a.node, err)
	case len(request.Status.Certificate) == 0:
		return fmt.Errorf("serving certificate of node %s: its CertificateSigningRequest awaits the manager", a.node)
	}
	a.request = ""
	pair, err := tls.X509KeyPair(request.Status.Certificate, a.key)
	if err != nil {
		return fmt.Errorf("certificate from signer %s: %w", AgentSigner, err)
	}
	a.serving.Store(&pair)
	a.renewAt = time.Now().Add(wait.Jitter(time.Until(pair.Leaf.NotAfter)*7/10, 0.25))
	return nil
}

var errRefused = errors.New("its CertificateSigningRequest was refused")

func refusalOf(request *certificatesv1.CertificateSigningRequest) error {
	for _, c := range request.Status.Conditions {
		if c.Type != certificatesv1.CertificateApproved && c.Status == corev1.ConditionTrue {
			return fmt.Errorf("%w: %s: %s", errRefused, c.Reason, c.Message)
		}
	}
	return nil
}

// ask creates a key and a CertificateSigningRequest for it.
func (a *AgentTLS) ask(ctx context.Context) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject:  pkix.Name{CommonName: ServerName(a.node)},
		DNSNames: []string{ServerName(a.node)},
	}, key)
	if err != nil {
		return err
	}
	request := &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "joulevirt-agent-"},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request: encode(blockRequest, der), SignerName: AgentSigner, Usages: AgentUsages(),
			ExpirationSeconds: ptr.To(int32(ServingLifetime / time.Second)),
		},
	}
	if err := a.api.Create(ctx, requests, request); err != nil {
		return err
	}
	a.request, a.key = request.Name, encode(blockKey, keyDER)
	return nil
}

// current is the serving certificate, nil until there is a valid one.
func (a *AgentTLS) current() *tls.Certificate {
	serving := a.serving.Load()
	if serving == nil || time.Now().After(serving.Leaf.NotAfter) {
		return nil
	}
	return serving
}

// Expires is when the serving certificate ends. False: there is none yet.
func (a *AgentTLS) Expires() (time.Time, bool) {
	if serving := a.current(); serving != nil {
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
	var bundle corev1.ConfigMap
	if err := a.api.Get(ctx, "/api/v1/namespaces/"+a.namespace+"/configmaps/"+BundleConfigMap, &bundle); err != nil {
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
