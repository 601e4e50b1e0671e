package guesttools

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/joulevirt/joulevirt/internal/datapath/inband"
)

const (
	// mostReceived frames are taken in a round: more than may wait, so that there is room for
	// the answer to what is sent next.
	mostReceived = 1024
	// roomBytes is what may wait, of which the kernel takes some hundred for each frame.
	roomBytes = 64 << 10
)

// line is a packet socket of one card for frames of one EtherType.
type line struct {
	fd    int
	index int
}

// networkOrder is a number as packet sockets want it.
func networkOrder(n uint16) uint16 {
	return binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, n))
}

func openLine(c card) (*line, error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("packet socket (it takes CAP_NET_RAW): %w", err)
	}
	l := &line{fd: fd, index: c.index}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, roomBytes); err != nil {
		return nil, errors.Join(fmt.Errorf("packet socket of card %s: %w", c.name, err), l.close())
	}
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: networkOrder(inband.EtherType), Ifindex: c.index}); err != nil {
		return nil, errors.Join(fmt.Errorf("packet socket of card %s: %w", c.name, err), l.close())
	}
	return l, nil
}

// send sends a frame. A card that is down sends none, which is no error.
func (l *line) send(frame [inband.Size]byte) error {
	err := unix.Sendto(l.fd, frame[:], 0, &unix.SockaddrLinklayer{
		Protocol: networkOrder(inband.EtherType), Ifindex: l.index, Halen: uint8(len(inband.MAC{})),
	})
	if err == nil || transient(err) {
		return nil
	}
	return fmt.Errorf("send a declaration: %w", err)
}

// receive returns the answer to the declaration of a nonce that came since the last time;
// nil if absent. What else came is dropped.
func (l *line) receive(c card, nonce uint32) (*inband.Answer, error) {
	var answer *inband.Answer
	buffer := make([]byte, 2*inband.Size)
	for range mostReceived {
		n, _, err := unix.Recvfrom(l.fd, buffer, unix.MSG_DONTWAIT|unix.MSG_TRUNC)
		if errors.Is(err, unix.EAGAIN) {
			break
		}
		if transient(err) {
			continue
		}
		if err != nil {
			return answer, fmt.Errorf("receive answers: %w", err)
		}
		received, ok := inband.ParseAnswer(buffer[:min(n, len(buffer))])
		if ok && received.Nonce == nonce && received.Destination == c.address {
			answer = &received
		}
	}
	return answer, nil
}

// transient errors are those of a card that is down or busy.
func transient(err error) bool {
	return errors.Is(err, unix.ENETDOWN) || errors.Is(err, unix.ENOBUFS) || errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR)
}

func (l *line) close() error { return unix.Close(l.fd) }
