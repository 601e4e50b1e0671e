package model

import (
	"cmp"
	"slices"
	"time"

	"github.com/joulevirt/joulevirt/internal/units"
)

// The windows of buffering, shortest first. The boundaries of each are boundaries of
// all shorter ones: multiples of the window on the node's CLOCK_MONOTONIC.
const (
	ShortestWindow = 125 * time.Microsecond
	LongestWindow  = 1000 * time.Microsecond
	// FloodWindow is the longest during a flood.
	FloodWindow = 500 * time.Microsecond
)

// MaxServices is how many services of small packets a VM may have.
const MaxServices = 8

// WindowOf is the longest window that is no longer than a time; 0 when even the
// shortest one is.
func WindowOf(longest time.Duration) time.Duration {
	for w := LongestWindow; w >= ShortestWindow; w /= 2 {
		if w <= longest {
			return w
		}
	}
	return 0
}

// IsWindow reports whether a time is one of the windows.
func IsWindow(w time.Duration) bool { return w > 0 && WindowOf(w) == w }

// Service is a port that a VM serves, by UDP or else TCP.
type Service struct {
	UDP  bool
	Port uint16
}

// Compare orders services by port, that of TCP first.
func (s Service) Compare(o Service) int {
	number := func(s Service) int {
		if s.UDP {
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(s.Port, o.Port), cmp.Compare(number(s), number(o)))
}

// Buffering says how the packets of a VM's taps are held. The zero value holds none.
type Buffering struct {
	// Window between two bunches. 0: packets are held only during floods.
	Window time.Duration
	// FloodWindow is the window during a flood. 0: floods change nothing.
	FloodWindow time.Duration
	// OnPackets is the rate of each tap and direction from which packets are held.
	OnPackets units.PacketsPerSecond
	// Services do not count as a flood, up to three times their usual rate: at most
	// MaxServices, in their order.
	Services []Service
}

// IsZero reports whether no packet is ever held.
func (b Buffering) IsZero() bool { return b.Window == 0 && b.FloodWindow == 0 }

// Equal reports whether both hold the same packets for as long.
func (b Buffering) Equal(o Buffering) bool {
	return b.Window == o.Window && b.FloodWindow == o.FloodWindow && b.OnPackets == o.OnPackets && slices.Equal(b.Services, o.Services)
}

// IsValid reports whether an agent can do it: windows that there are, a rate, and no more
// services than fit.
func (b Buffering) IsValid() bool {
	return (b.Window == 0 || IsWindow(b.Window)) &&
		(b.FloodWindow == 0 || IsWindow(b.FloodWindow) && b.FloodWindow <= FloodWindow) &&
		b.OnPackets >= 1 && b.OnPackets <= 1e9 && len(b.Services) <= MaxServices
}

// BufferingRates are what became of the packets of a VM's taps towards it, all taps
// together, in one round.
type BufferingRates struct {
	// WindowMicroseconds that is in force: the plan's, or what the guest tolerates when
	// that is less. 0: packets are held only during floods.
	WindowMicroseconds int `json:"windowMicroseconds"`
	// ActiveShare is the share of the round in which packets were held, on the tap that
	// held most: from 0 to 1.
	ActiveShare float64 `json:"activeShare"`
	// PassedPerSecond and HeldPerSecond count packets as the VM is notified of them: a
	// packet of many segments is one.
	PassedPerSecond units.PacketsPerSecond `json:"passedPerSecond"`
	HeldPerSecond   units.PacketsPerSecond `json:"heldPerSecond"`
	// DropsPerSecond in the queue in front of the tap. Nil: not looked at.
	DropsPerSecond *units.PacketsPerSecond `json:"dropsPerSecond,omitempty"`
	// GuestTools is what the guest declared. Nil: nothing, or too long ago.
	GuestTools *GuestTools `json:"guestTools,omitempty"`
	// Flood that the VM is under. Nil: none.
	Flood *Flood `json:"flood,omitempty"`
}

// HeldFor is the window by which the VM's packets were held for most of the round; 0
// when they were not.
func (v *VMRates) HeldFor() time.Duration {
	if v.Buffering == nil || v.Buffering.ActiveShare <= 0.5 {
		return 0
	}
	return time.Duration(v.Buffering.WindowMicroseconds) * time.Microsecond
}

// Flooded reports whether the VM is flooded with small packets.
func (v *VMRates) Flooded() bool { return v.Buffering != nil && v.Buffering.Flood != nil }

// GuestTools is what a guest declares of itself.
type GuestTools struct {
	// ToleratedMicroseconds is the longest window that it tolerates.
	ToleratedMicroseconds int `json:"toleratedMicroseconds"`
	// TransmitMicroseconds is the window of what it sends. 0: it holds nothing.
	TransmitMicroseconds int `json:"transmitMicroseconds"`
}

// Flood is the evidence of a flood of small packets towards a VM, of its last second.
type Flood struct {
	// SegmentsPerSecond as they were on the wire, and their mean size with headers.
	SegmentsPerSecond units.PacketsPerSecond `json:"segmentsPerSecond"`
	MeanBytes         float64                `json:"meanBytes"`
	// UsualPerSecond is the mean rate before the flood, in which a minute counts most.
	UsualPerSecond units.PacketsPerSecond `json:"usualPerSecond"`
	// SYNShare of the segments, from 0 to 1.
	SYNShare float64 `json:"synShare"`
	// Sources is how many addresses they came from, about.
	Sources int `json:"sources"`
	// TalkShare is segments from the VM for each segment towards it, without the answers that
	// strangers get: SYN-ACK, RST and ICMP.
	TalkShare float64 `json:"talkShare"`
}

// Tuning is what was seen of one VM's packets with each window of buffering, and of
// VMs like it. The zero value: nothing yet.
type Tuning struct {
	// Trials in the order of their windows, 0 first; none twice.
	Trials []Trial
	// Hurts are the windows that cost VMs of the same profile their service, in the
	// order of the windows, until when that is remembered.
	Hurts []Hurt
	// Since is when the window in force was set, by the manager's clock. Zero: not known.
	Since time.Time
}

// Trial is what was seen of a VM while one window was in force and packets came fast
// enough to be held: means over Seconds.
type Trial struct {
	Window  time.Duration
	Seconds float64
	// Packets of both directions, and the share of those towards the VM that were lost on
	// the node.
	PacketsPerSecond units.PacketsPerSecond
	BitsPerSecond    units.BitsPerSecond
	DropShare        float64
	// FastestPerSecond are the packets towards the VM on the tap that has most.
	FastestPerSecond units.PacketsPerSecond
	// WakeUpsPerPacket of the VM's threads, and CoresPerPacket that they used.
	WakeUpsPerPacket float64
	CoresPerPacket   float64
}

// Hurt is a window that was seen to cost service.
type Hurt struct {
	Window time.Duration
	Until  time.Time
	// Why names the sign, in words.
	Why string
}
