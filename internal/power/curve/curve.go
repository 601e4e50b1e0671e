// Package curve learns what a VM costs its host against its traffic: CPU time
// and wake-ups as functions of packets and bits per second, one curve for each
// class of VMs and buffering window. A curve is
//
//	h(p, b) = idle + f (c1 p + c2 p/(p+1k) + c3 p/(p+10k) + c4 p/(p+100k) + c5 b)
//
// The coefficients are the prior's and none is negative, so that a curve is
// increasing and concave: a busy VM amortises its wake-ups. The factor f and the
// idle term are learned.
//
// The factor is learned from how far each VM is from its own mean, in traffic and in
// cost (the within estimator of panel data: Wooldridge, Econometric Analysis of Cross
// Section and Panel Data, 10.5): guests also compute, each as much as it does, and
// between VMs that is a large difference which has nothing to do with their traffic.
//
// The package is pure, and a Set is used by one goroutine at a time.
package curve

import (
	"math"

	"github.com/joulevirt/joulevirt/internal/units"
)

// NumTerms is the number of terms of a curve.
const NumTerms = 6

// Terms holds one value for each term of a curve: coefficients, their standard
// deviations, or what they are multiplied with. The order is
//
//	0  1                     a VM without traffic
//	1  p / 100k packets/s    each packet
//	2  p / (p + 1k)          what saturates at few packets per second,
//	3  p / (p + 10k)         at some,
//	4  p / (p + 100k)        and at many
//	5  b / 1 Gbit/s          each bit
//
// so that a coefficient has the unit of the cost itself: cores, or wake-ups per
// second.
type Terms [NumTerms]float64

// The positions in Terms.
const (
	TermIdle = iota
	TermPackets
	TermFew
	TermSome
	TermMany
	TermBits
)

const (
	// packetScale and bitScale are the rates at which the linear terms are 1:
	// of the size of what a busy VM has, so that all terms are.
	packetScale = 1e5
	bitScale    = 1e9
	// The half-saturation rates of the saturating terms, in packets/s.
	fewPackets, somePackets, manyPackets = 1e3, 1e4, 1e5
)

// Rate is a VM's traffic: the sum over its network devices and both directions.
type Rate struct {
	Packets units.PacketsPerSecond
	Bits    units.BitsPerSecond
}

// At returns the terms of a rate.
func At(rate Rate) Terms {
	p := float64(rate.Packets)
	return Terms{1, p / packetScale, p / (p + fewPackets), p / (p + somePackets), p / (p + manyPackets), float64(rate.Bits) / bitScale}
}

// traffic returns the cost of terms without the idle one.
func (c *Terms) traffic(terms Terms) float64 {
	sum := 0.0
	for i := TermIdle + 1; i < NumTerms; i++ {
		sum += c[i] * terms[i]
	}
	return sum
}

// Prior is what is known of a curve before anything is measured: coefficients
// and their standard deviations, in cores and in wake-ups per second.
type Prior struct {
	Cores, CoresStdDev     Terms
	WakeUps, WakeUpsStdDev Terms
	// CoresForm and WakeUpsForm are relative errors of the form of curve: what
	// remains however much is learned, because no host is of that form.
	CoresForm, WakeUpsForm float64
}

// figure is a quantity with a prior that is learned by least squares with fading memory:
//
//	minimise ((value - mean) / stdDev)^2 + sum of fade weight ((y - value x) / noise)^2
type figure struct {
	mean, stdDev float64
	// information and sum are those of what was observed, in units of 1/noise^2.
	information, sum float64
	variance, floor  float64
}

const (
	// memory is how many full readings (fullSeconds) are remembered: those of most of
	// a day of a lone VM, of an hour of 20.
	memory = 1000
	// fullSeconds is how long a VM has to be observed to count in full. What a
	// curve misses of a VM, above all its guest's own work, changes slowly: many
	// short observations say no more than one long.
	fullSeconds = 60
	// noiseMemory is how many full readings the noise is estimated from, and clip the
	// residual, in standard deviations, from which on a reading counts for less.
	noiseMemory, clip = 32, 2
	// leastFactor keeps costs increasing with traffic.
	leastFactor = 0.05
)

func newFigure(mean, stdDev, noise float64) figure {
	return figure{mean: mean, stdDev: stdDev, variance: noise * noise, floor: noise * noise}
}

func (f *figure) value() float64 {
	if f.stdDev <= 0 {
		return f.mean
	}
	precision := 1 / (f.stdDev * f.stdDev)
	return max(leastFactor*f.mean, (precision*f.mean+f.sum)/(precision+f.information))
}

func (f *figure) stdErr() float64 {
	if f.stdDev <= 0 {
		return 0
	}
	return 1 / math.Sqrt(1/(f.stdDev*f.stdDev)+f.information)
}

// observe learns that y was seen where the figure is multiplied with x.
func (f *figure) observe(x, y, weight float64) {
	miss := y - f.value()*x
	part := min(1, clip*math.Sqrt(f.variance)/max(math.Abs(miss), 1e-12))
	f.variance = max(f.floor, f.variance+weight/noiseMemory*(part*part*miss*miss-f.variance))
	keep := 1 - weight/memory
	f.information = keep*f.information + part*weight*x*x/f.variance
	f.sum = keep*f.sum + part*weight*x*y/f.variance
}

// learned is one curve.
type learned struct {
	prior Prior
	// cores and wakeUps are factors of the prior's cost of traffic, and idleCores and
	// idleWakeUps what VMs cost apart from it.
	cores, wakeUps, idleCores, idleWakeUps figure
	headroom                               headroom
	// seconds of VMs behind the curve.
	seconds float64
	// habits of VMs, by their names, and the round of the newest observation.
	habits map[string]*habit
	seen   uint64
}

const (
	// coresNoise and wakeUpsNoise are the least standard deviations of an
	// observation: a guest's own work comes and goes in such steps.
	coresNoise, wakeUpsNoise = 0.02, 200
)

func newLearned(p Prior) *learned {
	busy := At(Rate{Packets: packetScale, Bits: bitScale})
	relative := func(cost, stdDev *Terms) float64 {
		variance := 0.0
		for i := TermIdle + 1; i < NumTerms; i++ {
			variance += stdDev[i] * stdDev[i] * busy[i] * busy[i]
		}
		return math.Sqrt(variance) / max(cost.traffic(busy), 1e-12)
	}
	return &learned{
		prior: p, habits: map[string]*habit{},
		cores: newFigure(1, relative(&p.Cores, &p.CoresStdDev), coresNoise), wakeUps: newFigure(1, relative(&p.WakeUps, &p.WakeUpsStdDev), wakeUpsNoise),
		idleCores: newFigure(p.Cores[TermIdle], p.CoresStdDev[TermIdle], coresNoise), idleWakeUps: newFigure(p.WakeUps[TermIdle], p.WakeUpsStdDev[TermIdle], wakeUpsNoise),
	}
}

const (
	// habitSeconds is how long a VM's mean looks back. A guest's own work that
	// stays for longer does no harm; traffic that changes slower is not learned
	// from.
	habitSeconds = 900
	// maxHabits is how many VMs a curve keeps the means of: more than a node has.
	maxHabits = 1024
	// maxAway is how many rounds a VM may be missed.
	maxAway = 10
)

// habit is what a VM did on average: its cost, and what the prior says of its traffic.
type habit struct {
	seconds float64
	usual   reading
	// seen is the round of the newest observation.
	seen uint64
}

type reading struct{ cores, wakeUps, priorCores, priorWakeUps float64 }

func (r *reading) add(o *reading, w float64) {
	r.cores += w * o.cores
	r.wakeUps += w * o.wakeUps
	r.priorCores += w * o.priorCores
	r.priorWakeUps += w * o.priorWakeUps
}

func (c *learned) observe(o *Observation, seconds float64, round uint64) {
	c.seconds += seconds
	c.seen = round
	c.headroom.observe(o, seconds)
	terms := At(o.Rate)
	now := reading{float64(o.HostCores), float64(o.WakeUps), c.prior.Cores.traffic(terms), c.prior.WakeUps.traffic(terms)}
	weight := min(1, seconds/fullSeconds)
	c.idleCores.observe(1, now.cores-c.cores.value()*now.priorCores, weight)
	c.idleWakeUps.observe(1, now.wakeUps-c.wakeUps.value()*now.priorWakeUps, weight)
	h := c.habits[o.VM]
	if h == nil || h.seen+maxAway < round {
		if len(c.habits) >= maxHabits {
			clear(c.habits)
		}
		h = &habit{}
		c.habits[o.VM] = h
	}
	off := now
	off.add(&h.usual, -1)
	if h.seconds > 0 {
		c.cores.observe(off.priorCores, off.cores, weight)
		c.wakeUps.observe(off.priorWakeUps, off.wakeUps, weight)
	}
	h.seen, h.seconds = round, min(h.seconds+seconds, habitSeconds)
	h.usual.add(&off, min(1, seconds/h.seconds))
}

// Stretch is how far above what was carried a VM may be brought at most.
const Stretch = 4

// headroom is how much more traffic the VMs of a class carry.
type headroom struct {
	// use of the busiest threads and packets, as sums with fading memory.
	use, packets, seconds float64
	// carried is the highest rate at which a VM's busiest thread was not busier than at the
	// knee, and hardly waited.
	carried float64
	// most is the highest rate, however it went.
	most float64
}

const (
	// kneeUse is the use of a thread beyond which queueing delays grow faster than the
	// work.
	kneeUse = 0.6
	// mostWait is the share of the time that threads that carry their traffic well wait:
	// 0.01 is normal on a host, 0.05 is felt by applications.
	mostWait = 0.05
	// tells is the part of a busy VM's rate below which a VM's use says nothing of its packets,
	// such as on standby: it is the guest's own work. After idleSeconds it may say something again.
	tells, idleSeconds = 0.25, 24 * 3600
	// enoughSeconds must be seen before anything is said, and headroomSeconds are
	// remembered.
	enoughSeconds, headroomSeconds = 30, 900
)

func (h *headroom) observe(o *Observation, seconds float64) {
	packets, use := float64(o.Rate.Packets), float64(max(o.VCPUUse, o.VhostUse))
	if packets <= 0 {
		return
	}
	keep := 1 - min(1, seconds/headroomSeconds)
	h.seconds = keep*h.seconds + seconds
	if packets < tells*h.busy() {
		keep = 1 - min(1, seconds/idleSeconds)
		h.carried, h.most = h.carried*keep, h.most*keep
		return
	}
	// Busy VMs count for more: those with little traffic wake up for each packet.
	h.use = keep*h.use + seconds*packets*use
	h.packets = keep*h.packets + seconds*packets*packets
	h.carried, h.most = h.carried*keep, max(h.most*keep, packets)
	if o.WaitShare < mostWait && use < kneeUse {
		h.carried = max(h.carried, packets)
	}
}

// busy is the rate of VMs that are not on standby: the highest that went well, or the highest until
// one did. A burst that did not go well would have what comes after it count for nothing for a day.
func (h *headroom) busy() float64 {
	if h.carried > 0 {
		return h.carried
	}
	return h.most
}

// Knee is the rate up to which a VM carries its traffic well.
type Knee struct {
	// Rate is where the busiest vCPU, or the vhost workers, would be used to 60 % by what
	// they use for each packet now, but no less than what was carried well, and no more
	// than Stretch times that: it rises step by step. Where nothing went well it is no more than
	// what was tried. 0: not known.
	Rate units.PacketsPerSecond
	// Measured is false where the use says too little, and what was carried bounds the rate.
	Measured bool
}

func (h *headroom) knee() Knee {
	if h.seconds < enoughSeconds || h.use <= 0 {
		return Knee{}
	}
	rate := kneeUse * h.packets / h.use
	bound := Stretch * h.carried
	if h.carried == 0 {
		bound = h.most
	}
	if rate > bound {
		return Knee{Rate: units.PacketsPerSecond(bound)}
	}
	return Knee{units.PacketsPerSecond(max(rate, h.carried)), true}
}
