// Package reply measures how long a guest lets those wait who ask it something. It
// sends datagrams to the guest's echo service at a steady pace, whether or not those
// before were answered, and takes the times of the answers from the kernel, so that
// a prober that has to wait for a CPU itself does not count as a slow guest.
package reply

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Options say how to ask.
type Options struct {
	// Address of the echo service, host:port.
	Address string
	// PerSecond is how many datagrams are sent each second. One whose time has passed
	// when the prober gets a CPU is left out.
	PerSecond int
	// Patience is how long an answer is waited for, and what a datagram without one
	// counts as.
	Patience time.Duration
}

// Result is what was measured.
type Result struct {
	// Sent and Answered count datagrams.
	Sent, Answered int
	// times of all that were sent, sorted.
	times []time.Duration
}

// Lost is how many had no answer.
func (r Result) Lost() int { return r.Sent - r.Answered }

// Percentile returns the smallest time that the share p of all, from 0 to 1, is not
// above: the nearest-rank method. 0 when nothing was sent.
func (r Result) Percentile(p float64) time.Duration {
	if len(r.times) == 0 {
		return 0
	}
	const nearlyOne = 0.999999
	rank := int(p*float64(len(r.times))+nearlyOne) - 1
	return r.times[min(max(rank, 0), len(r.times)-1)]
}

func (r Result) String() string {
	const p50, p95, p99 = 0.5, 0.95, 0.99
	round := func(p float64) time.Duration { return r.Percentile(p).Round(10 * time.Microsecond) }
	return fmt.Sprintf("p50 %v, p95 %v, p99 %v, %d of %d lost", round(p50), round(p95), round(p99), r.Lost(), r.Sent)
}

// Join returns what several measurements together say.
func Join(results ...Result) Result {
	var all Result
	for _, r := range results {
		all.Sent += r.Sent
		all.Answered += r.Answered
		all.times = append(all.times, r.times...)
	}
	slices.Sort(all.times)
	return all
}

// payloadBytes of a datagram: its number.
const payloadBytes = 8

// Asker asks a guest all the time.
type Asker struct {
	options Options
	conn    *net.UDPConn
	cancel  context.CancelFunc
	ended   sync.WaitGroup

	mu      sync.Mutex
	sent    []time.Time
	arrived map[uint64]time.Time
	err     error
}

// Start begins to ask, until Stop.
func Start(options Options) (*Asker, error) {
	if options.PerSecond <= 0 || options.Patience <= 0 {
		return nil, fmt.Errorf("ask %s: pace and patience must be above 0: %+v", options.Address, options)
	}
	address, err := net.ResolveUDPAddr("udp4", options.Address)
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", options.Address, err)
	}
	conn, err := net.DialUDP("udp4", nil, address)
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", options.Address, err)
	}
	if err := stampArrivals(conn); err != nil {
		conn.Close()
		return nil, fmt.Errorf("ask %s: %w", options.Address, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	a := &Asker{options: options, conn: conn, cancel: cancel, arrived: map[uint64]time.Time{}}
	a.ended.Go(func() { a.send(ctx) })
	a.ended.Go(a.receive)
	return a, nil
}

// Stop ends the asking. It may be called again.
func (a *Asker) Stop() {
	a.cancel()
	a.conn.Close()
	a.ended.Wait()
}

// During asks for a time, waits for the last answers, and returns what came of it.
func (a *Asker) During(ctx context.Context, period time.Duration) (Result, error) {
	from := time.Now()
	select {
	case <-ctx.Done():
		return Result{}, fmt.Errorf("ask %s: %w", a.options.Address, ctx.Err())
	case <-time.After(period + a.options.Patience):
	}
	return a.Between(from, from.Add(period))
}

// Between returns what came of the datagrams that were sent from a time on and before
// another. It is complete when the patience with the last of them is over.
func (a *Asker) Between(from, to time.Time) (Result, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.err != nil {
		return Result{}, fmt.Errorf("ask %s: %w", a.options.Address, a.err)
	}
	first, _ := slices.BinarySearchFunc(a.sent, from, time.Time.Compare)
	last, _ := slices.BinarySearchFunc(a.sent, to, time.Time.Compare)
	return evaluate(a.sent, a.arrived, first, max(first, last), a.options.Patience), nil
}

// stampArrivals has the kernel tell when each datagram came.
func stampArrivals(conn *net.UDPConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1)
	})
	return errors.Join(err, failed)
}

// send paces the datagrams.
func (a *Asker) send(ctx context.Context) {
	tick := time.NewTicker(time.Second / time.Duration(a.options.PerSecond))
	defer tick.Stop()
	for number := uint64(0); ; number++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		payload := binary.BigEndian.AppendUint64(nil, number)
		a.mu.Lock()
		a.sent = append(a.sent, time.Now())
		a.mu.Unlock()
		// A guest that is not there refuses by ICMP: what it is asked is lost.
		if _, err := a.conn.Write(payload); err != nil && !errors.Is(err, unix.ECONNREFUSED) {
			a.fail(err)
			return
		}
	}
}

// fail keeps why it went wrong, unless the Asker was stopped.
func (a *Asker) fail(err error) {
	if errors.Is(err, net.ErrClosed) {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.err = errors.Join(a.err, err)
}

// receive notes when each answer came.
func (a *Asker) receive() {
	payload, control := make([]byte, payloadBytes), make([]byte, unix.CmsgSpace(int(unsafe.Sizeof(unix.Timespec{}))))
	for {
		n, controlBytes, _, _, err := a.conn.ReadMsgUDP(payload, control)
		if errors.Is(err, unix.ECONNREFUSED) {
			continue
		}
		if err != nil {
			a.fail(err)
			return
		}
		at, ok := stampOf(control[:controlBytes])
		if n != payloadBytes || !ok {
			continue
		}
		number := binary.BigEndian.Uint64(payload)
		a.mu.Lock()
		if _, twice := a.arrived[number]; !twice {
			a.arrived[number] = at
		}
		a.mu.Unlock()
	}
}

// stampOf finds the kernel's time of arrival among the control messages.
func stampOf(control []byte) (time.Time, bool) {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return time.Time{}, false
	}
	for _, m := range messages {
		if m.Header.Level != unix.SOL_SOCKET || m.Header.Type != unix.SCM_TIMESTAMPNS || len(m.Data) < int(unsafe.Sizeof(unix.Timespec{})) {
			continue
		}
		seconds := int64(binary.NativeEndian.Uint64(m.Data))
		nanoseconds := int64(binary.NativeEndian.Uint64(m.Data[8:]))
		return time.Unix(seconds, nanoseconds), true
	}
	return time.Time{}, false
}

// evaluate pairs what was sent, from a number on and before another, with what came.
// An answer later than the patience is none.
func evaluate(sent []time.Time, arrived map[uint64]time.Time, first, last int, patience time.Duration) Result {
	result := Result{Sent: last - first}
	for number := first; number < last; number++ {
		took := patience
		// The kernel's stamps are of the wall clock, and so is the difference.
		if answer, ok := arrived[uint64(number)]; ok && answer.Sub(sent[number]) < patience {
			took = max(0, answer.Sub(sent[number]))
			result.Answered++
		}
		result.times = append(result.times, took)
	}
	slices.Sort(result.times)
	return result
}
