// Package inband is what a guest and its host tell one another in frames that never
// leave the node: see docs/design/inband.md. The host's side of it is in eBPF, with the
// same layout in internal/datapath/bpf/inband.h.
package inband

import (
	"encoding/binary"
	"errors"
	"fmt"
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

var (
	// ErrOther means that the frame is not of this protocol.
	ErrOther = errors.New("a frame of another protocol")
	// ErrVersion means that the sender speaks another version of it.
	ErrVersion = errors.New("a frame of another version")
	// ErrMalformed means that the frame makes no sense.
	ErrMalformed = errors.New("malformed frame")
)

// MAC is an Ethernet address.
type MAC [6]byte

// Group is where declarations are sent: bridges do not forward it.
func Group() MAC { return MAC{0x01, 0x80, 0xC2, 0x00, 0x00, 0x0E} }

// Declaration is what a guest says about one of its cards.
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

// Answer is what the host says to it.
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
func (d Declaration) Frame() [Size]byte {
	var flags uint16
	if d.Defers {
		flags = flagDefers
	}
	f := frame(Group(), d.Source, declaration, d.Nonce)
	binary.BigEndian.PutUint16(f[flagsAt:], flags)
	binary.BigEndian.PutUint32(f[windowAt:], microseconds(d.Tolerated))
	binary.BigEndian.PutUint32(f[secondAt:], microseconds(d.Transmit))
	return f
}

// Frame encodes an answer. Hosts do not: their program makes it of the declaration.
func (a Answer) Frame() [Size]byte {
	f := frame(a.Destination, Group(), answer, a.Nonce)
	binary.BigEndian.PutUint32(f[windowAt:], microseconds(a.Window))
	binary.BigEndian.PutUint32(f[secondAt:], a.OnPackets)
	return f
}

func frame(destination, source MAC, kind byte, nonce uint32) (f [Size]byte) {
	copy(f[:], destination[:])
	copy(f[sourceAt:], source[:])
	binary.BigEndian.PutUint16(f[etherTypeAt:], EtherType)
	binary.BigEndian.PutUint32(f[magicAt:], magic)
	f[versionAt], f[kindAt] = Version, kind
	binary.BigEndian.PutUint32(f[nonceAt:], nonce)
	return f
}

func microseconds(d time.Duration) uint32 {
	return uint32(min(max(d.Microseconds(), 0), math.MaxUint32))
}

// ParseDeclaration decodes what a guest sent, with its Ethernet header. The error is
// ErrOther, or wraps ErrVersion or ErrMalformed.
func ParseDeclaration(f []byte) (Declaration, error) {
	if err := check(f, declaration); err != nil {
		return Declaration{}, err
	}
	return Declaration{
		Source: MAC(f[sourceAt:etherTypeAt]), Nonce: binary.BigEndian.Uint32(f[nonceAt:]),
		Tolerated: window(f, windowAt), Transmit: window(f, secondAt),
		// Flags of later versions that this one may ignore.
		Defers: binary.BigEndian.Uint16(f[flagsAt:])&flagDefers != 0,
	}, nil
}

// ParseAnswer decodes what a host sent, likewise.
func ParseAnswer(f []byte) (Answer, error) {
	if err := check(f, answer); err != nil {
		return Answer{}, err
	}
	return Answer{
		Destination: MAC(f[:sourceAt]), Nonce: binary.BigEndian.Uint32(f[nonceAt:]),
		Window: window(f, windowAt), OnPackets: binary.BigEndian.Uint32(f[secondAt:]),
	}, nil
}

func check(f []byte, kind byte) error {
	if len(f) < versionAt || binary.BigEndian.Uint16(f[etherTypeAt:]) != EtherType ||
		binary.BigEndian.Uint32(f[magicAt:]) != magic {
		return ErrOther
	}
	if len(f) < Size {
		return fmt.Errorf("%w: %d bytes, want %d", ErrMalformed, len(f), Size)
	}
	if f[versionAt] != Version {
		return fmt.Errorf("%w: %d, this is %d", ErrVersion, f[versionAt], Version)
	}
	if f[kindAt] != kind {
		return fmt.Errorf("%w: kind %d, want %d", ErrMalformed, f[kindAt], kind)
	}
	return nil
}

func window(f []byte, at int) time.Duration {
	return time.Duration(binary.BigEndian.Uint32(f[at:])) * time.Microsecond
}
