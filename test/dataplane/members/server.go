package members

import (
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// drainTimeout bounds the answers to what was asked before the end.
const drainTimeout = 5 * time.Second

// server answers each request with a name. A request with ?close has its
// connection closed.
type server struct {
	http http.Server
	name string

	mu    sync.Mutex
	conns map[net.Conn]bool
}

func newServer() *server {
	s := &server{conns: map[net.Conn]bool{}}
	s.http = http.Server{Handler: http.HandlerFunc(s.serve), ReadHeaderTimeout: time.Minute, ConnState: s.track}
	return s
}

func (s *server) start(listener net.Listener, name string) {
	s.name = name
	go func() { _ = s.http.Serve(listener) }()
}

func (s *server) serve(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Has("close") {
		w.Header().Set("Connection", "close")
	}
	// A client that went needs no answer.
	_, _ = io.WriteString(w, s.name+"\n")
}

// drain serves on for some time and then answers only what was asked.
func (s *server) drain(ctx context.Context, linger time.Duration) {
	timer := time.NewTimer(linger)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	ctx, cancel := context.WithTimeout(ctx, drainTimeout)
	defer cancel()
	_ = s.http.Shutdown(ctx) // what is left then is reset
}

// reset ends at once; peers of open connections get a reset. It is idempotent.
func (s *server) reset() {
	s.mu.Lock()
	for conn := range s.conns {
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
	}
	s.mu.Unlock()
	_ = s.http.Close()
}

// track knows the open connections.
func (s *server) track(conn net.Conn, state http.ConnState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch state {
	case http.StateNew:
		s.conns[conn] = true
	case http.StateClosed, http.StateHijacked:
		delete(s.conns, conn)
	case http.StateActive, http.StateIdle:
	}
}
