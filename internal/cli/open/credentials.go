// Package open opens the manager's page with the rights of a kubeconfig's user.
package open

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
)

const (
	// lentFor is how long a token of the viewer's ServiceAccount is valid, and renewBefore its
	// end another is asked for.
	lentFor     = time.Hour
	renewBefore = 10 * time.Minute
	// authorization is the header that has a token.
	authorization = "Authorization"
)

// Credentials add the token of a kubeconfig's user to requests, or, for a user who has none, one
// that is lent by a ServiceAccount that may only read.
type Credentials struct {
	// Tokens makes tokens, of Account.
	Tokens  kubernetes.Interface
	Account types.NamespacedName
	Clock   clock.PassiveClock

	mu    sync.Mutex
	token string
	until time.Time
}

// Transport returns one that sends requests by base, with a token. It fails where there is none
// and none is lent.
func (c *Credentials) Transport(ctx context.Context, config *rest.Config, base http.RoundTripper) (http.RoundTripper, error) {
	if config.Impersonate.UserName != "" {
		return nil, errors.New("--as and --as-group cannot be passed on to the page: leave them out, or sign in to it with that user's token")
	}
	own, err := rest.HTTPWrappersForConfig(config, base)
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig's user: %w", err)
	}
	has, err := hasToken(ctx, config)
	if err != nil {
		return nil, err
	}
	if has {
		return stripped{own}, nil
	}
	if _, err := c.lent(ctx); err != nil {
		return nil, err
	}
	return stripped{lender{c, base}}, nil
}

// hasToken tells whether the user's requests have a token. The question stays on this machine.
func hasToken(ctx context.Context, config *rest.Config) (bool, error) {
	asked := false
	probe, err := rest.HTTPWrappersForConfig(config, trip(func(r *http.Request) (*http.Response, error) {
		asked = r.Header.Get(authorization) != ""
		return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: r}, nil
	}))
	if err != nil {
		return false, fmt.Errorf("read the kubeconfig's user: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://localhost", nil)
	if err != nil {
		return false, err
	}
	response, err := probe.RoundTrip(request)
	if err != nil {
		return false, fmt.Errorf("get the token of the kubeconfig's user: %w", err)
	}
	return asked, response.Body.Close()
}

// lent is a token of the account, another before the last is over.
func (c *Credentials) lent(ctx context.Context) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.Clock.Now().Before(c.until.Add(-renewBefore)) {
		return c.token, nil
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To(int64(lentFor.Seconds()))}}
	answer, err := c.Tokens.CoreV1().ServiceAccounts(c.Account.Namespace).CreateToken(ctx, c.Account.Name, request, metav1.CreateOptions{})
	switch {
	case apierrors.IsForbidden(err):
		return "", fmt.Errorf("your kubeconfig has no token, as with a client certificate, and you may not create serviceaccounts/token of %s in namespace %s: "+
			"ask your admin for that right, or for a token, and sign in with it", c.Account.Name, c.Account.Namespace)
	case apierrors.IsNotFound(err):
		return "", fmt.Errorf("your kubeconfig has no token, as with a client certificate, and there is no ServiceAccount %s in namespace %s to lend one: "+
			"apply config/default of this version, or name another by --service-account", c.Account.Name, c.Account.Namespace)
	case err != nil:
		return "", fmt.Errorf("ask for a token of ServiceAccount %s in namespace %s: %w", c.Account.Name, c.Account.Namespace, err)
	}
	c.token, c.until = answer.Status.Token, answer.Status.ExpirationTimestamp.Time
	return c.token, nil
}

// lender adds lent tokens.
type lender struct {
	from *Credentials
	base http.RoundTripper
}

func (l lender) RoundTrip(r *http.Request) (*http.Response, error) {
	token, err := l.from.lent(r.Context())
	if err != nil {
		return nil, err
	}
	r = r.Clone(r.Context())
	r.Header.Set(authorization, "Bearer "+token)
	return l.base.RoundTrip(r)
}

// stripped takes off what the browser says of who it is: the kubeconfig decides.
type stripped struct{ base http.RoundTripper }

func (s stripped) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Del(authorization)
	r.Header.Del("Cookie")
	return s.base.RoundTrip(r)
}

type trip func(*http.Request) (*http.Response, error)

func (t trip) RoundTrip(r *http.Request) (*http.Response, error) { return t(r) }
