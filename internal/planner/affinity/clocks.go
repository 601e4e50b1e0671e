package affinity

import (
	"math"

	"github.com/joulevirt/joulevirt/internal/model"
)

const (
	// rampEnds is the use of a core from which on it runs at its highest clock: the
	// kernel's governors leave a quarter of room above what is used (schedutil's 1.25) or
	// go to the highest clock from 80 % on (ondemand).
	rampEnds = 0.8
	// leastClock is the clock of a core that is hardly used, of the base clock, unless
	// the lowest is above it: no core is seen at its lowest while it works, for governors
	// look at the time in which it does. It is what calibrating the simulator to the
	// studies' tables came to.
	leastClock = 0.85
	// assumedBase is the base clock, of the highest, where it is not known.
	assumedBase = 0.8
	// voltage is the power of the clock with which the energy of given work rises: that
	// of the voltage's square.
	voltage = 1.2
	// mostRise keeps odd clocks from deciding about everything.
	mostRise = 1
)

// clocks are by how much the same work costs more on a core that is used more, whose clock
// and voltage are higher.
type clocks struct {
	// rise of the energy of work, from a core that is hardly used to one at its highest
	// clock. 0: it costs the same everywhere.
	rise float64
	// mean of the node's work, at which the cost of a busy core was learned.
	mean float64
}

// newClocks returns the clocks of a node of which such a part of the CPUs is in use: the
// more cores work, the lower is the highest clock, down to the base clock.
func newClocks(c model.Clocks, used float64) clocks {
	const fastest = 1e5 // beyond any processor's
	highest, base, lowest := bounded(float64(c.Highest), fastest), bounded(float64(c.Base), fastest), bounded(float64(c.Lowest), fastest)
	if !c.FollowLoad || highest <= 0 {
		return clocks{mean: 1}
	}
	if base <= 0 || base > highest {
		base = assumedBase * highest
	}
	low := max(lowest, leastClock*base)
	top := highest - (highest-base)*min(1, max(0, used))
	if top <= low {
		return clocks{mean: 1}
	}
	return clocks{rise: min(mostRise, math.Pow(top/low, voltage)-1), mean: 1}
}

// of is what work costs on a core that is used so much by all of its CPUs, relative to one
// that is hardly used. A core works while any of its CPUs does, which share its clock.
func (c *clocks) of(use, cpus float64) float64 {
	if c.rise == 0 || use <= 0 {
		return 1
	}
	idle := 1.0
	for part, n := 1-min(1, use/cpus), cpus; n >= 1; n-- {
		idle *= part
	}
	return 1 + c.rise*min(1, (1-idle)/rampEnds)
}

// extra is what runs on a core that is used so much, in busy cores, beyond what it would be
// at the node's mean.
func (c *clocks) extra(use, cpus float64) float64 {
	if c.rise == 0 {
		return 0
	}
	return use * (c.of(use, cpus)/c.mean - 1)
}

// above is the same beyond what it would be were no core used much. The difference is the
// same however threads are bound, and to weigh that what a change adds counts as not cheap.
func (c *clocks) above(use, cpus float64) float64 {
	return use * (c.of(use, cpus) - 1) / c.mean
}

// weigh takes where the node's work runs now for what the cost of a busy core was learned
// of: clocks then say what is dearer than that, and what is cheaper.
func (c *clocks) weigh(cores []core) {
	used, costs := 0.0, 0.0
	for i := range cores {
		used, costs = used+cores[i].busy, costs+cores[i].busy*c.of(cores[i].busy, cores[i].cpus)
	}
	if used > eps {
		c.mean = costs / used
	}
}
