package prometheus

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
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
	mostSeries  = 200_000
	idleTimeout = 2 * time.Minute
	// mostQuoted is how much of a foreign text a message quotes, in bytes.
	mostQuoted = 300
	// tlsAlert is how crypto/tls marks what the other end complains of. A server of
	// TLS 1.3 complains after the handshake; when it closes the connection before
	// the request is written, the complaint is lost.
	tlsAlert = "remote error"
)

// client asks one server.
type client struct {
	api     promapi.API
	http    *http.Transport
	address string
	timeout time.Duration
}

func newClient(server energy.Server, credentials energy.Credentials) (*client, error) {
	connections, tripper, err := connect(credentials)
	if err != nil {
		return nil, err
	}
	base, err := api.NewClient(api.Config{
		Address: server.URL,
		Client: &http.Client{
			Transport: checker{next: tripper},
			// The token is for this server only, and a proxy's login page is no answer.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	})
	if err != nil {
		return nil, energy.Refuse(energy.ReasonUnreachable, "url %s cannot be used: %v", server, err)
	}
	return &client{api: promapi.NewAPI(base), http: connections, address: server.String(), timeout: server.Timeout}, nil
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
		return nil, nil, energy.Refuse(energy.ReasonQueryFailed, "%s answers with %d series, more than %d: narrow it down with query", c.address, count, mostSeries)
	}
	return value, warnings, nil
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
func connect(credentials energy.Credentials) (*http.Transport, http.RoundTripper, error) {
	config := &transport.Config{
		UserAgent:   userAgent,
		BearerToken: string(credentials.Token),
		TLS:         transport.TLSConfig{CAData: credentials.CA, CertData: credentials.Cert, KeyData: credentials.Key},
	}
	settings, err := transport.TLSConfigFor(config)
	if err != nil {
		return nil, nil, energy.Refuse(energy.ReasonCredentials, "ca.crt, tls.crt or tls.key of the Secret cannot be used: %v", err)
	}
	// Own connections: client-go caches those that it makes, and credentials change.
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

// checker turns error answers into refusals, and bounds the size of the others.
type checker struct{ next http.RoundTripper }

func (c checker) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := c.next.RoundTrip(request)
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
		// Whole answers end here too, at the last byte: distinguished by one more.
		if n, err := b.ReadCloser.Read(make([]byte, 1)); n == 0 {
			return 0, err
		}
		return 0, energy.Refuse(energy.ReasonQueryFailed, "the answer is larger than %d MiB: narrow it down with query, or scrape less often", mostBytes>>20)
	}
	n, err := b.ReadCloser.Read(into[:min(len(into), b.left)])
	b.left -= n
	return n, err
}

// QueryRange evaluates a query over a span of time. An error wraps an energy.Refusal.
func (s *Source) QueryRange(ctx context.Context, query string, from, to time.Time, step time.Duration) (model.Matrix, error) {
	ctx, cancel := context.WithTimeout(ctx, s.client.timeout)
	defer cancel()
	value, _, _, err := s.client.api.QueryRange(ctx, query, promapi.Range{Start: from, End: to, Step: step}, promapi.WithTimeout(s.client.timeout))
	if err != nil {
		return nil, s.client.fault(err)
	}
	matrix, ok := value.(model.Matrix)
	if !ok {
		return nil, wrongType(value, model.ValMatrix)
	}
	return matrix, nil
}

// fault says why a query has no answer.
func (c *client) fault(err error) error {
	if refusal := energy.RefusalIn(err); refusal != nil {
		return fmt.Errorf("ask %s: %w", c.address, refusal)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return energy.Refuse(energy.ReasonUnreachable, "%s does not answer within %s: look at its load, or set a longer timeout", c.address, c.timeout)
	}
	text := shorten(reason(err))
	var untrusted *tls.CertificateVerificationError
	var connection *net.OpError
	switch {
	case errors.As(err, &untrusted):
		return energy.Refuse(energy.ReasonCredentials, "the certificate of %s is not trusted (%s): put its authority into ca.crt of the Secret", c.address, text)
	case errors.As(err, &connection) && connection.Op == tlsAlert:
		return energy.Refuse(energy.ReasonUnauthorized, "%s refuses the TLS connection (%s): put a valid client certificate into tls.crt and tls.key of the Secret", c.address, text)
	case errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET):
		return energy.Refuse(energy.ReasonUnreachable, "%s closes the connection (%s): it may be restarting, or ask for a client certificate in tls.crt and tls.key of the Secret", c.address, text)
	}
	var answer *promapi.Error
	if !errors.As(err, &answer) {
		return energy.Refuse(energy.ReasonUnreachable, "%s cannot be reached: %s", c.address, text)
	}
	switch answer.Type {
	case promapi.ErrTimeout, promapi.ErrCanceled, promapi.ErrServer:
		return energy.Refuse(energy.ReasonUnreachable, "%s is not able to answer: %s", c.address, text)
	case promapi.ErrBadResponse:
		return energy.Refuse(energy.ReasonWrongType, "%s does not answer as a Prometheus server does (%s): check the url", c.address, text)
	}
	return energy.Refuse(energy.ReasonQueryFailed, "%s cannot evaluate the query: %s", c.address, text)
}

// reason is an error's text without what changes from one time to the next: it
// goes into conditions. Without the request too, which may hold a whole query.
func reason(err error) string {
	if answer := (*promapi.Error)(nil); errors.As(err, &answer) && answer.Detail != "" {
		return answer.Msg + ": " + answer.Detail
	}
	if name := (*net.DNSError)(nil); errors.As(err, &name) {
		if name.IsNotFound {
			return "lookup " + name.Name + ": no such host"
		}
		return "lookup " + name.Name + ": the name servers do not answer"
	}
	// The source is a port that the system chose.
	if operation := (*net.OpError)(nil); errors.As(err, &operation) && operation.Source != nil {
		return operation.Op + ": " + operation.Err.Error()
	}
	if request := (*url.Error)(nil); errors.As(err, &request) {
		return request.Err.Error()
	}
	return err.Error()
}

// shorten bounds a text to what a message can quote, on one line.
func shorten(text string) string {
	if len(text) > mostQuoted {
		text = text[:mostQuoted] + "..."
	}
	return strings.Join(strings.Fields(strings.ToValidUTF8(text, "")), " ")
}
