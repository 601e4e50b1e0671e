// Package inband has the frames that a guest and its host exchange, which never leave the
// node: see docs/design/shaping-and-buffering.md. The host's side of it is in eBPF, with the
// same layout in internal/datapath/bpf/inband.h.
package inband

import (
	"encoding/binary"
	"math"
	"time"
)

const (
	// EtherType of the frames, one of the two for local experiments (IEEE 802).
	EtherType = 0x88B5
	// Size of a frame in bytes, which is the least that Ethernet has.
	Size = 60
	// Version of the layout.
	Version = 1
	// Fresh is how long an answer stands.
	Fresh = 10 * time.Second
	// Interval between two declarations.
	Interval = 2 * time.Second
)

const (
	magic       = 0x4A564542 // "JVEB"
	declaration = 1
	answer      = 2
	flagDefers  = 1
)

// Where the fields are. The rest of a frame is zero.
const (
	sourceAt    = 6
	etherTypeAt = 12
	magicAt     = 14
	versionAt   = 18
	kindAt      = 19
	flagsAt     = 20
	nonceAt     = 22
	windowAt    = 26
	secondAt    = 30
)

// MAC is an Ethernet address.
type MAC [6]byte

// Group is where declarations are sent: bridges do not forward it.
func Group() MAC { return MAC{0x01, 0x80, 0xC2, 0x00, 0x00, 0x0E} }

// Declaration is what a guest declares about one of its cards.
type Declaration struct {
	// Source is the card's own address.
	Source MAC
	// Nonce is repeated by the answer.
	Nonce uint32
	// Tolerated is the longest window that the guest tolerates for what it receives.
	// 0: none.
	Tolerated time.Duration
	// Transmit is the window of what it sends. 0: it holds nothing.
	Transmit time.Duration
	// Defers is true while it defers its receive interrupts.
	Defers bool
}

// Answer is what the host sends back.
type Answer struct {
	// Destination is the address of the guest's card.
	Destination MAC
	// Nonce of the declaration.
	Nonce uint32
	// Window for which the guest may hold what it sends. 0: not at all.
	Window time.Duration
	// OnPackets is the rate, in packets per second, from which it may.
	OnPackets uint32
}

// Frame encodes a declaration. Times are cut to whole microseconds.
func (d Declaration) Frame() (f [Size]byte) {
	var flags uint16
	if d.Defers {
		flags = flagDefers
	}
	group := Group()
	copy(f[:], group[:])
	copy(f[sourceAt:], d.Source[:])
	binary.BigEndian.PutUint16(f[etherTypeAt:], EtherType)
	binary.BigEndian.PutUint32(f[magicAt:], magic)
	f[versionAt], f[kindAt] = Version, declaration
	binary.BigEndian.PutUint16(f[flagsAt:], flags)
	binary.BigEndian.PutUint32(f[nonceAt:], d.Nonce)
	binary.BigEndian.PutUint32(f[windowAt:], microseconds(d.Tolerated))
	binary.BigEndian.PutUint32(f[secondAt:], microseconds(d.Transmit))
	return f
}

func microseconds(d time.Duration) uint32 {
	return uint32(min(max(d.Microseconds(), 0), math.MaxUint32))
}

// ParseAnswer decodes what a host sent, with its Ethernet header; false if it is something
// else.
func ParseAnswer(f []byte) (Answer, bool) {
	if len(f) < Size || binary.BigEndian.Uint16(f[etherTypeAt:]) != EtherType ||
		binary.BigEndian.Uint32(f[magicAt:]) != magic || f[versionAt] != Version || f[kindAt] != answer {
		return Answer{}, false
	}
	return Answer{
		Destination: MAC(f[:sourceAt]), Nonce: binary.BigEndian.Uint32(f[nonceAt:]),
		Window:    time.Duration(binary.BigEndian.Uint32(f[windowAt:])) * time.Microsecond,
		OnPackets: binary.BigEndian.Uint32(f[secondAt:]),
	}, true
}
