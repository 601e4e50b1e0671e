// Package load makes traffic and receives it, with what it takes to tell lost, reordered and
// duplicated packets.
package load

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/joulevirt/joulevirt/test/nodevm/wire"
)

// HeaderBytes of each datagram: run, flow, number.
const HeaderBytes = 4 + 2 + 8

// maxDatagram is more than any that is sent.
const maxDatagram = 2048

// prepareThread keeps the goroutine on one thread that wakes up in time.
func prepareThread() (release func()) {
	runtime.LockOSThread()
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0) // it only wakes up later
	return runtime.UnlockOSThread
}

func sockaddr(address string) (*unix.SockaddrInet4, error) {
	at, err := net.ResolveUDPAddr("udp4", address)
	if err != nil {
		return nil, err
	}
	return &unix.SockaddrInet4{Port: at.Port, Addr: at.AddrPort().Addr().Unmap().As4()}, nil
}

// bufferBytes of a socket: more than a second of what is sent.
const bufferBytes = 8 << 20

func udpSocket() (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open a socket: %w", err)
	}
	err = errors.Join(
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, bufferBytes),
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, bufferBytes))
	if err != nil {
		_ = unix.Close(fd)
		return -1, fmt.Errorf("size the buffers of a socket: %w", err)
	}
	return fd, nil
}

// Send sends a steady stream from the network namespace of the thread.
func Send(l wire.Load) (wire.Sent, error) {
	defer prepareThread()()
	to, err := sockaddr(l.Address)
	if err != nil {
		return wire.Sent{}, err
	}
	sockets := make([]int, 0, l.Flows)
	defer func() {
		for _, fd := range sockets {
			_ = unix.Close(fd)
		}
	}()
	for range l.Flows {
		fd, err := udpSocket()
		if err != nil {
			return wire.Sent{}, err
		}
		sockets = append(sockets, fd)
		if err := unix.Connect(fd, to); err != nil {
			return wire.Sent{}, fmt.Errorf("connect to %s: %w", l.Address, err)
		}
	}
	sent := wire.Sent{Packets: make([]uint64, l.Flows)}
	packet := make([]byte, max(l.Bytes, HeaderBytes))
	binary.BigEndian.PutUint32(packet, l.Run)
	start := Clock()
	due := func(n int) time.Duration {
		return start + time.Duration(float64(n)/l.PerSecond*float64(time.Second))
	}
	for n := range l.Packets {
		until(due(n))
		if Clock() >= due(n+1) {
			sent.Late++
		}
		flow := n % l.Flows
		binary.BigEndian.PutUint16(packet[4:], uint16(flow))
		binary.BigEndian.PutUint64(packet[6:], sent.Packets[flow])
		if rawWrite(sockets[flow], packet) != 0 {
			sent.Errors++
			continue
		}
		sent.Packets[flow]++
	}
	sent.Seconds = (Clock() - start).Seconds()
	return sent, nil
}

// Sink takes in streams of Send.
type Sink struct {
	mu   sync.Mutex
	runs map[uint32]*[]flow
}

// flow is what came of one flow.
type flow struct {
	seen                            []uint64 // bits
	next                            uint64   // one more than the highest that came
	distinct, reordered, duplicated uint64
}

func (f *flow) add(number uint64) {
	word, bit := number/64, uint64(1)<<(number%64)
	if missing := int(word) + 1 - len(f.seen); missing > 0 {
		f.seen = append(f.seen, make([]uint64, missing)...)
	}
	switch {
	case f.seen[word]&bit != 0:
		f.duplicated++
		return
	case number < f.next:
		f.reordered++
	default:
		f.next = number + 1
	}
	f.seen[word] |= bit
	f.distinct++
}

// maxNumber bounds what a stray packet may cost.
const (
	maxNumber = 1 << 24
	maxFlows  = 1 << 10
)

// Add takes in one datagram; a stray one is no error.
func (s *Sink) Add(packet []byte) {
	if len(packet) < HeaderBytes {
		return
	}
	run, of := binary.BigEndian.Uint32(packet), int(binary.BigEndian.Uint16(packet[4:]))
	number := binary.BigEndian.Uint64(packet[6:])
	if number >= maxNumber || of >= maxFlows {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	flows := s.runs[run]
	if flows == nil {
		if s.runs == nil {
			s.runs = map[uint32]*[]flow{}
		}
		flows = &[]flow{}
		s.runs[run] = flows
	}
	if missing := of + 1 - len(*flows); missing > 0 {
		*flows = append(*flows, make([]flow, missing)...)
	}
	(*flows)[of].add(number)
}

// Tally tells what came of a run so far.
func (s *Sink) Tally(run uint32) wire.Tally {
	s.mu.Lock()
	defer s.mu.Unlock()
	var tally wire.Tally
	if flows := s.runs[run]; flows != nil {
		for i := range *flows {
			f := &(*flows)[i]
			tally.Distinct = append(tally.Distinct, f.distinct)
			tally.Reordered += f.reordered
			tally.Duplicated += f.duplicated
		}
	}
	return tally
}

// listen opens a UDP port in the network namespace of the thread.
func listen(port int) (int, error) {
	fd, err := udpSocket()
	if err != nil {
		return -1, err
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Port: port}); err != nil {
		_ = unix.Close(fd)
		return -1, fmt.Errorf("listen on UDP %d: %w", port, err)
	}
	return fd, nil
}

// Serve takes in what comes to a port, from when it returns on.
func (s *Sink) Serve(port int) error {
	fd, err := listen(port)
	if err != nil {
		return err
	}
	go func() {
		packet := make([]byte, maxDatagram)
		for {
			// A process that lives as long as its machine needs no end of this.
			if n, errno := rawRead(fd, packet); errno == 0 {
				s.Add(packet[:n])
			}
		}
	}()
	return nil
}

// Echo sends back what comes to a port, from when it returns on.
func Echo(port int) error {
	fd, err := listen(port)
	if err != nil {
		return err
	}
	go func() {
		packet := make([]byte, maxDatagram)
		for {
			rawEcho(fd, packet)
		}
	}()
	return nil
}

// pingTimeout is when an answer counts as lost.
const pingTimeout = 500 * time.Millisecond

// Round asks an echo from the network namespace of the thread.
func Round(p wire.Ping) (wire.Pinged, error) {
	defer prepareThread()()
	to, err := sockaddr(p.Address)
	if err != nil {
		return wire.Pinged{}, err
	}
	fd, err := udpSocket()
	if err != nil {
		return wire.Pinged{}, err
	}
	defer unix.Close(fd)
	timeout := unix.NsecToTimeval(pingTimeout.Nanoseconds())
	if err := errors.Join(unix.Connect(fd, to), unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout)); err != nil {
		return wire.Pinged{}, err
	}
	var pinged wire.Pinged
	var times []time.Duration
	packet, answer := make([]byte, HeaderBytes), make([]byte, maxDatagram)
	start := Clock()
	for n := range p.Count {
		until(start + time.Duration(n)*p.Gap)
		binary.BigEndian.PutUint64(packet[6:], uint64(n))
		began := Clock()
		if errno := rawWrite(fd, packet); errno != 0 {
			return pinged, fmt.Errorf("ask %s: %w", p.Address, errno)
		}
		if answered(fd, answer, uint64(n)) {
			times = append(times, Clock()-began)
		} else {
			pinged.Lost++
		}
	}
	slices.Sort(times)
	if n := len(times); n > 0 {
		pinged.P25, pinged.P50, pinged.P95, pinged.P99 = times[n/4], times[n/2], times[n*95/100], times[n*99/100]
	}
	return pinged, nil
}

// answered waits for one answer and leaves out late ones.
func answered(fd int, answer []byte, number uint64) bool {
	for {
		n, errno := rawRead(fd, answer)
		if errno != 0 {
			return false
		}
		if n >= HeaderBytes && binary.BigEndian.Uint64(answer[6:]) == number {
			return true
		}
	}
}
