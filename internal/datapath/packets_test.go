package datapath

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

const (
	etherIPv4 = 0x0800
	etherARP  = 0x0806
	etherIPv6 = 0x86DD
	etherTag  = 0x8100
	etherQinQ = 0x88A8

	protoICMP, protoTCP, protoUDP, protoICMPv6 = 1, 6, 17, 58
	protoHop, protoRouting, protoFragment      = 0, 43, 44
	protoAH, protoNone, protoOptions, protoESP = 51, 59, 60, 50

	flagFIN, flagSYN, flagRST, flagACK = 1, 2, 4, 16
)

func bufferingOf(window, flood time.Duration, on float64) model.Buffering {
	return model.Buffering{Window: window, FloodWindow: flood, OnPackets: units.PacketsPerSecond(on)}
}

// ether is a frame with any number of types: all but the last are of VLAN tags.
func ether(payload []byte, types ...uint16) []byte {
	frame := []byte{2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1}
	for i, t := range types {
		frame = binary.BigEndian.AppendUint16(frame, t)
		if i < len(types)-1 {
			frame = binary.BigEndian.AppendUint16(frame, uint16(i+5))
		}
	}
	return append(frame, payload...)
}

// ip4 is an IPv4 packet with options of a length that is a multiple of 4.
func ip4(from string, proto byte, options int, payload []byte) []byte {
	h := make([]byte, 20+options)
	h[0] = 0x40 | byte(len(h)/4)
	binary.BigEndian.PutUint16(h[2:], uint16(len(h)+len(payload)))
	h[8], h[9] = 64, proto
	a := netip.MustParseAddr(from).As4()
	copy(h[12:], a[:])
	copy(h[16:], []byte{192, 0, 2, 2})
	for i := 20; i < len(h); i++ {
		h[i] = 1 // no operation
	}
	return slices.Concat(h, payload)
}

// ip6 is an IPv6 packet.
func ip6(from string, next, hops byte, payload []byte) []byte {
	h := make([]byte, 40)
	h[0] = 0x60
	binary.BigEndian.PutUint16(h[4:], uint16(len(payload)))
	h[6], h[7] = next, hops
	a := netip.MustParseAddr(from).As16()
	copy(h[8:], a[:])
	h[24], h[39] = 0x20, 1
	return slices.Concat(h, payload)
}

// extension is an extension header of IPv6 of a number of bytes, and what follows it.
func extension(proto, next byte, size int, payload []byte) []byte {
	h := make([]byte, size)
	h[0] = next
	switch proto {
	case protoAH:
		h[1] = byte(size/4 - 2)
	default:
		h[1] = byte(size/8 - 1)
	}
	return slices.Concat(h, payload)
}

// fragment6 is a fragment header of IPv6: the offset in units of 8 bytes.
func fragment6(next byte, offset uint16, more bool, payload []byte) []byte {
	h := make([]byte, 8)
	h[0] = next
	if more {
		offset = offset<<3 | 1
	} else {
		offset <<= 3
	}
	binary.BigEndian.PutUint16(h[2:], offset)
	return slices.Concat(h, payload)
}

func udp(from, to uint16, size int) []byte {
	h := make([]byte, 8+size)
	binary.BigEndian.PutUint16(h, from)
	binary.BigEndian.PutUint16(h[2:], to)
	binary.BigEndian.PutUint16(h[4:], uint16(len(h)))
	return h
}

func tcp(from, to uint16, flags byte, size int) []byte {
	h := make([]byte, 20+size)
	binary.BigEndian.PutUint16(h, from)
	binary.BigEndian.PutUint16(h[2:], to)
	h[12], h[13] = 5<<4, flags
	return h
}

func icmp6(kind byte) []byte { return append([]byte{kind}, make([]byte, 23)...) }

func arp() []byte {
	return ether(append([]byte{0, 1, 8, 0, 6, 4, 0, 1}, make([]byte, 20)...), etherARP)
}

// plain is a small UDP packet that nothing is special about, of one of many flows.
func plain(flow uint16) []byte {
	return ether(ip4("192.0.2.1", protoUDP, 0, udp(20_000+flow, 5000, 22)), etherIPv4)
}

func syn(flow uint16) []byte {
	return ether(ip4("192.0.2.1", protoTCP, 0, tcp(20_000+flow, 80, flagSYN, 0)), etherIPv4)
}

// changed is a packet with one byte that is another.
func changed(packet []byte, at int, to byte) []byte {
	packet = slices.Clone(packet)
	packet[at] = to
	return packet
}
