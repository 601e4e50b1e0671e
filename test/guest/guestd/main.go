// Command guestd is the only service of the test guest: it answers HTTP, keeps
// vCPUs busy and sends on request, and echoes or swallows UDP datagrams.
//
//	GET  /                             "ready"
//	POST /burn?workers=N&seconds=S     N busy threads for S seconds, replacing
//	                                   the ones before; workers=0 stops them
//	POST /send?address=A&bitsPerSecond=N&seconds=S
//	                                   sends to a TCP address at a steady rate,
//	                                   in place of the transfer before
//	GET  /stats                        counters as JSON
//	UDP 7                              echo
//	UDP 9                              discard
//
// It prints READY on standard output (the serial console) when all of them
// accept traffic.
package main

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

const (
	maxWorkers = 64
	maxBurn    = time.Hour
	// maxDatagram is the largest UDP payload over IPv4.
	maxDatagram = 65507
)

// stats are counted since boot.
type stats struct {
	Echoed       atomic.Uint64
	Discarded    atomic.Uint64
	BurningCount atomic.Int64
	Sent         atomic.Uint64 // bytes
	SendErrors   atomic.Uint64
}

// burner keeps a number of operating system threads busy until a deadline.
type burner struct {
	stats *stats
	mu    sync.Mutex
	stop  chan struct{}
}

// start replaces the running workers by the given number of new ones.
func (b *burner) start(workers int, period time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stop != nil {
		close(b.stop)
	}
	b.stop = make(chan struct{})
	deadline := time.Now().Add(period)
	for range workers {
		b.stats.BurningCount.Add(1)
		go b.burn(b.stop, deadline)
	}
}

func (b *burner) burn(stop <-chan struct{}, deadline time.Time) {
	// Own thread: the guest's kernel, not Go's scheduler, spreads the workers
	// over the vCPUs.
	runtime.LockOSThread()
	defer b.stats.BurningCount.Add(-1)
	const turnsBetweenLooks = 1 << 20
	for time.Now().Before(deadline) {
		select {
		case <-stop:
			return
		default:
		}
		for range turnsBetweenLooks {
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
	if err != nil || !(seconds >= 0) || seconds > maxBurn.Seconds() {
		http.Error(w, fmt.Sprintf("seconds must be a number from 0 to %.0f", maxBurn.Seconds()), http.StatusBadRequest)
		return
	}
	b.start(workers, time.Duration(seconds*float64(time.Second)))
	w.WriteHeader(http.StatusNoContent)
}

func (s *stats) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{ // a reader that hangs up needs no answer
		"udpEchoed":    s.Echoed.Load(),
		"udpDiscarded": s.Discarded.Load(),
		"burning":      s.BurningCount.Load(),
		"sentBytes":    s.Sent.Load(),
		"sendErrors":   s.SendErrors.Load(),
	})
}

// serveUDP hands every datagram to handle until the socket fails.
func serveUDP(conn net.PacketConn, handle func(payload []byte, from net.Addr)) error {
	buf := make([]byte, maxDatagram)
	for {
		n, from, err := conn.ReadFrom(buf)
		if err != nil {
			return fmt.Errorf("read from UDP %s: %w", conn.LocalAddr(), err)
		}
		handle(buf[:n], from)
	}
}

func run() error {
	counters := &stats{}
	echo, err := net.ListenPacket("udp4", ":7")
	if err != nil {
		return fmt.Errorf("listen for UDP echo: %w", err)
	}
	discard, err := net.ListenPacket("udp4", ":9")
	if err != nil {
		return fmt.Errorf("listen for UDP discard: %w", err)
	}
	web, err := net.Listen("tcp4", ":80")
	if err != nil {
		return fmt.Errorf("listen for HTTP: %w", err)
	}

	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ready") })
	mux.Handle("POST /burn", &burner{stats: counters})
	mux.Handle("POST /send", &sender{stats: counters})
	mux.Handle("GET /stats", counters)

	failed := make(chan error, 3)
	go func() {
		failed <- serveUDP(echo, func(payload []byte, from net.Addr) {
			counters.Echoed.Add(1)
			_, _ = echo.WriteTo(payload, from) // UDP: a lost answer is the sender's to notice
		})
	}()
	go func() {
		failed <- serveUDP(discard, func([]byte, net.Addr) { counters.Discarded.Add(1) })
	}()
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
