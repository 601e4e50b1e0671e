package datapath

import (
	"fmt"
	"time"

	"github.com/joulevirt/joulevirt/internal/datapath/bpf"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

const (
	slot = time.Second / 8
	// slots of a second, about which the program decides.
	slots = uint64(time.Second / slot)
	// kept is for how many slots the program keeps sums.
	kept = 16
	// declaredFor is for how long a declaration stands.
	declaredFor = 30 * time.Second
	// reads of the state until one falls between two decisions.
	reads = 4
	// maxSegment is the largest packet: sums that were not read at one time may tell more.
	maxSegment = 1 << 16
	// flagDefers is that of package inband.
	flagDefers = 1
)

// Stats reads the counters. now is the time of CLOCK_MONOTONIC.
func (p *Program) Stats(now time.Duration) (Stats, error) {
	var config bpf.JvConfig
	var guest bpf.JvGuest
	if err := p.config.Lookup(uint32(0), &config); err != nil {
		return Stats{}, fmt.Errorf("read the configuration of the programs that hold packets: %w", err)
	}
	if err := p.guest.Lookup(uint32(0), &guest); err != nil {
		return Stats{}, fmt.Errorf("read what the guest declared: %w", err)
	}
	state, err := p.readState()
	if err != nil {
		return Stats{}, err
	}
	until, err := p.lease.read()
	if err != nil {
		return Stats{}, err
	}
	return statsOf(config, state, guest, now < until, now), nil
}

// readState reads the state between two decisions when it can: they take less than a
// microsecond, eight times a second.
func (p *Program) readState() (s bpf.JvState, err error) {
	for range reads {
		if err := p.state.Lookup(uint32(0), &s); err != nil {
			return s, fmt.Errorf("read the counters of the programs that hold packets: %w", err)
		}
		if s.Begun == s.Ended {
			break
		}
	}
	return s, nil
}

// statsOf tells what the maps say at a time.
func statsOf(c bpf.JvConfig, s bpf.JvState, g bpf.JvGuest, leased bool, now time.Duration) Stats {
	last := lastSecond(s, now)
	stats := Stats{
		// An earlier agent may have known other windows.
		Window: model.WindowOf(time.Duration(c.Window)), Guest: guestOf(g, now),
		Passed: s.Passed, Exempt: s.Exempt, Held: s.Held, Bunches: s.Bunches,
		PacketsPerSecond: last.Packets, BytesPerSecond: last.Bytes,
		SegmentsPerSecond: last.Segments, RepliesPerSecond: last.Replies,
		Flood: floodOf(c, s, now), Floods: s.Floods, Declarations: s.Taken, Refused: s.Refused,
	}
	if stats.Guest != nil {
		stats.Window = min(stats.Window, model.WindowOf(time.Duration(g.Tolerated)))
	}
	if last.Arrivals > 0 {
		stats.PacketsPerArrival = float64(last.Packets) / float64(last.Arrivals)
	}
	configured := c.Window != 0 || c.FloodWindow != 0
	stats.Holding = configured && leased && s.Window != 0 && last.Packets > 0
	stats.Active = time.Duration(s.Active)
	if s.Window != 0 && configured {
		// The program counts a slot once the next one begins; without packets it holds
		// none after a second.
		stats.Active += min(max(now-time.Duration(s.SlotEnd)+slot, 0), time.Second)
	}
	return stats
}

// lastSecond sums up the last eight whole slots. Where no packet has begun a slot, all
// came before it.
func lastSecond(s bpf.JvState, now time.Duration) bpf.JvSums {
	current := uint64(now / slot)
	end := s.SlotEnd / uint64(slot) // the first slot that has not begun
	if s.SlotEnd == 0 || current < slots || current-slots >= end {
		return bpf.JvSums{}
	}
	total := sumsOf(s)
	till := total
	if current < end {
		till = s.Starts[current%kept]
	}
	from := s.Starts[(current-slots)%kept]
	return bpf.JvSums{
		Packets: less(till.Packets, from.Packets), Bytes: less(till.Bytes, from.Bytes),
		Segments: less(till.Segments, from.Segments), Arrivals: less(till.Arrivals, from.Arrivals),
		Replies: less(till.Replies, from.Replies),
	}
}

func sumsOf(s bpf.JvState) bpf.JvSums {
	packets := s.Passed + s.Held
	return bpf.JvSums{
		Packets: packets, Bytes: s.Bytes, Segments: packets + s.MoreSegments, Arrivals: s.Arrivals, Replies: s.Replies,
	}
}

// less is a difference of counters that were not read at one time.
func less(a, b uint64) uint64 { return a - min(a, b) }

// guestOf is what the guest declared, unless it was too long ago.
func guestOf(g bpf.JvGuest, now time.Duration) *model.GuestTools {
	if g.At == 0 || now-time.Duration(g.At) > declaredFor {
		return nil
	}
	// A guest may declare any number.
	tolerated := time.Duration(min(g.Tolerated, uint64(time.Second)))
	return &model.GuestTools{
		ToleratedMicroseconds: int(tolerated / time.Microsecond),
		TransmitMicroseconds:  int(min(g.TransmitUs, uint32(time.Second/time.Microsecond))),
		DefersInterrupts:      g.Flags&flagDefers != 0,
	}
}

// floodOf is the evidence of the flood that lasts. One ends in the program when a packet
// comes: here also when none does.
func floodOf(c bpf.JvConfig, s bpf.JvState, now time.Duration) *model.Flood {
	if s.Flooded == 0 || now-time.Duration(s.SlotEnd) > time.Second+time.Duration(c.Hold) {
		return nil
	}
	e := s.Evidence
	segments, bytes := less(e.Segments, e.ServiceSegments), less(e.Bytes, e.ServiceBytes)
	if segments == 0 {
		return nil
	}
	return &model.Flood{
		SegmentsPerSecond: units.PacketsPerSecond(segments), MeanBytes: min(float64(bytes)/float64(segments), maxSegment),
		SYNShare: min(float64(e.Syn)/float64(segments), 1), Sources: sourcesOf(s.EvidenceBits),
		ReplyShare: float64(e.Replies) / float64(e.Segments),
	}
}
