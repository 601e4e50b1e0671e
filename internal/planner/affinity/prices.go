package affinity

import (
	"math"

	"github.com/joulevirt/joulevirt/internal/model"
)

const (
	// awakeUse is the use from which on a core never sleeps deeply: that of
	// power.AwakeCores.
	awakeUse = 0.1
	// awakePackage and awakeCache are what an awake package and an awake last-level cache
	// count for, in awake cores. A package that sleeps switches off about as much as a core;
	// the cache decides among equals.
	awakePackage, awakeCache = 1, 0.1
	// knee is the use of a core, per CPU, above which it counts as crowded, and company the
	// use per CPU beside its busiest vCPU up to which it does not: that one would be as busy
	// on any core.
	knee, company = 0.6, 0.1
	// quietDemand is the demand up to which a vCPU does not mind company, and busyDemand the
	// one from which on it wants a core of its own.
	quietDemand, busyDemand = 0.15, 0.3
	// settledKnee and settledBusy are how much more than a core with new pins one with none
	// may carry before it counts as crowded: noise of 20 % changes nothing.
	settledKnee, settledBusy = 1.25, 1.5
	// remoteMemory is by how much more a vCPU costs whose memory is all on another NUMA
	// node, splitCache a VM whose vCPUs are spread over very many last-level caches, in
	// parts.
	remoteMemory, splitCache = 0.1, 0.03
	// slowCore is what a vCPU on an efficiency core counts for in addition, and farFromNIC
	// one of a network VM on another NUMA node than the network cards. They are preferences,
	// and no watts.
	slowCore, farFromNIC = 0.25, 0.002
	// leastSaving in watts, and leastShare of the VM's own power, are what a change of a
	// VM's threads must save at least.
	leastSaving, leastShare = 0.05, 0.05
)

const (
	// rampEnds is the use of a core from which on it runs at its highest clock: the kernel's
	// governors leave a quarter of room above what is used (schedutil's 1.25) or go to the
	// highest clock from 80 % on (ondemand).
	rampEnds = 0.8
	// leastClock is the clock of a core that is hardly used, of the base clock: no core is
	// seen at its lowest while it works, for governors sample the time in which it does. It
	// is what calibrating the simulator to the studies' tables came to.
	leastClock = 0.85
	// assumedBase is the base clock, of the highest, where it is not known.
	assumedBase = 0.8
	// voltage is the power of the clock with which the energy of given work rises: that of
	// the voltage's square.
	voltage = 1.2
	// mostRise keeps odd clocks from deciding about everything.
	mostRise = 1
)

// Costs of a node of which nothing was learned: those of the studies' host.
const (
	defaultBusyCore, defaultWakeUp, defaultAwakeCore = 15.4, 1e-5, 0.3
	defaultPinned, defaultSeparated                  = 0.23, 0.12
)

// prices are what a placement is weighed by, in watts and joules.
type prices struct {
	busy, wakeUp, awake float64
	// pinned and separated are what remains of a VM's power.
	pinned, separated float64
	// crowd is the price of a busy vCPU beyond one per core, and overload that of each core
	// of use above the knee. They are no watts: a crowded core costs in time first, and is
	// never worth what it saves.
	crowd, overload float64
	// wish is the price of a profile's wish that is not met, above all others.
	wish   float64
	clocks model.Clocks
	// rise is by how much the same work costs more on a core at its highest clock than on
	// one that is hardly used.
	rise float64
}

func newPrices(c model.PowerCosts, clocks model.Clocks) prices {
	if c.PerBusyCore == 0 && c.PerWakeUp == 0 && c.PerAwakeCore == 0 {
		c = model.PowerCosts{
			PerBusyCore: defaultBusyCore, PerWakeUp: defaultWakeUp, PerAwakeCore: defaultAwakeCore,
			Pinned: defaultPinned, Separated: defaultSeparated,
		}
	}
	p := prices{
		busy: float64(c.PerBusyCore), wakeUp: float64(c.PerWakeUp), awake: float64(c.PerAwakeCore),
		pinned: 1 - c.Pinned, separated: 1 - c.Separated, clocks: clocks,
	}
	// More than a core, its cache and its package cost awake, and than memory far away: half
	// of it has to be, which is what settled pins count for.
	p.crowd = 10*p.awake + 3*p.busy + 8*leastSaving
	p.overload = 2 * p.crowd
	p.wish = 1e3 * p.crowd
	return p
}

// setLoad sets the rise of the price by clocks on a node whose CPUs are to work such a part
// of the time: the more cores work, the lower is the highest clock, down to the base clock.
func (p *prices) setLoad(used float64) {
	c := p.clocks
	if !c.FollowLoad || c.Highest <= 0 {
		return
	}
	highest, base := float64(c.Highest), float64(c.Base)
	if base <= 0 || base > highest {
		base = assumedBase * highest
	}
	top := highest - (highest-base)*min(1, used)
	low := max(float64(c.Lowest), leastClock*base)
	p.rise = min(mostRise, max(0, math.Pow(top/low, voltage)-1))
}

// remains is what remains of the power of a VM's threads.
func (p *prices) remains(m mode) float64 {
	switch m {
	case pinned:
		return p.pinned
	case separated:
		return p.separated
	default:
		return 1
	}
}

// clocked is what work costs on a core beyond what it would cost on one that is hardly used:
// siblings share a clock, which follows the time in which any of them works.
func (p *prices) clocked(use, cpus float64) float64 {
	if p.rise == 0 || use <= 0 {
		return 0
	}
	works := 1 - allBusy(1-min(1, use/cpus), cpus)
	return p.busy * p.rise * use * min(1, works/rampEnds)
}

// core returns the price of the load of a core: that of its clock, and of crowding.
func (p *prices) core(use, busy, cpus float64, pins *pinLoad) float64 {
	// Beyond all its CPUs something on the core waits: what may run nowhere else starves.
	kneeAt, busyAt := min(cpus, max(knee*cpus, pins.most+company*cpus)), 1.0
	if pins.settled {
		kneeAt, busyAt = kneeAt*settledKnee, settledBusy
	}
	return p.clocked(use, cpus) + p.crowd*max(0, busy-busyAt) + p.overload*max(0, use-kneeAt)
}

// busyness is how much a vCPU wants a core of its own, from 0 to 1. It rises steadily, so
// that noise does not make a vCPU busy.
func busyness(demand float64) float64 {
	return min(1, max(0, (demand-quietDemand)/(busyDemand-quietDemand)))
}

// awakeness is how far a core is kept from deep sleep, from 0 to 1.
func awakeness(use float64) float64 { return min(1, max(0, use/awakeUse)) }

// allBusy is the chance that each of some CPUs works at a time, if each does so for a part.
func allBusy(part, cpus float64) float64 {
	chance := 1.0
	for range int(cpus) {
		chance *= part
	}
	return chance
}
