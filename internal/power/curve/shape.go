package curve

import (
	"math"

	"github.com/joulevirt/joulevirt/internal/units"
)

// NumTerms is the number of terms of a curve below its knee.
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

	// The half-saturation rates of the saturating terms, in packets/s. They are
	// fixed because a curve is then linear in what is learned; a decade apart,
	// they bend anywhere between 300 and 300,000 packets/s.
	fewPackets  = 1e3
	somePackets = 1e4
	manyPackets = 1e5
)

// Rate is a VM's traffic: the sum over its network devices and both directions.
type Rate struct {
	Packets units.PacketsPerSecond
	Bits    units.BitsPerSecond
}

// valid tells whether both rates are finite and not negative.
func (r Rate) valid() bool {
	return finite(float64(r.Packets)) && finite(float64(r.Bits))
}

// finite tells whether a value is a number from 0 to a bound that no host
// reaches: beyond it squares could overflow.
func finite(v float64) bool { return v >= 0 && v <= 1e15 }

// At returns the terms of a rate below the knee.
func At(rate Rate) Terms {
	p := float64(rate.Packets)
	return Terms{1, p / packetScale, p / (p + fewPackets), p / (p + somePackets), p / (p + manyPackets), float64(rate.Bits) / bitScale}
}

// slope returns how much the terms of a rate change per packet/s when its bits
// grow in proportion.
func slope(rate Rate) Terms {
	p := float64(rate.Packets)
	saturating := func(half float64) float64 { return half / ((p + half) * (p + half)) }
	bits := 0.0
	if p > 0 {
		bits = float64(rate.Bits) / p / bitScale
	}
	return Terms{0, 1 / packetScale, saturating(fewPackets), saturating(somePackets), saturating(manyPackets), bits}
}

// position is where a rate lies on a curve with a knee. What it holds is linear
// in the coefficients, so that sums and differences of positions are as good as
// positions.
type position struct {
	// terms at the rate, or beyond the knee the tangent's.
	terms Terms
	// over is convex((p-K)/K) beyond the knee, times the terms at the knee without
	// the idle one: what the excess is proportional to. Zero below.
	over Terms
}

// locate returns where a rate lies. A knee of +Inf or 0 is none.
func locate(rate Rate, knee units.PacketsPerSecond) position {
	if !(knee > 0) || rate.Packets <= knee {
		return position{terms: At(rate)}
	}
	p, k := float64(rate.Packets), float64(knee)
	at := Rate{Packets: knee, Bits: units.BitsPerSecond(float64(rate.Bits) * (k / p))}
	there, change := At(at), slope(at)
	excess := convex((p - k) / k)
	var pos position
	for i := range pos.terms {
		pos.terms[i] = there[i] + change[i]*(p-k)
		if i != TermIdle {
			pos.over[i] = there[i] * excess
		}
	}
	return pos
}

// fullCPU is how far beyond its knee a VM is whose CPU is full, relative to the
// knee.
const fullCPU = 1/kneeUse - 1

// convex is how the excess grows with the distance from the knee: with its square,
// and straight on from where a CPU is full. No VM gets there if the knee is right.
// One that does, because its class looked closer to the knee than it is, must not
// be expected to use many times of what it has.
func convex(x float64) float64 {
	if x <= fullCPU {
		return square(x)
	}
	return fullCPU * (2*x - fullCPU)
}

// traffic returns the terms without the idle one.
func (p *position) traffic() []float64 { return p.terms[TermIdle+1:] }

// add adds w times another position.
func (p *position) add(other *position, w float64) {
	for i := range p.terms {
		p.terms[i] += w * other.terms[i]
		p.over[i] += w * other.over[i]
	}
}

// dot returns the sum of the products of two terms.
func dot(a, b *Terms) float64 {
	sum := 0.0
	for i := range a {
		sum += a[i] * b[i]
	}
	return sum
}

// square is x*x, and readable in formulas of variances.
func square(x float64) float64 { return x * x }

// hypotenuse adds standard errors that are independent.
func hypotenuse(a, b float64) float64 { return math.Hypot(a, b) }
