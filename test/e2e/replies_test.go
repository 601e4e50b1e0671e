//go:build e2e

package e2e

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// requestsPerSecond are sent to the guest all the time.
	requestsPerSecond = 200
	// replyPatience is how long an answer is waited for, and what one that never came
	// counts as.
	replyPatience = 2 * time.Second
)

// asker sends datagrams to a guest's echo service at a steady pace, whether or not those
// before were answered. The times of the answers are the kernel's, so that an asker that has
// to wait for a CPU itself does not count as a slow guest.
type asker struct {
	conn *net.UDPConn

	mu       sync.Mutex
	sent     []time.Time // by the number in the datagram
	answered map[uint64]time.Time
}

// startAsker asks until the test ends.
func startAsker(t *testing.T, address string) *asker {
	t.Helper()
	conn, err := net.Dial("udp4", address)
	if err != nil {
		t.Fatal(err)
	}
	a := &asker{conn: conn.(*net.UDPConn), answered: map[uint64]time.Time{}}
	raw, err := a.conn.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var failed error
	err = raw.Control(func(fd uintptr) { failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1) })
	if err := errors.Join(err, failed); err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(a.send)
	running.Go(a.receive)
	t.Cleanup(func() {
		conn.Close()
		running.Wait()
	})
	return a
}

func (a *asker) send() {
	tick := time.NewTicker(time.Second / requestsPerSecond)
	defer tick.Stop()
	for number := uint64(0); ; number++ {
		<-tick.C
		a.mu.Lock()
		a.sent = append(a.sent, time.Now())
		a.mu.Unlock()
		// A guest that is not there refuses: what it is asked is lost.
		if _, err := a.conn.Write(binary.BigEndian.AppendUint64(nil, number)); errors.Is(err, net.ErrClosed) {
			return
		}
	}
}

func (a *asker) receive() {
	payload, control := make([]byte, 8), make([]byte, unix.CmsgSpace(int(unsafe.Sizeof(unix.Timespec{}))))
	for {
		n, controlBytes, _, _, err := a.conn.ReadMsgUDP(payload, control)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		messages, parseErr := unix.ParseSocketControlMessage(control[:controlBytes])
		if err != nil || parseErr != nil || n != len(payload) || len(messages) != 1 {
			continue
		}
		at := (*unix.Timespec)(unsafe.Pointer(&messages[0].Data[0]))
		a.mu.Lock()
		a.answered[binary.BigEndian.Uint64(payload)] = time.Unix(at.Unix())
		a.mu.Unlock()
	}
}

// replies are what came of the datagrams of some time.
type replies struct {
	sent, lost int
	p95        time.Duration
}

func (r replies) String() string { return fmt.Sprintf("p95 %v, %d of %d lost", r.p95, r.lost, r.sent) }

// during asks for a time, waits for the last answers, and returns what came of it.
func (a *asker) during(ctx context.Context, period time.Duration) (replies, error) {
	from := time.Now()
	select {
	case <-ctx.Done():
		return replies{}, fmt.Errorf("ask the guest: %w", ctx.Err())
	case <-time.After(period + replyPatience):
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	var r replies
	var times []time.Duration
	for number, sent := range a.sent {
		if sent.Before(from) || !sent.Before(from.Add(period)) {
			continue
		}
		took := replyPatience
		if at, ok := a.answered[uint64(number)]; ok {
			// Of the wall clock, which may have been set.
			took = min(max(0, at.Sub(sent)), replyPatience)
		}
		if took == replyPatience {
			r.lost++
		}
		times = append(times, took)
	}
	if r.sent = len(times); r.sent == 0 {
		return r, errors.New("the guest was asked nothing")
	}
	slices.Sort(times)
	r.p95 = times[(r.sent*95+99)/100-1]
	return r, nil
}
