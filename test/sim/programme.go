package sim

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/joulevirt/joulevirt/internal/units"
)

// Pattern is how a programme goes on over time.
type Pattern int

const (
	// Constant stays as it is.
	Constant Pattern = iota
	// Diurnal follows a sine around the mean, by Swing.
	Diurnal
	// Bursty is on and off at random. Times on are heavy-tailed (Pareto, with
	// exponent 1.5, cut at a hundred times their mean), times off exponential.
	Bursty
)

// Programme is how much of something there is over time, relative to its rate.
type Programme struct {
	Pattern Pattern
	// Period of a Diurnal programme, and mean time from burst to burst of a
	// Bursty one. 0: a day, and 10 s.
	Period time.Duration
	// Swing of a Diurnal programme, from 0 to 1, and share of time that a Bursty
	// one is on. 0: 0.5.
	Swing float64
}

// Traffic is what a VM's peers and its software want to send. When the VM
// cannot keep up, what it was to receive is dropped, and what it was to send is
// not sent.
type Traffic struct {
	Programme
	// ToVM and FromVM are wanted rates: the mean, for a Bursty programme while
	// it is on.
	ToVM, FromVM units.BitsPerSecond
	// PacketBytes is the size of packets. 0: 1500.
	PacketBytes int
	// SYN is the part of packets to the VM that open connections, and Sources how many
	// addresses they come from.
	SYN     float64
	Sources int
	// RoundTrip of a request whose sender waits for the reply before the next: there are
	// the fewer of them the longer packets are held. 0: nobody waits.
	RoundTrip time.Duration
}

// Flood returns small packets to a VM, each of which it answers.
func Flood(rate units.BitsPerSecond) Traffic {
	const syn, sources = 64, 5000
	return Traffic{ToVM: rate, FromVM: rate, PacketBytes: syn, SYN: 1, Sources: sources}
}

// Compute is work that has nothing to do with the network.
type Compute struct {
	Programme
	// Cores that the work keeps busy, if it gets them: in a VM at most as many
	// as it has vCPUs, evenly.
	Cores units.Cores
	// Heat is the energy per core-second relative to that of network work. 0: 1.
	Heat float64
}

// Unmanaged is work outside of VMs.
type Unmanaged struct {
	Compute
	// CPUs that it may run on. Empty: all.
	CPUs units.CPUSet
}

// player is the state of one programme.
type player struct {
	on    bool
	until float64 // seconds of the host's clock; when the state ends
	phase float64
}

const (
	paretoExponent = 1.5
	paretoCut      = 100
)

// level is the mean of a programme over the dt seconds from t.
func (p *player) level(prog *Programme, t, dt float64, rng *rand.PCG) float64 {
	swing := prog.Swing
	if swing == 0 {
		swing = 0.5
	}
	switch prog.Pattern {
	case Diurnal:
		period := orElse(prog.Period, 24*time.Hour)
		return 1 + swing*math.Sin(2*math.Pi*((t+dt/2)/period+p.phase))
	case Bursty:
		return p.bursts(swing, orElse(prog.Period, 10*time.Second), t, dt, rng)
	default:
		return 1
	}
}

func (p *player) bursts(share, period, t, dt float64, rng *rand.PCG) float64 {
	on, now, end := 0.0, t, t+dt
	for now < end {
		if p.until <= now {
			p.on = !p.on
			mean := period * (1 - share)
			length := -mean * math.Log(1-uniform(rng))
			if p.on {
				mean = period * share
				least := mean * (paretoExponent - 1) / paretoExponent
				length = min(least*math.Pow(1-uniform(rng), -1/paretoExponent), paretoCut*mean)
			}
			p.until = now + max(length, 1e-3) // no more than a thousand changes a second
		}
		next := min(end, p.until)
		if p.on {
			on += next - now
		}
		now = next
	}
	return on / dt
}

func orElse(d, otherwise time.Duration) float64 {
	if d <= 0 {
		d = otherwise
	}
	return d.Seconds()
}

// uniform is from 0 to below 1.
func uniform(rng *rand.PCG) float64 { return float64(rng.Uint64()>>11) / (1 << 53) }

// normal has mean 0 and deviation 1, to what a sum of 4 uniforms gives: at most
// 3.5, which no meter exceeds.
func normal(rng *rand.PCG) float64 {
	sum := 0.0
	for range 4 {
		sum += uniform(rng)
	}
	const mean, deviation = 2, 0.5773502691896258 // of the sum: sqrt(4/12)
	return (sum - mean) / deviation
}
