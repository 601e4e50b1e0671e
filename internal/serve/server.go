// Package serve has HTTP servers for ports that any pod may connect to.
package serve

import (
	"container/list"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/go-logr/logr"
)

const (
	// mostConnections of a server: a manager, a kubelet and some Prometheus servers have a few.
	mostConnections = 128

	readTimeout    = 10 * time.Second
	writeTimeout   = time.Minute
	idleTimeout    = 30 * time.Second
	maxHeaderBytes = 16 << 10
)

// NewServer returns a server that bounds what clients cost it. A connection beyond
// mostConnections closes the one that did nothing for longest: if it had to wait instead,
// clients that send nothing would keep the others out.
func NewServer(handler http.Handler, log logr.Logger) *http.Server {
	c := &connections{elements: map[net.Conn]*list.Element{}}
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: readTimeout, ReadTimeout: readTimeout, WriteTimeout: writeTimeout,
		IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
		ConnState: c.observe,
		// Handshakes that fail are the clients' business.
		ErrorLog: slog.NewLogLogger(logr.ToSlogHandler(log), slog.LevelDebug),
	}
}

// connections of a server, the one that did nothing for longest first.
type connections struct {
	mu       sync.Mutex
	order    list.List
	elements map[net.Conn]*list.Element
}

func (c *connections) observe(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch state {
	case http.StateNew:
		c.elements[conn] = c.order.PushBack(conn)
	case http.StateActive, http.StateIdle:
		if element := c.elements[conn]; element != nil {
			c.order.MoveToBack(element)
		}
	default:
		c.remove(conn)
	}
	if c.order.Len() > mostConnections {
		oldest := c.order.Front().Value.(net.Conn)
		c.remove(oldest)
		_ = oldest.Close() // its goroutine ends with it
	}
}

func (c *connections) remove(conn net.Conn) {
	if element := c.elements[conn]; element != nil {
		c.order.Remove(element)
		delete(c.elements, conn)
	}
}
