package datapath

import (
	"fmt"
	"time"

	"github.com/joulevirt/joulevirt/internal/datapath/bpf"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// Stats are the counters and the state of one device's programs.
type Stats struct {
	// Window in force, see host.BufferSample.
	Window time.Duration
	// Passed packets left at once, Held ones in one of Bunches. All count as the device is
	// handed them: many segments may be one.
	Passed, Held, Bunches uint64
	// Active is the time in which packets were held.
	Active time.Duration
	// Guest is what the guest declared last, not longer ago than it stands for.
	Guest *model.GuestTools
	// Flood that the device is under.
	Flood *model.Flood
}

const (
	// slot is how often the program decides.
	slot = time.Second / 8
	// declaredFor is for how long a declaration stands.
	declaredFor = 30 * time.Second
	// reads of the state until one falls between two decisions.
	reads = 4
	// usualSlots is what the program multiplies means with.
	usualSlots = 512
	// maxSegment is the largest packet: sums that were not read at one time may say more.
	maxSegment = 1 << 16
)

// Stats reads the counters. now is the time of CLOCK_MONOTONIC.
func (p *program) Stats(now time.Duration) (Stats, error) {
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
	return statsOf(config, state, guest, now), nil
}

// readState reads the state between two decisions when it can: they take less than a
// microsecond, eight times a second.
func (p *program) readState() (s bpf.JvState, err error) {
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

// statsOf converts what the maps hold at a time.
func statsOf(c bpf.JvConfig, s bpf.JvState, g bpf.JvGuest, now time.Duration) Stats {
	stats := Stats{
		// An earlier agent may have known other windows.
		Window: model.WindowOf(time.Duration(c.Window)), Guest: guestOf(g, now),
		Passed: s.Passed, Held: s.Held, Bunches: s.Bunches, Active: time.Duration(s.Active),
		Flood: floodOf(c, s, now),
	}
	if stats.Guest != nil {
		stats.Window = min(stats.Window, model.WindowOf(time.Duration(g.Tolerated)))
	}
	if s.Window != 0 && c.Window|c.FloodWindow != 0 {
		// The program counts a slot once the next one begins; without packets it holds
		// none after a second.
		stats.Active += min(max(now-time.Duration(s.SlotEnd)+slot, 0), time.Second)
	}
	return stats
}

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
	}
}

// floodOf is the evidence of the flood that lasts. One ends in the program when a packet
// comes: here also when none does.
func floodOf(c bpf.JvConfig, s bpf.JvState, now time.Duration) *model.Flood {
	if s.Flooded == 0 || now-time.Duration(s.SlotEnd) > time.Second+time.Duration(c.Hold) {
		return nil
	}
	e, suspects := s.Evidence, s.EvidenceSuspects
	if suspects.Segments == 0 || e.Segments == 0 {
		return nil
	}
	segments := float64(suspects.Segments)
	return &model.Flood{
		SegmentsPerSecond: units.PacketsPerSecond(segments), MeanBytes: min(float64(suspects.Bytes)/segments, maxSegment),
		UsualPerSecond: units.PacketsPerSecond(s.Usual.Suspects.Segments / usualSlots),
		SYNShare:       min(float64(e.Syn)/segments, 1), Sources: sourcesOf(s.EvidenceBits),
		TalkShare: float64(e.Talk) / float64(e.Segments),
	}
}
