package serve

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
)

// pipes is a network of one listener. It counts the connections that the server has open, and the
// most that were at once.
type pipes struct {
	accepted   chan net.Conn
	close      func()
	closed     chan struct{}
	open, most atomic.Int64
}

func newPipes() *pipes {
	p := &pipes{accepted: make(chan net.Conn), closed: make(chan struct{})}
	p.close = sync.OnceFunc(func() { close(p.closed) })
	return p
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

func (p *pipes) Close() error {
	p.close()
	return nil
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.accepted:
		p.most.Store(max(p.most.Load(), p.open.Add(1)))
		return &countedConn{conn, sync.OnceFunc(func() { p.open.Add(-1) })}, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) dial(context.Context, string, string) (net.Conn, error) {
	client, server := net.Pipe()
	p.accepted <- server
	return client, nil
}

type countedConn struct {
	net.Conn
	closed func()
}

func (c *countedConn) Close() error {
	c.closed()
	return c.Conn.Close()
}

// While others connect and leave it at that, whoever asks is answered, and waits for no
// connection of theirs to be closed for its silence.
func TestConnectionsAreBounded(t *testing.T) {
	const many = 10 * mostConnections
	for name, sent := range map[string]string{
		"nothing":                            "",
		"half a request":                     "GET / HTTP/1.1\r\n",
		"a request whose body does not come": "GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // whose clock goes on when all wait
				begun, network := time.Now(), newPipes()
				server := NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }), logr.Discard())
				ended := make(chan error, 1)
				go func() { ended <- server.Serve(network) }()
				ask := func(client *http.Client) {
					t.Helper()
					answer, err := client.Get("http://server")
					if err != nil {
						t.Fatal(err)
					}
					defer answer.Body.Close()
					if text, err := io.ReadAll(answer.Body); err != nil || string(text) != "ok" {
						t.Errorf("%q, %v", text, err)
					}
				}
				keeping := &http.Client{Transport: &http.Transport{DialContext: network.dial}}
				probing := &http.Client{Transport: &http.Transport{DialContext: network.dial, DisableKeepAlives: true}}
				ask(keeping)
				for i := range many {
					conn, err := network.dial(t.Context(), "", "")
					if err != nil {
						t.Fatal(err)
					}
					defer conn.Close()
					if sent != "" {
						_, _ = io.WriteString(conn, sent) // to one that was closed
					}
					if i%(many/10) == 0 {
						ask(probing)
					}
				}
				ask(probing)
				ask(keeping)
				if waited := time.Since(begun); waited > 0 {
					t.Errorf("who asked waited %v", waited)
				}
				if most := network.most.Load(); most > mostConnections+1 {
					t.Errorf("%d connections were open at once, want %d at most", most, mostConnections)
				}
				keeping.CloseIdleConnections()
				if err := server.Close(); err != nil {
					t.Error(err)
				}
				if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
					t.Error(err)
				}
			})
		})
	}
}
