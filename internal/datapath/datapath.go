// Package datapath holds the packets of network devices and releases them in bunches: an
// eBPF program stamps each packet with the time at which it is to leave, and the queueing
// discipline fq lets it go then. Hosts use it on the taps of VMs, and the guest's tools on
// the guest's own card.
//
// It knows of devices and packets only. The caller is in the network namespace of the
// device.
package datapath

import (
	"errors"
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
)

// ErrUnsupported means that the kernel lacks what it takes; the error around it says what.
var ErrUnsupported = errors.New("the kernel cannot hold packets")

// Config says how the packets that leave through a device are held.
type Config struct {
	model.Buffering
	// OffPackets is the rate below which packets are no longer held, once they came slower
	// for Hold.
	OffPackets uint32
	Hold       time.Duration
	// A bunch of arrivals is packets that come within Gap of one another: who wakes for
	// the first finds the others. From MostArrivals packets a bunch on nothing is gained
	// by holding them.
	Gap          time.Duration
	MostArrivals uint32
	// A flood is FloodPackets segments per second or more, of FloodBytes or less on
	// average, FloodSYN of which or more open connections or which come from FloodSources
	// addresses or more.
	FloodPackets, FloodBytes, FloodSources uint32
	FloodSYN                               float64
}

// Defaults of what a plan does not say.
const (
	offShare            = 0.7
	defaultHold         = 2 * time.Second
	defaultGap          = 10 * time.Microsecond
	defaultMostArrivals = 32
	floodPackets        = 10_000
	floodBytes          = 128
	floodSources        = 256
	floodSYN            = 0.5
)

// ConfigOf fills in what a plan does not say.
func ConfigOf(b model.Buffering) Config {
	return Config{
		Buffering: b, OffPackets: max(1, uint32(float64(b.OnPackets)*offShare)), Hold: defaultHold,
		Gap: defaultGap, MostArrivals: defaultMostArrivals,
		FloodPackets: floodPackets, FloodBytes: floodBytes, FloodSources: floodSources, FloodSYN: floodSYN,
	}
}

// Stats are the counters and the state of one device's program.
type Stats struct {
	// Window in force, see host.BufferSample.
	Window time.Duration
	// Passed packets left at once, of them Exempt because of what they are; Held ones in
	// one of Bunches. All count as the device is handed them: many segments may be one.
	Passed, Exempt, Held, Bunches uint64
	// Holding is true while packets are held, and Active the time in which they were.
	Holding bool
	Active  time.Duration
	// Of the last second that was seen: packets, bytes, segments, and packets from the VM.
	PacketsPerSecond, BytesPerSecond, SegmentsPerSecond, RepliesPerSecond uint64
	// PacketsPerArrival of the last second, see Config.Gap.
	PacketsPerArrival float64
	// Guest is what the guest declared last, not longer ago than it stands for.
	Guest *model.GuestTools
	// Flood that the device is under, and Floods how many there were.
	Flood  *model.Flood
	Floods uint64
	// Declarations that were taken in, and those Refused: malformed ones, of another
	// version, and too many.
	Declarations, Refused uint64
}
