// Package port hands out TCP ports of the loopback address for servers that
// cannot be asked to choose one themselves.
package port

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// Ports come from below Linux's default range of ephemeral ports, so that no
// outgoing connection takes one between our choice and the server's bind.
const first, last = 15000, 29999

// attempts bounds the search; with thousands of free ports a handful suffices.
const attempts = 1000

// Lease holds ports until it is closed or this process dies.
type Lease struct {
	dir string

	mu    sync.Mutex
	files []*os.File
}

// NewLease returns a Lease that agrees with others through lock files in dir.
func NewLease(dir string) (*Lease, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make the folder of port locks: %w", err)
	}
	return &Lease{dir: dir}, nil
}

// Take returns a port on which nothing listens and that no other Lease holds.
func (l *Lease) Take() (int, error) {
	for range attempts {
		candidate := first + rand.IntN(last-first+1)
		file, err := l.reserve(candidate)
		if err != nil {
			return 0, err
		}
		if file == nil {
			continue
		}
		if !free(candidate) {
			_ = file.Close()
			continue
		}
		l.keep(file)
		return candidate, nil
	}
	return 0, fmt.Errorf("no free port between %d and %d after %d attempts", first, last, attempts)
}

func (l *Lease) keep(file *os.File) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.files = append(l.files, file)
}

// Close gives all ports back.
func (l *Lease) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, file := range l.files {
		_ = file.Close()
	}
	l.files = nil
}

// reserve locks a port's file; nil when another holds it.
func (l *Lease) reserve(port int) (*os.File, error) {
	file, err := os.OpenFile(filepath.Join(l.dir, strconv.Itoa(port)), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("reserve port %d: %w", port, err)
	}
	err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		return file, nil
	}
	_ = file.Close()
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, nil
	}
	return nil, fmt.Errorf("lock port %d: %w", port, err)
}

func free(port int) bool {
	listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return false
	}
	_ = listener.Close()
	return true
}
