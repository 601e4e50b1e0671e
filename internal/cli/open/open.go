// Package open forwards the manager's page to this machine.
package open

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/joulevirt/joulevirt/internal/cli/access"
	"github.com/joulevirt/joulevirt/internal/cli/doctor"
)

const (
	// tokenLife is the shortest that API servers allow. A new token is requested renewBefore
	// its end.
	tokenLife   = 10 * time.Minute
	renewBefore = 2 * time.Minute
	// managerTimeout is how long the manager may take to begin an answer.
	managerTimeout = 15 * time.Second
)

// Getter reads objects, see access.Cluster.
type Getter interface {
	Get(ctx context.Context, namespace, name string, into client.Object) error
}

// FindLeader returns the pod of the manager that holds the Lease.
func FindLeader(ctx context.Context, reader Getter, namespace string) (string, error) {
	var lease coordinationv1.Lease
	if err := reader.Get(ctx, namespace, doctor.ManagerLease, &lease); err != nil {
		return "", fmt.Errorf("find the manager that leads: %w", err)
	}
	if lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "" {
		return "", fmt.Errorf("no manager leads: nobody holds Lease %s in namespace %s; see kubectl joulevirt doctor", doctor.ManagerLease, namespace)
	}
	pod, _, _ := strings.Cut(*lease.Spec.HolderIdentity, "_")
	return pod, nil
}

// Forward forwards a free local port to one of a pod until the context ends, and returns it once
// it is open. An error that ends it sooner is sent to ended.
func Forward(ctx context.Context, config *rest.Config, namespace, pod string, port int) (local uint16, ended <-chan error, err error) {
	address, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return 0, nil, fmt.Errorf("read the kubeconfig's server: %w", err)
	}
	address = address.JoinPath("api", "v1", "namespaces", namespace, "pods", pod, "portforward")
	transport, upgrader, err := spdy.RoundTripperFor(config)
	if err != nil {
		return 0, nil, fmt.Errorf("read the kubeconfig: %w", err)
	}
	bySPDY := spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: transport}, http.MethodPost, address)
	byWebsocket, err := portforward.NewSPDYOverWebsocketDialerForStreaming(address, config)
	if err != nil {
		return 0, nil, fmt.Errorf("read the kubeconfig: %w", err)
	}
	dialer := portforward.NewFallbackDialerForStreaming(byWebsocket, bySPDY, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	})
	ready := make(chan struct{})
	forwarder, err := portforward.NewOnAddressesForStreaming(dialer, []string{"127.0.0.1"}, []string{fmt.Sprintf("0:%d", port)}, ctx.Done(), ready, io.Discard, io.Discard)
	if err != nil {
		return 0, nil, err
	}
	end := make(chan error, 1)
	go func() { end <- forwarder.ForwardPorts() }()
	select {
	case <-ready:
	case err := <-end:
		return 0, nil, fmt.Errorf("forward a port to pod %s in namespace %s: %w; this needs the right to create pods/portforward there", pod, namespace, err)
	case <-ctx.Done():
		return 0, nil, ctx.Err()
	}
	ports, err := forwarder.GetPorts()
	if err != nil {
		return 0, nil, err
	}
	return ports[0].Local, end, nil
}

// Tokens requests short-lived tokens of a ServiceAccount, which open the page and nothing
// else. It is safe for concurrent use.
type Tokens struct {
	Client  kubernetes.Interface
	Account types.NamespacedName
	Clock   clock.PassiveClock

	mu    sync.Mutex
	token string
	until time.Time
}

// Token returns a token that is valid for a while.
func (t *Tokens) Token(ctx context.Context) (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.Clock.Now().Before(t.until.Add(-renewBefore)) {
		return t.token, nil
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		Audiences: []string{access.PageAudience}, ExpirationSeconds: ptr.To(int64(tokenLife.Seconds())),
	}}
	answer, err := t.Client.CoreV1().ServiceAccounts(t.Account.Namespace).CreateToken(ctx, t.Account.Name, request, metav1.CreateOptions{})
	switch {
	case apierrors.IsForbidden(err):
		return "", fmt.Errorf("you may not create serviceaccounts/token of %s in namespace %s: ask your admin for a RoleBinding to Role joulevirt-page-user there",
			t.Account.Name, t.Account.Namespace)
	case apierrors.IsNotFound(err):
		return "", fmt.Errorf("there is no ServiceAccount %s in namespace %s: apply config/default of this version, or name another by --service-account",
			t.Account.Name, t.Account.Namespace)
	case err != nil:
		return "", fmt.Errorf("request a token of ServiceAccount %s in namespace %s: %w", t.Account.Name, t.Account.Namespace, err)
	}
	t.token, t.until = answer.Status.Token, answer.Status.ExpirationTimestamp.Time
	return t.token, nil
}

// NewProxy returns a handler that serves the page of a manager at a local address, HOST:PORT.
// Browsers that were led there by another host name are refused: a web page elsewhere could
// otherwise read by DNS rebinding. The manager gets no credentials but a token of the account: it
// may have been taken over, and its certificate, which it made itself, is not checked.
func NewProxy(address string, manager *url.URL, tokens *Tokens) http.Handler {
	problem := func(w http.ResponseWriter, _ *http.Request, err error) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadGateway)
		_, _ = fmt.Fprintf(w, `{"message":%q}`, "The manager is not reachable: end kubectl joulevirt page and start it again ("+err.Error()+").")
	}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(manager)
			r.Out.Header.Del("Cookie")
		},
		Transport: newTransport(tokens), ErrorHandler: problem,
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Host != address:
			http.Error(w, "this is served at another address: open the one that kubectl joulevirt page printed", http.StatusMisdirectedRequest)
		case r.URL.Path == "/":
			http.Redirect(w, r, access.PagePath, http.StatusFound)
		default:
			proxy.ServeHTTP(w, r)
		}
	})
}

func newTransport(tokens *Tokens) http.RoundTripper {
	return authorized{tokens, &http.Transport{
		TLSClientConfig:     &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout: managerTimeout, ResponseHeaderTimeout: managerTimeout,
	}}
}

// maxAnswer bounds an answer of the manager: some hundred bytes for each of 50,000 VMs.
const maxAnswer = 16 << 20

// Ask reads a JSON document below the manager's page, with a token of the account as NewProxy.
func Ask(ctx context.Context, manager *url.URL, path string, tokens *Tokens, into any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, manager.JoinPath(path).String(), http.NoBody)
	if err != nil {
		return err
	}
	response, err := (&http.Client{Transport: newTransport(tokens), Timeout: managerTimeout}).Do(request)
	if err != nil {
		return fmt.Errorf("ask the manager: %w", err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %.256s", response.Status, body)
	}
	if err == nil {
		err = json.Unmarshal(body, into)
	}
	if err != nil {
		return fmt.Errorf("ask the manager for %s: %w", path, err)
	}
	return nil
}

// authorized adds tokens to requests.
type authorized struct {
	tokens *Tokens
	next   http.RoundTripper
}

func (a authorized) RoundTrip(r *http.Request) (*http.Response, error) {
	token, err := a.tokens.Token(r.Context())
	if err != nil {
		return nil, err
	}
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+token)
	return a.next.RoundTrip(r)
}
