package curve

import (
	"math"

	"github.com/joulevirt/joulevirt/internal/units"
)

// Whether traffic is what makes a VM busy shows in whether the VM gets busier
// when its traffic grows. A guest that computes is busy at any rate, a neighbour
// makes others wait at any rate. So a knee is found from the same deviations as a
// curve is: from how far each VM is from its own mean.

// The signs that a VM carries its traffic with difficulty.
const (
	// signVCPU is the use of the busiest vCPU, signVhost that of the vhost workers.
	signVCPU = iota
	signVhost
	// signWait is the share of the time that threads wanted to run and had to wait.
	signWait
	numSigns
)

// signs are a VM's traffic with its signs, or deviations of them.
type signs struct {
	packets float64
	of      [numSigns]float64
}

func signsOf(o *Observation) signs {
	return signs{float64(o.Rate.Packets), [numSigns]float64{float64(o.VCPUUse), float64(o.VhostUse), o.WaitShare}}
}

// add adds w times others.
func (s *signs) add(other *signs, w float64) {
	s.packets += w * other.packets
	for i := range s.of {
		s.of[i] += w * other.of[i]
	}
}

// block is sums of one VM's deviations over blockSeconds: of squares of the
// traffic, and of products of traffic and signs.
type block struct {
	seconds, xx float64
	xy          [numSigns]float64
}

func (b *block) add(from *signs, seconds float64) {
	b.seconds += seconds
	b.xx += seconds * square(from.packets)
	for i := range b.xy {
		b.xy[i] += seconds * from.packets * from.of[i]
	}
}

const (
	// blockSeconds is an hour: where work and traffic of a guest both go up and down
	// slowly, they go together by accident for about as long, and readings within
	// that say little of each other. With blocks of a quarter of it, two of 72
	// classes of simulated nodes showed a knee that is none.
	blockSeconds = 3600
	// followMemory is how many blocks are remembered: those of a week of a lone VM,
	// of four hours of 40.
	followMemory = 170
	// enoughBlocks must agree before anything is said, as if all had equal changes
	// of traffic.
	enoughBlocks = 6
	// surely is how many standard errors of a slope are no accident, also of few
	// blocks: one in two hundred of six.
	surely = 4
)

// slopes are by how much each sign changes per packet/s: regressions through the
// origin of deviations, whose standard errors are of sums over whole blocks
// (cluster-robust: Wooldridge, Econometric Analysis of Cross Section and Panel
// Data, 10.5.4).
type slopes struct {
	// xx, and xy of each sign, are sums over blocks; squares and products of those
	// of each block follow.
	xx, xx2     float64
	xy, xy2, xz [numSigns]float64
}

func (s *slopes) add(b *block) {
	const keep = 1 - 1.0/followMemory
	s.xx = keep*s.xx + b.xx
	s.xx2 = keep*keep*s.xx2 + square(b.xx)
	for i, xy := range b.xy {
		s.xy[i] = keep*s.xy[i] + xy
		s.xy2[i] = keep*keep*s.xy2[i] + square(xy)
		s.xz[i] = keep*keep*s.xz[i] + xy*b.xx
	}
}

// trend is by how much a sign changes per packet/s. Without enough evidence it is
// nothing with an infinite standard error.
type trend struct{ perPacket, stdErr float64 }

func (s *slopes) of(sign int) trend {
	blocks := square(s.xx) / s.xx2
	if !(blocks >= enoughBlocks) || math.IsInf(blocks, 1) {
		return trend{stdErr: math.Inf(1)}
	}
	b := s.xy[sign] / s.xx
	squares := s.xy2[sign] - 2*b*s.xz[sign] + square(b)*s.xx2
	stdErr := math.Sqrt(max(0, squares)*blocks/(blocks-1)) / s.xx
	if math.IsNaN(b) || math.IsInf(b, 0) || math.IsNaN(stdErr) {
		return trend{stdErr: math.Inf(1)}
	}
	return trend{b, stdErr}
}

// rises tells whether the sign surely grows with the traffic.
func (s trend) rises() bool { return s.perPacket > 0 && s.perPacket > surely*s.stdErr }

// most is what traffic may cause at most.
func (s trend) most(packets float64) float64 {
	return max(0, s.perPacket+2*s.stdErr) * packets
}

// sighting is the signs of one VM in a round.
type sighting struct {
	curve     *learned
	habit     *habit
	now, from signs
	seconds   float64
}

// settle takes what was seen in a round. By as much as the others wait longer
// than they usually do, the host is busier: that is no VM's own traffic.
func settle(seen []sighting) {
	sum := 0.0
	for i := range seen {
		sum += seen[i].from.of[signWait]
	}
	others := max(1, float64(len(seen)-1))
	for i := range seen {
		wait := &seen[i].from.of[signWait]
		*wait -= (sum - *wait) / others
		seen[i].curve.watch(&seen[i])
	}
}

// watch takes the signs of one VM.
func (c *learned) watch(s *sighting) {
	c.bands[bandOf(units.PacketsPerSecond(s.now.packets))].add(&s.now, &s.from, c.healthy(s), s.seconds)
	b := &s.habit.block
	b.add(&s.from, s.seconds)
	if b.seconds >= blockSeconds {
		c.follows.add(b)
		*b = block{}
	}
}

// healthy tells whether a VM carries its traffic well, as far as is known: its
// busiest thread is busy up to 60 %, or as much of it as traffic may cause is,
// and it does not wait longer with more traffic.
func (c *learned) healthy(s *sighting) bool {
	for i, use := range c.use {
		if !(s.now.of[i] < kneeUse || use.most(s.now.packets) < kneeUse) {
			return false
		}
	}
	return s.from.packets <= clearlyMore*s.now.packets || s.from.of[signWait] < waitRise
}

// judge takes what follows says now.
func (c *learned) judge() {
	for i := range c.use {
		c.use[i] = c.follows.of(i)
	}
}
