package curve

import (
	"math"

	"github.com/joulevirt/joulevirt/internal/units"
)

// maxCurves is how many curves a Set keeps: five sizes of VMs, with and without vhost,
// at five windows, and some to spare.
const maxCurves = 64

// Set holds the curves of one node.
type Set struct {
	prior  func(Key) Prior
	curves map[Key]*learned
	round  uint64
}

// New makes a Set without observations. prior returns what is known of a curve before
// anything is measured.
func New(prior func(Key) Prior) *Set { return &Set{prior: prior, curves: map[Key]*learned{}} }

// Cost is what a VM costs its host, or a difference of such costs.
type Cost struct {
	Cores units.Cores
	// CoresStdErr and WakeUpsStdErr are standard errors.
	CoresStdErr   units.Cores
	WakeUps       units.PerSecond
	WakeUpsStdErr units.PerSecond
}

// plus adds a cost whose error is independent of this one's.
func (c Cost) plus(o Cost) Cost {
	return Cost{
		Cores: c.Cores + o.Cores, CoresStdErr: units.Cores(math.Hypot(float64(c.CoresStdErr), float64(o.CoresStdErr))),
		WakeUps: c.WakeUps + o.WakeUps, WakeUpsStdErr: units.PerSecond(math.Hypot(float64(c.WakeUpsStdErr), float64(o.WakeUpsStdErr))),
	}
}

// Observe learns from what one VM did over some seconds.
func (s *Set) Observe(o Observation, seconds float64) {
	c := s.curves[o.Key]
	if c == nil {
		if len(s.curves) >= maxCurves {
			s.evict()
		}
		c = s.find(o.Key)
		s.curves[o.Key] = c
	}
	c.observe(&o, seconds, s.round)
}

// EndRound tells that all VMs of a round were observed.
func (s *Set) EndRound() { s.round++ }

// evict drops a curve that was unseen for longest.
func (s *Set) evict() {
	var oldest Key
	least := uint64(math.MaxUint64)
	for key, c := range s.curves {
		if c.seen < least {
			oldest, least = key, c.seen
		}
	}
	delete(s.curves, oldest)
}

// find returns a curve to read. One that is not kept is its prior.
func (s *Set) find(key Key) *learned {
	if c := s.curves[key]; c != nil {
		return c
	}
	return newLearned(s.prior(key))
}

// Cost returns what a VM costs at a rate.
func (s *Set) Cost(key Key, rate Rate) Cost {
	c, terms := s.find(key), At(rate)
	idle := Cost{
		units.Cores(c.idleCores.value()), units.Cores(c.idleCores.stdErr()),
		units.PerSecond(c.idleWakeUps.value()), units.PerSecond(c.idleWakeUps.stdErr()),
	}
	return idle.plus(c.cost(terms)).plus(c.formError(terms))
}

// cost returns what traffic of some terms, or of a difference of terms, costs, as if the form
// were right.
func (c *learned) cost(terms Terms) Cost {
	cores, wakeUps := c.prior.Cores.traffic(terms), c.prior.WakeUps.traffic(terms)
	return Cost{
		units.Cores(cores * c.cores.value()), units.Cores(math.Abs(cores) * c.cores.stdErr()),
		units.PerSecond(wakeUps * c.wakeUps.value()), units.PerSecond(math.Abs(wakeUps) * c.wakeUps.stdErr()),
	}
}

// formError returns no cost, with the error of the form where traffic is of some terms.
func (c *learned) formError(terms Terms) Cost {
	cost := c.cost(terms)
	return Cost{CoresStdErr: cost.Cores * units.Cores(c.prior.CoresForm), WakeUpsStdErr: cost.WakeUps * units.PerSecond(c.prior.WakeUpsForm)}
}

// Change is a VM whose traffic changes.
type Change struct {
	Key      Key
	From, To Rate
}

// anotherPlace is the relative change of packets from which on the form's error
// is another one.
const anotherPlace = 0.1

// Difference returns by how much the cost of several VMs changes: positive when
// it grows. An error of a curve's factor is in the cost of all that lie on
// it and cancels out, so this is surer than a difference of costs. An error of
// the curve's form is not the same at other rates, and stays.
func (s *Set) Difference(changes []Change) Cost {
	// Sums of terms by curve: of the changes, and where VMs that move are before and after.
	type sums struct{ change, before, after Terms }
	of := map[Key]*sums{}
	var order []Key
	for _, change := range changes {
		sum := of[change.Key]
		if sum == nil {
			sum = &sums{}
			of[change.Key] = sum
			order = append(order, change.Key)
		}
		from, to, moved := At(change.From), At(change.To), 0.0
		if most := max(change.From.Packets, change.To.Packets); most > 0 {
			moved = min(1, math.Abs(float64(change.To.Packets-change.From.Packets))/float64(most)/anotherPlace)
		}
		for i := range from {
			sum.change[i] += to[i] - from[i]
			sum.before[i] += moved * from[i]
			sum.after[i] += moved * to[i]
		}
	}
	var total Cost
	for _, key := range order {
		c, sum := s.find(key), of[key]
		total = total.plus(c.cost(sum.change)).plus(c.formError(sum.before)).plus(c.formError(sum.after))
	}
	return total
}

// Knee returns the knee of a class, as far as it was measured.
func (s *Set) Knee(key Key) Knee {
	if c := s.curves[key]; c != nil {
		return c.headroom.knee()
	}
	return Knee{}
}

// Seconds of VMs that a curve was learned from. 0: its prior is all there is.
func (s *Set) Seconds(key Key) float64 {
	if c := s.curves[key]; c != nil {
		return c.seconds
	}
	return 0
}
