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

// Stream sends to an address for a time and returns what the far end, a Drain, got.
func Stream(s wire.Stream) (wire.Streamed, error) {
	conn, err := net.DialTimeout("tcp4", s.Address, pingTimeout*4)
	if err != nil {
		return wire.Streamed{}, fmt.Errorf("stream: %w", err)
	}
	defer conn.Close()
	tcp := conn.(*net.TCPConn)
	if err := errors.Join(pace(tcp, s.BytesPerSecond), conn.SetDeadline(time.Now().Add(s.Time))); err != nil {
		return wire.Streamed{}, fmt.Errorf("stream: %w", err)
	}
	block := make([]byte, writeBytes)
	for err == nil {
		_, err = conn.Write(block)
	}
	if timeout := (net.Error)(nil); !errors.As(err, &timeout) || !timeout.Timeout() {
		return wire.Streamed{}, fmt.Errorf("stream: %w", err)
	}
	streamed := wire.Streamed{Retransmits: retransmits(tcp)}
	// The far end tells how much it got when it has all.
	err = errors.Join(tcp.CloseWrite(), conn.SetDeadline(time.Now().Add(drainTimeout)))
	if err != nil {
		return streamed, fmt.Errorf("end the stream: %w", err)
	}
	var nanoseconds int64
	if _, err := fmt.Fscan(conn, &streamed.Bytes, &nanoseconds); err != nil {
		return streamed, fmt.Errorf("the far end's account: %w", err)
	}
	streamed.Seconds = time.Duration(nanoseconds).Seconds()
	return streamed, nil
}

const drainTimeout = 10 * time.Second

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

func retransmits(conn *net.TCPConn) uint64 {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0
	}
	var total uint64
	_ = raw.Control(func(fd uintptr) {
		if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			total = uint64(info.Total_retrans)
		}
	})
	return total
}

// Drain takes in streams at a port, and tells each source what came.
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
	var total uint64
	var first, last time.Duration
	for {
		n, err := conn.Read(buffer)
		if n > 0 {
			last = Clock()
			if total == 0 {
				first = last
			}
			total += uint64(n)
		}
		if errors.Is(err, io.EOF) {
			fmt.Fprintf(conn, "%d %d\n", total, (last - first).Nanoseconds())
			return
		}
		if err != nil {
			return
		}
	}
}
