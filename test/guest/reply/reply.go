// Package reply measures how long a guest lets those wait who ask it something: it
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
	// Duration of the sending.
	Duration time.Duration
	// Patience is how long answers are waited for after the last was sent, and what a
	// datagram without an answer counts as.
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

// Measure asks and returns when all answers are there or the patience is over.
func Measure(ctx context.Context, options Options) (Result, error) {
	if options.PerSecond <= 0 || options.Duration <= 0 || options.Patience <= 0 {
		return Result{}, fmt.Errorf("ask %s: pace, duration and patience must be above 0: %+v", options.Address, options)
	}
	address, err := net.ResolveUDPAddr("udp4", options.Address)
	if err != nil {
		return Result{}, fmt.Errorf("ask %s: %w", options.Address, err)
	}
	conn, err := net.DialUDP("udp4", nil, address)
	if err != nil {
		return Result{}, fmt.Errorf("ask %s: %w", options.Address, err)
	}
	defer conn.Close()
	if err := stampArrivals(conn); err != nil {
		return Result{}, fmt.Errorf("ask %s: %w", options.Address, err)
	}
	arrived := make(chan map[uint64]time.Time, 1)
	go func() { arrived <- receive(conn) }()
	sent, err := send(ctx, conn, options)
	if err == nil {
		err = conn.SetReadDeadline(time.Now().Add(options.Patience))
	}
	if err != nil {
		_ = conn.SetReadDeadline(time.Now()) // ends the receiver; the socket is closed anyway
		<-arrived
		return Result{}, fmt.Errorf("ask %s: %w", options.Address, err)
	}
	return evaluate(sent, <-arrived, options.Patience), nil
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

// send paces the datagrams and returns when each was sent, by its number.
func send(ctx context.Context, conn *net.UDPConn, options Options) ([]time.Time, error) {
	tick := time.NewTicker(time.Second / time.Duration(options.PerSecond))
	defer tick.Stop()
	var sent []time.Time
	for end := time.Now().Add(options.Duration); time.Now().Before(end); {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-tick.C:
		}
		payload := binary.BigEndian.AppendUint64(nil, uint64(len(sent)))
		sent = append(sent, time.Now())
		// A guest that is not there yet refuses by ICMP: its datagrams are lost.
		if _, err := conn.Write(payload); err != nil && !errors.Is(err, unix.ECONNREFUSED) {
			return nil, err
		}
	}
	return sent, nil
}

// receive collects when each answer came, until the socket's deadline.
func receive(conn *net.UDPConn) map[uint64]time.Time {
	arrived := map[uint64]time.Time{}
	payload, control := make([]byte, payloadBytes), make([]byte, unix.CmsgSpace(int(unsafe.Sizeof(unix.Timespec{}))))
	for {
		n, controlBytes, _, _, err := conn.ReadMsgUDP(payload, control)
		if errors.Is(err, unix.ECONNREFUSED) {
			continue
		}
		if err != nil {
			return arrived
		}
		at, ok := stampOf(control[:controlBytes])
		if n != payloadBytes || !ok {
			continue
		}
		number := binary.BigEndian.Uint64(payload)
		if _, twice := arrived[number]; !twice {
			arrived[number] = at
		}
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

// evaluate pairs what was sent with what came. An answer later than the patience is
// none, however long others were waited for.
func evaluate(sent []time.Time, arrived map[uint64]time.Time, patience time.Duration) Result {
	result := Result{Sent: len(sent)}
	for number, at := range sent {
		took := patience
		if answer, ok := arrived[uint64(number)]; ok && answer.Sub(at) < patience {
			// The kernel's stamp is of the wall clock.
			took = max(0, answer.Round(0).Sub(at.Round(0)))
			result.Answered++
		}
		result.times = append(result.times, took)
	}
	slices.Sort(result.times)
	return result
}
