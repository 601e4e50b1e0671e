package prometheus

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/prometheus/client_golang/api"
	promapi "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
	"k8s.io/client-go/transport"

	"github.com/joulevirt/joulevirt/internal/energy"
)

const (
	userAgent = "joulevirt-manager"
	// mostBytes of an answer, unpacked: what some 10,000 nodes with two sockets
	// need at a sample each 10 s.
	mostBytes = 64 << 20
	// mostSeries of an answer: 20 for each of 10,000 nodes.
	mostSeries = 200_000
	// mostWarnings that are kept of an answer.
	mostWarnings = 3
	idleTimeout  = 2 * time.Minute
)

// Credentials for a server, as they are in a Secret. Each may be empty.
type Credentials = energy.Credentials

// client asks one server.
type client struct {
	api     promapi.API
	http    *http.Transport
	address string
	timeout time.Duration
}

func newClient(address *url.URL, credentials Credentials, timeout time.Duration) (*client, error) {
	connections, tripper, err := connect(credentials)
	if err != nil {
		return nil, err
	}
	shown := energy.Server{URL: address.String()}.String()
	base, err := api.NewClient(api.Config{
		Address: address.String(),
		Client: &http.Client{
			Transport: judge{next: tripper},
			// The token is for this server only, and a proxy's page for logging
			// in is no answer.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	})
	if err != nil {
		return nil, energy.Refuse(energy.ReasonUnreachable, "url %s cannot be used: %v", shown, err)
	}
	return &client{api: promapi.NewAPI(base), http: connections, address: shown, timeout: timeout}, nil
}

// ask evaluates a query. Errors wrap a Refusal.
func (c *client) ask(ctx context.Context, query string, at time.Time) (model.Value, []string, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	value, warnings, _, err := c.api.Query(ctx, query, at, promapi.WithTimeout(c.timeout))
	if err != nil {
		return nil, nil, c.fault(err)
	}
	if count := size(value); count > mostSeries {
		return nil, nil, energy.Refuse(energy.ReasonQueryFailed, "%s answers with %d series, more than %d: narrow it down with series Query", c.address, count, mostSeries)
	}
	var kept []string
	for _, warning := range warnings[:min(len(warnings), mostWarnings)] {
		kept = append(kept, shorten(warning))
	}
	return value, kept, nil
}

func size(value model.Value) int {
	switch value := value.(type) {
	case model.Matrix:
		return len(value)
	case model.Vector:
		return len(value)
	}
	return 0
}

// connect returns the connections to a server, and what authenticates to it.
func connect(credentials Credentials) (*http.Transport, http.RoundTripper, error) {
	token := strings.TrimSpace(string(credentials.Token))
	if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, nil, energy.Refuse(energy.ReasonCredentials, "key token of the Secret holds more than a token: spaces, line breaks or control characters")
	}
	// With one of the two client-go goes without.
	if (len(credentials.Cert) == 0) != (len(credentials.Key) == 0) {
		return nil, nil, energy.Refuse(energy.ReasonCredentials, "the Secret has one of tls.crt and tls.key: set both, or neither")
	}
	config := &transport.Config{
		UserAgent:   userAgent,
		BearerToken: token,
		TLS:         transport.TLSConfig{CAData: credentials.CA, CertData: credentials.Cert, KeyData: credentials.Key},
	}
	settings, err := transport.TLSConfigFor(config)
	if err != nil {
		return nil, nil, energy.Refuse(energy.ReasonCredentials, "ca.crt, tls.crt or tls.key of the Secret cannot be used: %v", err)
	}
	// Of its own, for client-go keeps those that it makes, and credentials change.
	// HTTP/1.1 is enough for one query at a time, and HTTP/2 hides why a server
	// closes the connection.
	connections := &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		TLSClientConfig:     settings,
		IdleConnTimeout:     idleTimeout,
		MaxIdleConnsPerHost: 1,
	}
	tripper, err := transport.HTTPWrappersForConfig(config, connections)
	if err != nil {
		return nil, nil, energy.Refuse(energy.ReasonCredentials, "the Secret cannot be used: %v", err)
	}
	return connections, tripper, nil
}

// judge turns answers that are none into refusals, and bounds the others.
type judge struct{ next http.RoundTripper }

func (j judge) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := j.next.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	if refusal := refuseStatus(request, response); refusal != nil {
		_ = response.Body.Close()
		return nil, refusal
	}
	response.Body = &bounded{ReadCloser: response.Body, left: mostBytes}
	return response, nil
}

func refuseStatus(request *http.Request, response *http.Response) *energy.Refusal {
	switch status := response.StatusCode; {
	case status == http.StatusForbidden && request.Method == http.MethodPost:
		// The API's client tries GET then: some proxies take POST for writing.
		return nil
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return energy.Refuse(energy.ReasonUnauthorized, "%s answers %s: put a valid token, or a client certificate, into the Secret", request.URL.Host, response.Status)
	case status >= 300 && status < 400:
		return energy.Refuse(energy.ReasonQueryFailed, "%s redirects to %s, which is not followed: set url to where the API is, or give credentials that the proxy takes",
			request.URL.Host, shorten(location(response)))
	}
	return nil
}

// location is where a redirect leads to, without what it may carry along.
func location(response *http.Response) string {
	to, err := response.Location()
	if err != nil {
		return "nowhere"
	}
	return to.Scheme + "://" + to.Host + to.Path
}

// bounded reads at most so much, then fails.
type bounded struct {
	io.ReadCloser
	left int
}

func (b *bounded) Read(into []byte) (int, error) {
	if b.left == 0 {
		// Whole answers end here too, at the last byte: told apart by one more.
		if n, err := b.ReadCloser.Read(make([]byte, 1)); n == 0 {
			return 0, err
		}
		return 0, energy.Refuse(energy.ReasonQueryFailed, "the answer is larger than %d MiB: narrow it down with series Query, or scrape less often", mostBytes>>20)
	}
	n, err := b.ReadCloser.Read(into[:min(len(into), b.left)])
	b.left -= n
	return n, err
}
