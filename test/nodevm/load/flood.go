package load

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"github.com/joulevirt/joulevirt/test/nodevm/wire"
)

// frame offsets of Ethernet, IPv4 without options, TCP without options.
const (
	ipAt, tcpAt, frameBytes = 14, 34, 54
	// minimumFrame is what a wire pads to.
	minimumFrame = 60
)

// FloodFrom sends SYNs of random sources out of a device, in the network namespace of the
// thread.
func FloodFrom(device string, f wire.Flood) (wire.Sent, error) {
	defer prepareThread()()
	link, err := net.InterfaceByName(device)
	if err != nil {
		return wire.Sent{}, err
	}
	victim, err := sockaddr(f.Address)
	if err != nil {
		return wire.Sent{}, err
	}
	mac, err := net.ParseMAC(f.MAC)
	if err != nil {
		return wire.Sent{}, err
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return wire.Sent{}, fmt.Errorf("open a packet socket: %w", err)
	}
	defer unix.Close(fd)
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: link.Index}); err != nil {
		return wire.Sent{}, fmt.Errorf("send from %s: %w", device, err)
	}
	frame := make([]byte, minimumFrame)
	copy(frame, mac)
	copy(frame[6:], link.HardwareAddr)
	random := rand.New(rand.NewPCG(1, 2))
	sent := wire.Sent{Packets: make([]uint64, 1)}
	start := Clock()
	for n := range f.Packets {
		until(start + time.Duration(float64(n)/f.PerSecond*float64(time.Second)))
		syn(frame, victim, random.Uint32(), random.Uint32())
		if rawWrite(fd, frame) != 0 {
			sent.Errors++
			continue
		}
		sent.Packets[0]++
	}
	sent.Seconds = (Clock() - start).Seconds()
	return sent, nil
}

// syn writes one of a source in 11.0.0.0/8.
func syn(frame []byte, to *unix.SockaddrInet4, source, number uint32) {
	const syn = 0x02
	binary.BigEndian.PutUint16(frame[12:], unix.ETH_P_IP)
	ip, tcp := frame[ipAt:tcpAt], frame[tcpAt:frameBytes]
	clear(ip)
	clear(tcp)
	ip[0], ip[8], ip[9] = 0x45, 64, unix.IPPROTO_TCP
	binary.BigEndian.PutUint16(ip[2:], frameBytes-ipAt)
	binary.BigEndian.PutUint32(ip[12:], 11<<24|source&0xffffff)
	copy(ip[16:], to.Addr[:])
	binary.BigEndian.PutUint16(ip[10:], checksum(0, ip))
	binary.BigEndian.PutUint16(tcp, uint16(1024+source>>24))
	binary.BigEndian.PutUint16(tcp[2:], uint16(to.Port))
	binary.BigEndian.PutUint32(tcp[4:], number)
	tcp[12], tcp[13] = 5<<4, syn
	binary.BigEndian.PutUint16(tcp[14:], 1024)
	pseudo := uint32(unix.IPPROTO_TCP) + uint32(len(tcp))
	for i := 12; i < 20; i += 2 {
		pseudo += uint32(binary.BigEndian.Uint16(ip[i:]))
	}
	binary.BigEndian.PutUint16(tcp[16:], checksum(pseudo, tcp))
}

// checksum is that of RFC 1071 over an even number of bytes.
func checksum(sum uint32, of []byte) uint16 {
	for i := 0; i < len(of); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(of[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}
