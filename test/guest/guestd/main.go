// Command guestd is the only service of the test guest: it answers HTTP, keeps
// vCPUs busy on request, and echoes UDP datagrams.
//
//	GET  /                             "ready"
//	POST /burn?workers=N&seconds=S     N busy threads for S seconds, replacing
//	                                   the ones before; workers=0 stops them
//	UDP 7                              echo
//
// It prints READY on standard output (the serial console) when all of them
// accept traffic.
package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"sync"
	"time"
)

const (
	maxWorkers = 64
	// maxDatagram is the largest UDP payload over IPv4.
	maxDatagram = 65507
)

// burner keeps a number of operating system threads busy until a deadline.
type burner struct {
	mu   sync.Mutex
	stop context.CancelFunc
}

// start replaces the running workers by the given number of new ones.
func (b *burner) start(workers int, period time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stop()
	ctx, stop := context.WithTimeout(context.Background(), period)
	b.stop = stop
	for range workers {
		go burn(ctx)
	}
}

func burn(ctx context.Context) {
	// Own thread: the guest's kernel, not Go's scheduler, spreads the workers
	// over the vCPUs.
	runtime.LockOSThread()
	const countsBetweenChecks = 1 << 20
	for ctx.Err() == nil {
		for range countsBetweenChecks {
			// Counting alone keeps a vCPU busy.
		}
	}
}

func (b *burner) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	workers, err := strconv.Atoi(r.FormValue("workers"))
	if err != nil || workers < 0 || workers > maxWorkers {
		http.Error(w, fmt.Sprintf("workers must be a number from 0 to %d", maxWorkers), http.StatusBadRequest)
		return
	}
	seconds, err := strconv.ParseFloat(r.FormValue("seconds"), 64)
	if err != nil {
		http.Error(w, "seconds must be a number", http.StatusBadRequest)
		return
	}
	b.start(workers, time.Duration(seconds*float64(time.Second)))
	w.WriteHeader(http.StatusNoContent)
}

// echo answers each datagram until the socket fails.
func echo(conn net.PacketConn) error {
	buf := make([]byte, maxDatagram)
	for {
		n, from, err := conn.ReadFrom(buf)
		if err != nil {
			return fmt.Errorf("read from UDP %s: %w", conn.LocalAddr(), err)
		}
		_, _ = conn.WriteTo(buf[:n], from) // UDP: a lost answer is the sender's to notice
	}
}

func run() error {
	udp, err := net.ListenPacket("udp4", ":7")
	if err != nil {
		return fmt.Errorf("listen for UDP echo: %w", err)
	}
	web, err := net.Listen("tcp4", ":80")
	if err != nil {
		return fmt.Errorf("listen for HTTP: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ready") })
	mux.Handle("POST /burn", &burner{stop: func() {}})

	failed := make(chan error, 2)
	go func() { failed <- echo(udp) }()
	go func() { failed <- http.Serve(web, mux) }()

	fmt.Println("READY")
	return <-failed
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "guestd:", err)
		os.Exit(1)
	}
}
