package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"
)

const (
	// maxSend is the longest time that is sent for, maxSendRate the highest rate
	// in bit/s.
	maxSend     = time.Hour
	maxSendRate = 1e10
	// sendStep is how often what has come due is written.
	sendStep = 20 * time.Millisecond
)

// sender writes to one TCP connection at a steady rate. What could not be
// written in time is written as soon as it can be: the mean is kept.
type sender struct {
	stats *stats
	mu    sync.Mutex
	stop  context.CancelFunc
}

func (s *sender) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	address := r.FormValue("address")
	if _, _, err := net.SplitHostPort(address); err != nil {
		http.Error(w, "address must be HOST:PORT", http.StatusBadRequest)
		return
	}
	rate, err := strconv.ParseFloat(r.FormValue("bitsPerSecond"), 64)
	if err != nil || !(rate > 0) || rate > maxSendRate {
		http.Error(w, fmt.Sprintf("bitsPerSecond must be above 0 and up to %.0f", float64(maxSendRate)), http.StatusBadRequest)
		return
	}
	seconds, err := strconv.ParseFloat(r.FormValue("seconds"), 64)
	if err != nil || !(seconds > 0) || seconds > maxSend.Seconds() {
		http.Error(w, fmt.Sprintf("seconds must be above 0 and up to %.0f", maxSend.Seconds()), http.StatusBadRequest)
		return
	}
	if err := s.start(address, rate, time.Duration(seconds*float64(time.Second))); err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// start connects and replaces the transfer before.
func (s *sender) start(address string, bitsPerSecond float64, period time.Duration) error {
	conn, err := net.DialTimeout("tcp4", address, 10*time.Second)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), period)
	s.mu.Lock()
	if s.stop != nil {
		s.stop()
	}
	s.stop = cancel
	s.mu.Unlock()
	go func() {
		defer cancel()
		if err := send(ctx, conn, bitsPerSecond/8, func(n int) { s.stats.Sent.Add(uint64(n)) }); err != nil {
			s.stats.SendErrors.Add(1)
		}
	}()
	return nil
}

// send writes what is due until ctx's deadline, or its end; then the connection
// ends in order.
func send(ctx context.Context, conn net.Conn, bytesPerSecond float64, sent func(int)) error {
	defer conn.Close()
	unblock := context.AfterFunc(ctx, func() { _ = conn.SetWriteDeadline(time.Now()) })
	defer unblock()
	tick := time.NewTicker(sendStep)
	defer tick.Stop()
	chunk := make([]byte, 64<<10)
	begin, written := time.Now(), 0
	end, _ := ctx.Deadline()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		elapsed := min(time.Since(begin), end.Sub(begin))
		for due := int(elapsed.Seconds() * bytesPerSecond); written < due; {
			n, err := conn.Write(chunk[:min(len(chunk), due-written)])
			written += n
			sent(n)
			if ctx.Err() != nil {
				return nil
			}
			if err != nil {
				return err
			}
		}
	}
}
