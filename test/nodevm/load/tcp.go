package load

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/joulevirt/joulevirt/test/nodevm/wire"
)

// writeBytes is what a source writes at a time.
const writeBytes = 64 << 10

// Stream sends to an address, a Drain, for a time and returns how much of what it sent once it
// had settled came.
func Stream(s wire.Stream) (wire.Streamed, error) {
	conn, err := net.DialTimeout("tcp4", s.Address, pingTimeout*4)
	if err != nil {
		return wire.Streamed{}, fmt.Errorf("stream: %w", err)
	}
	defer conn.Close()
	tcp := conn.(*net.TCPConn)
	if err := pace(tcp, s.BytesPerSecond); err != nil {
		return wire.Streamed{}, fmt.Errorf("stream: %w", err)
	}
	settled, err := sendUntil(tcp, time.Now().Add(s.Settle))
	if err != nil {
		return wire.Streamed{}, err
	}
	end, err := sendUntil(tcp, time.Now().Add(s.Time))
	if err != nil {
		return wire.Streamed{}, err
	}
	streamed := wire.Streamed{
		Bytes: end.bytes - settled.bytes, Seconds: (end.at - settled.at).Seconds(), Retransmits: end.retransmits,
	}
	// The far end ends when it has all.
	err = errors.Join(tcp.CloseWrite(), conn.SetDeadline(time.Now().Add(drainTimeout)))
	if err != nil {
		return streamed, fmt.Errorf("end the stream: %w", err)
	}
	if _, err := io.Copy(io.Discard, conn); err != nil {
		return streamed, fmt.Errorf("wait for the far end: %w", err)
	}
	return streamed, nil
}

const drainTimeout = 10 * time.Second

// progress is what the far end acknowledged until a time of Clock, and what was sent again.
type progress struct {
	at                 time.Duration
	bytes, retransmits uint64
}

// sendUntil sends what the connection takes until a time.
func sendUntil(conn *net.TCPConn, deadline time.Time) (p progress, err error) {
	if err := conn.SetDeadline(deadline); err != nil {
		return p, fmt.Errorf("stream: %w", err)
	}
	block := make([]byte, writeBytes)
	for err == nil {
		_, err = conn.Write(block)
	}
	if timeout := (net.Error)(nil); !errors.As(err, &timeout) || !timeout.Timeout() {
		return p, fmt.Errorf("stream: %w", err)
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return p, fmt.Errorf("stream: %w", err)
	}
	var info *unix.TCPInfo
	controlErr := raw.Control(func(fd uintptr) {
		p.at = Clock()
		info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
	})
	if err := errors.Join(controlErr, err); err != nil {
		return p, fmt.Errorf("what came of the stream: %w", err)
	}
	p.bytes, p.retransmits = info.Bytes_acked, uint64(info.Total_retrans)
	return p, nil
}

// pace has the kernel send no faster. 0: as fast as it can.
func pace(conn *net.TCPConn, bytesPerSecond int) error {
	if bytesPerSecond == 0 {
		return nil
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	controlErr := raw.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MAX_PACING_RATE, bytesPerSecond)
	})
	return errors.Join(controlErr, err)
}

// Drain takes in streams at a port, and ends each when it has all of it.
func Drain(port int) error {
	listener, err := net.Listen("tcp4", fmt.Sprintf(":%d", port))
	if err != nil {
		return err
	}
	buffers := sync.Pool{New: func() any { b := make([]byte, writeBytes); return &b }}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				buffer := buffers.Get().(*[]byte)
				defer buffers.Put(buffer)
				drain(conn, *buffer)
			}()
		}
	}()
	return nil
}

func drain(conn net.Conn, buffer []byte) {
	for {
		if _, err := conn.Read(buffer); err != nil {
			return
		}
	}
}
