//go:build e2e

package serve

import (
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/go-logr/logr"
)

// counted counts the connections of a listener that are open, and the most that were at once.
type counted struct {
	net.Listener
	open, most atomic.Int64
}

type countedConn struct {
	net.Conn
	closed func()
}

func (c *counted) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c.most.Store(max(c.most.Load(), c.open.Add(1)))
	return &countedConn{conn, sync.OnceFunc(func() { c.open.Add(-1) })}, nil
}

func (c *countedConn) Close() error {
	c.closed()
	return c.Conn.Close()
}

// While others connect and leave it at that, whoever asks is answered, in less time than it
// takes until silent connections are closed.
func TestConnectionsAreBounded(t *testing.T) {
	const many = 5000
	for name, sent := range map[string]string{
		"nothing":                            "",
		"half a request":                     "GET / HTTP/1.1\r\n",
		"a request whose body does not come": "GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			socket, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			listener := &counted{Listener: socket}
			server := NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }), logr.Discard())
			ended := make(chan error, 1)
			go func() { ended <- server.Serve(listener) }()
			ask := func(client *http.Client) {
				t.Helper()
				answer, err := client.Get("http://" + socket.Addr().String())
				if err != nil {
					t.Fatal(err)
				}
				defer answer.Body.Close()
				if text, err := io.ReadAll(answer.Body); err != nil || string(text) != "ok" {
					t.Errorf("%q, %v", text, err)
				}
			}
			keeping := &http.Client{Timeout: readTimeout, Transport: &http.Transport{}}
			probing := &http.Client{Timeout: readTimeout, Transport: &http.Transport{DisableKeepAlives: true}}
			ask(keeping)
			for i := range many {
				conn, err := net.Dial("tcp", socket.Addr().String())
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				_, _ = io.WriteString(conn, sent) // to one that was closed
				if i%(many/10) == 0 {
					ask(probing)
				}
			}
			ask(probing)
			ask(keeping)
			if most := listener.most.Load(); most > mostConnections+1 {
				t.Errorf("%d connections were open at once, want %d at most", most, mostConnections)
			}
			if err := server.Close(); err != nil {
				t.Error(err)
			}
			if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
				t.Error(err)
			}
		})
	}
}
