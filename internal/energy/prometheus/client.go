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
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"k8s.io/client-go/transport"

	"github.com/joulevirt/joulevirt/internal/energy"
)

const (
	userAgent   = "joulevirt-manager"
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
	http        *http.Client
	connections *http.Transport
	url         *url.URL
	// address is the url as messages may show it.
	address string
	timeout time.Duration
}

func newClient(server energy.Server, credentials energy.Credentials) (*client, error) {
	connections, tripper, err := connect(credentials)
	if err != nil {
		return nil, err
	}
	address, err := url.Parse(server.URL)
	if err != nil {
		return nil, energy.Refuse(energy.ReasonUnreachable, "url %s cannot be used: it is not a URL", server)
	}
	return &client{
		http: &http.Client{
			Transport: tripper,
			// The token is for this server only, and a proxy's login page is no answer.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		connections: connections, url: address, address: server.String(), timeout: server.Timeout,
	}, nil
}

// query evaluates a query at a moment; the zero time is the server's now.
func (c *client) query(ctx context.Context, query string, at time.Time) (*answer, error) {
	form := url.Values{"query": {query}}
	if !at.IsZero() {
		form.Set("time", timestamp(at))
	}
	return c.ask(ctx, "query", form)
}

func timestamp(at time.Time) string {
	return strconv.FormatFloat(float64(at.UnixMilli())/1000, 'f', 3, 64)
}

// ask asks the API. Errors wrap a Refusal.
func (c *client) ask(ctx context.Context, endpoint string, form url.Values) (*answer, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	form.Set("timeout", c.timeout.String())
	// Servers before 2.53 ignore the limit.
	form.Set("limit", strconv.Itoa(mostSeries+1))
	where := c.url.JoinPath("api/v1", endpoint)
	response, err := c.send(ctx, http.MethodPost, where, strings.NewReader(form.Encode()))
	if err != nil {
		return nil, c.fault(err)
	}
	switch response.StatusCode {
	// Some proxies take POST for writing.
	case http.StatusForbidden, http.StatusMethodNotAllowed, http.StatusNotImplemented:
		_ = response.Body.Close()
		where.RawQuery = form.Encode()
		if response, err = c.send(ctx, http.MethodGet, where, nil); err != nil {
			return nil, c.fault(err)
		}
	}
	defer func() { _ = response.Body.Close() }()
	if refusal := refuseStatus(response); refusal != nil {
		return nil, refusal
	}
	answer, err := decodeAnswer(response.Body)
	switch isGood := response.StatusCode < http.StatusMultipleChoices; {
	case err == nil && answer.status == "error":
		return nil, c.failed(answer, response)
	case !isGood:
		return nil, c.failed(nil, response)
	case errors.Is(err, errNoAnswer) || err == nil && answer.status != "success":
		return nil, energy.Refuse(energy.ReasonWrongType, "%s does not answer as a Prometheus server does: check the url", c.address)
	case err != nil:
		return nil, c.fault(err)
	}
	return answer, nil
}

func (c *client) send(ctx context.Context, method string, where *url.URL, form io.Reader) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, method, where.String(), form)
	if err != nil {
		return nil, err
	}
	if form != nil {
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	return c.http.Do(request)
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

func refuseStatus(response *http.Response) error {
	host := response.Request.URL.Host
	switch status := response.StatusCode; {
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return energy.Refuse(energy.ReasonUnauthorized, "%s answers %s: put a valid token, or a client certificate, into the Secret", host, statusText(response))
	case status >= 300 && status < 400:
		return energy.Refuse(energy.ReasonQueryFailed, "%s redirects to %s, which is not followed: set url to where the API is, or give credentials that the proxy takes",
			host, shorten(location(response)))
	}
	return nil
}

// statusText is a status as HTTP names it: what the server says beside it is not quoted, since
// the url may lead to anything.
func statusText(response *http.Response) string {
	return strings.TrimSpace(fmt.Sprintf("%d %s", response.StatusCode, http.StatusText(response.StatusCode)))
}

// failed says why a server does not evaluate a query. Of what it answers only the error of the
// API of Prometheus is quoted. A nil answer means that the server gave none.
func (c *client) failed(answer *answer, response *http.Response) error {
	why, unable := statusText(response), response.StatusCode >= http.StatusInternalServerError
	if answer != nil {
		why = shorten(answer.message)
		unable = unable || slices.Contains([]string{"timeout", "canceled", "internal", "unavailable"}, answer.errorType)
	}
	if unable {
		return energy.Refuse(energy.ReasonUnreachable, "%s is not able to answer: %s", c.address, why)
	}
	return energy.Refuse(energy.ReasonQueryFailed, "%s cannot evaluate the query: %s", c.address, why)
}

// location is where a redirect leads to, without what it may carry along.
func location(response *http.Response) string {
	to, err := response.Location()
	if err != nil {
		return "nowhere"
	}
	return to.Scheme + "://" + to.Host + to.Path
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
	return energy.Refuse(energy.ReasonUnreachable, "%s cannot be reached: %s", c.address, text)
}

// reason is an error's text without what changes from one time to the next: it
// goes into conditions. Without the request too, which may hold a whole query.
func reason(err error) string {
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
