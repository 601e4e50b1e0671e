package gateway

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// timings add up how long clients wait for first bytes that come from the VM, and what comes from it.
type timings struct {
	mu sync.Mutex
	// answers of the VM, the times that it took for their first bytes, and those for which the gateway
	// held requests and answers back.
	answers          float64
	firstByte, delay time.Duration
	// received is the bytes of the VM's answers, but for connections that are upgraded.
	received atomic.Int64
}

// sums are those since the start.
func (t *timings) sums() (answers float64, firstByte, delay time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.answers, t.firstByte, t.delay
}

func (t *timings) delayedSince(begun time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.delay += time.Since(begun)
}

// timed returns a transport to the VM whose answers are timed.
func (t *timings) timed(next http.RoundTripper) http.RoundTripper { return timedTransport{next, t} }

type timedTransport struct {
	next http.RoundTripper
	to   *timings
}

// RoundTrip implements http.RoundTripper.
func (t timedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	begun := time.Now()
	response, err := t.next.RoundTrip(r)
	if err != nil {
		return response, err
	}
	t.to.mu.Lock()
	t.to.answers++
	t.to.firstByte += time.Since(begun)
	t.to.mu.Unlock()
	if response.StatusCode != http.StatusSwitchingProtocols { // its body is the connection
		if header, err := httputil.DumpResponse(response, false); err == nil {
			t.to.received.Add(int64(len(header)))
		}
		response.Body = countedBody{response.Body, &t.to.received}
	}
	return response, nil
}

// countedBody counts the bytes that are read from it.
type countedBody struct {
	io.ReadCloser
	received *atomic.Int64
}

// Read implements io.Reader.
func (b countedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.received.Add(int64(n))
	return n, err
}

// isUnreachable reports whether the VM could not be connected: its clients would not reach it either.
func isUnreachable(err error) bool {
	var op *net.OpError
	if !errors.As(err, &op) || op.Op != "dial" {
		return false
	}
	return op.Timeout() || errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.EHOSTUNREACH) || errors.Is(err, syscall.ENETUNREACH)
}
