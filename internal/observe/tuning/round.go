package tuning

import (
	"math"
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
)

const (
	// activeShare of a round in which packets were held makes it one of the window's: a
	// mixed one says nothing of either.
	activeShare = 0.9
	// mostSeconds is the longest round that counts.
	mostSeconds = 600
)

// round is what is read of a VM's rates, as sums over the round.
type round struct {
	// told is true when the agent told of the lever, and of window.
	told   bool
	window time.Duration
	// held is true when packets were held at all, and active when they were all the time.
	held, active, flooded bool
	// fastest are the packets per second towards the VM on the tap that has most.
	fastest float64
	sums
}

// sums over some time.
type sums struct {
	seconds, packets, bits, received, lost, wakeUps, coreSeconds float64
}

func (s *sums) add(o sums) {
	s.seconds += o.seconds
	s.packets += o.packets
	s.bits += o.bits
	s.received += o.received
	s.lost += o.lost
	s.wakeUps += o.wakeUps
	s.coreSeconds += o.coreSeconds
}

func (s *sums) scale(by float64) {
	for _, x := range []*float64{&s.seconds, &s.packets, &s.bits, &s.received, &s.lost, &s.wakeUps, &s.coreSeconds} {
		*x *= by
	}
}

// lostShare of the packets towards the VM.
func (s *sums) lostShare() float64 {
	if s.lost == 0 {
		return 0
	}
	return s.lost / (s.received + s.lost)
}

// read returns a VM's round. One with figures that cannot be is left out whole.
func read(rates *model.VMRates, seconds float64) (round, bool) {
	if !plausible(seconds, mostSeconds) || seconds == 0 {
		return round{}, false
	}
	r := round{sums: sums{seconds: seconds}}
	possible := true
	sum := func(into *float64, perSecond, most float64) {
		possible = possible && plausible(perSecond, most)
		*into += perSecond * seconds
	}
	const mostPackets, mostBits, mostCores, mostSwitches = 1e10, 1e14, 1e5, 1e10
	for _, tap := range rates.Taps {
		for _, way := range []model.TrafficRates{tap.ToVM, tap.FromVM} {
			sum(&r.packets, float64(way.PacketsPerSecond), mostPackets)
			sum(&r.bits, float64(way.BitsPerSecond), mostBits)
		}
		sum(&r.received, float64(tap.ToVM.PacketsPerSecond), mostPackets)
		sum(&r.lost, float64(tap.ToVM.DropsPerSecond), mostPackets)
		r.fastest = max(r.fastest, float64(tap.ToVM.PacketsPerSecond))
	}
	sum(&r.wakeUps, float64(rates.WakeUps()), mostSwitches)
	sum(&r.coreSeconds, float64(rates.Busy()), mostCores)
	if b := rates.Buffering; b != nil {
		r.told = true
		r.window = time.Duration(b.WindowMicroseconds) * time.Microsecond
		r.held, r.active, r.flooded = b.ActiveShare > 0, b.ActiveShare >= activeShare, b.Flood != nil
		possible = possible && plausible(b.ActiveShare, 2) && (b.WindowMicroseconds == 0 || model.IsWindow(r.window))
		if b.DropsPerSecond != nil {
			sum(&r.lost, float64(*b.DropsPerSecond), mostPackets)
		}
	}
	return r, possible
}

// plausible tells whether a figure can have been measured.
func plausible(x, most float64) bool { return !math.IsNaN(x) && x >= 0 && x <= most }
