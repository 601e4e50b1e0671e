//go:build fq

package device

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/test/hosttest"
)

// arrival is some of a stream that came to its receiver.
type arrival struct {
	at    time.Time
	bytes int
	// waited is how long ago the newest of it was written.
	waited time.Duration
}

// stream is a TCP connection from a VM's guest to the outside, on which a
// steady rate is written in time-stamped records, whatever the network takes.
type stream struct {
	mu       sync.Mutex
	arrivals []arrival
	sent     int
	done     chan error
	cancel   context.CancelFunc
}

// record is what is written at once: it begins with the time.
const record = 8 << 10

// startStream sends bitsPerSecond until finish.
func startStream(t *testing.T, n *hosttest.Network, o *hosttest.Outside, bitsPerSecond float64) *stream {
	t.Helper()
	var listener net.Listener
	o.Do(func() (err error) {
		listener, err = net.Listen("tcp", n.Peer+":0")
		return err
	})
	t.Cleanup(func() { listener.Close() })
	var out net.Conn
	n.Guest(func() (err error) {
		out, err = net.Dial("tcp", listener.Addr().String())
		return err
	})
	t.Cleanup(func() { out.Close() })
	in, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close() })
	ctx, cancel := context.WithCancel(t.Context())
	s := &stream{done: make(chan error, 2), cancel: cancel}
	go func() { s.done <- s.send(ctx, out, bitsPerSecond) }()
	go func() { s.done <- s.receive(in) }()
	return s
}

func (s *stream) send(ctx context.Context, out net.Conn, bitsPerSecond float64) error {
	defer out.Close()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	buf, begin := make([]byte, record), time.Now()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		due := int(time.Since(begin).Seconds() * bitsPerSecond / 8)
		for s.sent+record <= due {
			// When it was meant to be written: the socket's buffer may be full.
			meant := begin.Add(time.Duration(float64(s.sent) * 8 / bitsPerSecond * 1e9))
			binary.NativeEndian.PutUint64(buf, uint64(meant.UnixNano()))
			if _, err := out.Write(buf); err != nil {
				return fmt.Errorf("send: %w", err)
			}
			s.sent += record
		}
	}
}

func (s *stream) receive(in net.Conn) error {
	buf := make([]byte, record)
	for {
		if _, err := io.ReadFull(in, buf); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return fmt.Errorf("receive: %w", err)
		}
		now := time.Now()
		waited := now.Sub(time.Unix(0, int64(binary.NativeEndian.Uint64(buf))))
		s.mu.Lock()
		s.arrivals = append(s.arrivals, arrival{now, record, waited})
		s.mu.Unlock()
	}
}

// finish ends the sending and waits for the last byte: a connection that was
// reset is an error.
func (s *stream) finish(t *testing.T) []arrival {
	t.Helper()
	s.cancel()
	for range 2 {
		select {
		case err := <-s.done:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(hosttest.Patience):
			t.Fatalf("waited %v for the rest of a stream", hosttest.Patience)
		}
	}
	total := 0
	for _, a := range s.arrivals {
		total += a.bytes
	}
	if total != s.sent {
		t.Errorf("%d bytes of %d came", total, s.sent)
	}
	return s.arrivals
}

// megabits that came from one moment to another, per second.
func megabits(arrivals []arrival, from, to time.Time) float64 {
	bytes := 0
	for _, a := range arrivals {
		if !a.at.Before(from) && a.at.Before(to) {
			bytes += a.bytes
		}
	}
	return float64(bytes) * 8 / 1e6 / to.Sub(from).Seconds()
}

// longest is the longest that anything waited.
func longest(arrivals []arrival) time.Duration {
	worst := time.Duration(0)
	for _, a := range arrivals {
		worst = max(worst, a.waited)
	}
	return worst
}

// startEcho returns what reports whether a datagram of some bytes comes back soon.
func startEcho(t *testing.T, n *hosttest.Network, o *hosttest.Outside) (passes func(size int) bool) {
	t.Helper()
	conn := dialEcho(t, n, o)
	return func(size int) bool {
		buf := make([]byte, size)
		if _, err := conn.Write(buf); err != nil {
			t.Fatal(err)
		}
		if err := conn.SetReadDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		_, err := conn.Read(buf)
		return err == nil
	}
}

// dialEcho returns a guest's connection to one that sends everything back.
func dialEcho(t *testing.T, n *hosttest.Network, o *hosttest.Outside) net.Conn {
	t.Helper()
	var echo net.PacketConn
	o.Do(func() (err error) {
		echo, err = net.ListenPacket("udp", n.Peer+":0")
		return err
	})
	go func() {
		buf := make([]byte, 1500)
		for {
			size, from, err := echo.ReadFrom(buf)
			if err != nil {
				return
			}
			_, _ = echo.WriteTo(buf[:size], from) // what is lost is counted by the other side
		}
	}()
	t.Cleanup(func() { echo.Close() })
	var conn net.Conn
	n.Guest(func() (err error) {
		conn, err = net.Dial("udp", echo.LocalAddr().String())
		return err
	})
	t.Cleanup(func() { conn.Close() })
	return conn
}

const (
	// lateBy is how late this machine may be with what is due for figures to count: well
	// below a tenth of the half seconds that the shortest are of.
	lateBy = 20 * time.Millisecond
	// attempts are made before what is wrong counts all the same.
	attempts = 5
)

// undisturbed measures on real devices, and anew when something is wrong and this machine was
// late itself meanwhile: when packets then come says nothing of gates.
func undisturbed(t *testing.T, measure func(*testing.T) (wrong []string)) {
	t.Helper()
	for attempt := 1; ; attempt++ {
		late := watchLateness()
		var wrong []string
		done := t.Run(fmt.Sprint("attempt ", attempt), func(t *testing.T) { wrong = measure(t) })
		by := late()
		if !done {
			return
		}
		if len(wrong) > 0 && by > lateBy && attempt < attempts {
			t.Logf("anew, for this machine was late by %v: %q", by, wrong)
			continue
		}
		for _, what := range wrong {
			t.Errorf("%s, while this machine was late by %v", what, by)
		}
		return
	}
}

// watchLateness returns what ends it, and returns how late this process was at most with what
// was due each few milliseconds.
func watchLateness() (end func() time.Duration) {
	const each = 5 * time.Millisecond
	ctx, cancel := context.WithCancel(context.Background())
	worst := make(chan time.Duration)
	go func() {
		longest, last := time.Duration(0), time.Now()
		for ctx.Err() == nil {
			<-time.After(each)
			now := time.Now()
			longest, last = max(longest, now.Sub(last)-each), now
		}
		worst <- longest
	}()
	return func() time.Duration {
		cancel()
		return <-worst
	}
}
