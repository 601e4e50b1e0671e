package sim

import (
	"math"
	"time"

	"github.com/joulevirt/joulevirt/internal/datapath"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// buffering is the program of a VM's tap: the rules of the kernel's, in terms of rates.
type buffering struct {
	// ours is true when the tap has the program, which does as config says.
	ours   bool
	config datapath.Config
	// Of the second that is counted: seconds of it, and packets.
	seconds  float64
	to, from direction
	// watched is true when the second before had nearly enough packets for a flood, and
	// calm for how long the flood's signs were too weak.
	watched bool
	flood   *model.Flood
	calm    float64
	// usual is the second that there is as a rule, without a flood.
	usual usualSecond
	// Totals since the program was made.
	passed, held, bunches, active float64
}

// usualSecond has means that forget in a minute: packets and bytes to the VM, and packets from it.
type usualSecond struct{ to, bytes, from float64 }

// direction is one direction of a VM's packets, as its program sees it.
type direction struct {
	// packets that were counted, and their rate in the last full second.
	packets, rate float64
	// holding is on, and slow is for how long packets came too slowly for it.
	holding bool
	slow    float64
}

const (
	// fewest packets a window are worth to be held, in a window of briefest at least.
	fewest   = 2
	briefest = 15 * time.Microsecond
	// nearly is the part of a flood's packets from which one is looked for, and of its
	// signs that are enough for it to last, and hardly that down to which it is looked for.
	nearly, hardly = 0.7, 0.5
	// sudden, talk and memory are JV_SUDDEN, JV_TALK and JV_USUAL of the kernel's program.
	sudden, talk, memory = 3, 0.25, 64
	// ringOf a guest that nobody sets: any bunch fits.
	ringOf = 256
)

// receive is the window that packets towards the VM are really held for, at the rate
// that was seen last.
func (b *buffering) receive(valid bool) time.Duration {
	w, on := b.config.Window, b.to.holding
	if b.defends() {
		w, on = b.config.FloodWindow, true
	}
	if !b.ours || !valid || !on {
		return 0
	}
	return fit(w, b.to.rate)
}

// defends reports whether packets are held because of a flood.
func (b *buffering) defends() bool { return b.flood != nil && b.config.FloodWindow > 0 }

// exempt is the part of a VM's packets that is never held: those that open connections,
// but in a flood.
func (b *buffering) exempt(t *Traffic) float64 {
	if b.defends() {
		return 0
	}
	return t.SYN
}

// fit halves a window until a bunch fits the guest's ring; 0 when it would hold too few
// packets to be worth it, or they come so fast that the ring bunches by itself.
func fit(w time.Duration, rate float64) time.Duration {
	for rate*w.Seconds() > bunch {
		w /= 2
	}
	if w < briefest || rate*w.Seconds() < fewest {
		return 0
	}
	return w
}

// hold books what became of a step's packets, and decides once a second anew. valid says
// whether the lease covers the step.
func (v *vm) hold(valid bool, dt float64) {
	b, w := &v.buffering, &v.work
	if !b.ours || b.config.IsZero() {
		return
	}
	held := 0.0
	if window := b.receive(valid).Seconds(); window > 0 {
		held = w.rx * (1 - b.exempt(&v.Traffic))
		b.bunches += -math.Expm1(-held*window) / window * dt
		b.active += dt
	}
	b.held += held * dt
	b.passed += (w.rx - held) * dt
	b.to.packets += w.rx * dt
	b.from.packets += w.tx * w.served * dt
	b.seconds += dt
	const second = 1 - 1e-9
	if b.seconds < second {
		return
	}
	b.to.decide(b.seconds, &b.config)
	b.from.decide(b.seconds, &b.config)
	b.watch(&v.Traffic, w.size, b.seconds)
	b.seconds = 0
}

// decide ends the second that was counted.
func (d *direction) decide(seconds float64, c *datapath.Config) {
	d.rate, d.packets = d.packets/seconds, 0
	switch {
	case d.rate >= float64(c.OnPackets):
		d.holding, d.slow = true, 0
	case d.rate >= float64(c.OffPackets):
		d.slow = 0
	default:
		if d.slow += seconds; d.slow >= c.Hold.Seconds() {
			d.holding = false
		}
	}
}

// watch tells floods of small packets from traffic: by a full second that follows on one
// with nearly as many packets. One ends when its signs are weak for as long as a rate must
// be low.
func (b *buffering) watch(t *Traffic, size, seconds float64) {
	c := &b.config
	was := b.watched
	b.watched = b.to.rate >= nearly*float64(c.FloodPackets) || was && b.to.rate >= hardly*float64(c.FloodPackets)
	share := 1.0
	if b.flood != nil {
		share = nearly
	}
	// A VM's answers to SYN are no talk.
	talks, bytes := max(0, b.from.rate-t.SYN*b.to.rate), b.to.rate*size
	more := b.to.rate - b.usual.to
	flooded := more >= share*float64(c.FloodPackets) && b.to.rate >= share*sudden*b.usual.to &&
		share*(bytes-b.usual.bytes) <= more*float64(c.FloodBytes) && share*(talks-b.usual.from) <= talk*more
	if flooded && (was || b.flood != nil) {
		b.calm = 0
		b.flood = &model.Flood{
			SegmentsPerSecond: units.PacketsPerSecond(b.to.rate), MeanBytes: size, UsualPerSecond: units.PacketsPerSecond(b.usual.to),
			SYNShare: t.SYN, Sources: t.Sources, TalkShare: talks / b.to.rate,
		}
		return
	}
	if b.flood == nil {
		learn := min(1, seconds/memory)
		b.usual.to += learn * more
		b.usual.bytes += learn * (bytes - b.usual.bytes)
		b.usual.from += learn * (b.from.rate - b.usual.from)
	}
	if b.calm += seconds; b.calm >= c.Hold.Seconds() {
		b.flood = nil
	}
}

// overflow is the part of a bunch that a ring has no room for, on average: of bunches
// with Poisson's spread around a mean, as of a normal distribution.
func overflow(mean, ring float64) float64 {
	if mean <= 0 {
		return 0
	}
	deviation := math.Sqrt(mean)
	z := (ring - mean) / deviation
	above := math.Erfc(z/math.Sqrt2) / 2
	density := math.Exp(-z*z/2) / math.Sqrt(2*math.Pi)
	return min(1, max(0, deviation*(density-z*above)/mean))
}
