package prometheus

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"syscall"

	promapi "github.com/prometheus/client_golang/api/prometheus/v1"

	"github.com/joulevirt/joulevirt/internal/energy"
)

// mostQuoted is how much of a text from elsewhere a message quotes, in bytes.
const mostQuoted = 300

// tlsAlert is how crypto/tls marks what the other end complains of. A server of
// TLS 1.3 complains after the handshake; when it closes the connection before
// the request is written, the complaint is lost.
const tlsAlert = "remote error"

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
