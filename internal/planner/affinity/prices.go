package affinity

import (
	"math"

	"github.com/joulevirt/joulevirt/internal/model"
)

const (
	// awakeUse is the use from which on a core never sleeps deeply: that of
	// power.AwakeCores.
	awakeUse = 0.1
	// awakePackage and awakeCache are what an awake package and an awake last-level
	// cache count for, in awake cores. A package that sleeps switches off about as
	// much as a core; the cache decides among equals.
	awakePackage, awakeCache = 1, 0.1
	// knee is the use of a core, per CPU, above which the cost of work rises, and company
	// the use per CPU beside its busiest vCPU up to which it does not: that one would be
	// as busy on any core.
	knee, company = 0.6, 0.1
	// quietDemand is the demand up to which a vCPU does not mind company, and
	// busyDemand the one from which it wants a core of its own.
	quietDemand, busyDemand = 0.15, 0.3
	// remoteMemory is by how much more a vCPU costs whose memory is all on another
	// NUMA node, splitCache a VM whose vCPUs are spread over very many last-level
	// caches, in parts.
	remoteMemory, splitCache = 0.1, 0.03
	// slowCore is what a vCPU on an efficiency core counts for in addition, and
	// farFromNIC one of a network VM on another NUMA node than the network cards.
	// They are preferences, and no watts.
	slowCore, farFromNIC = 0.25, 0.002
	// leastSaving in watts, and leastShare of the VM's own power, are what a change
	// of a VM's threads must save at least.
	leastSaving, leastShare = 0.05, 0.05
	// settledKnee and settledBusy are how much more than a core with new pins one
	// with none may carry before it counts as crowded: noise of 20 % changes nothing.
	settledKnee, settledBusy = 1.25, 1.5
	// quietShare is the share of a core's CPUs that others may use on a quiet core.
	quietShare = 0.15
	// newCoreReserve is the share of a core's CPUs that new pins leave free below
	// the limit.
	newCoreReserve = 0.05
	// maxVCPUsPerCPU is KubeVirt's default ratio of overcommitment: idle vCPUs wake
	// up too.
	maxVCPUsPerCPU = 10
	// vCPUWeight is the weight of one CPU's request, in cpu.shares.
	vCPUWeight = 1024
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
	// crowd is the price of a busy vCPU beyond one per core, and knee that of a core
	// of use above the knee. They are no watts: a crowded core costs in time first,
	// and is never worth what it saves.
	crowd, knee float64
	// clocks are what running costs more on a core that is used more.
	clocks clocks
	// fill is the use of a core, per CPU, from which on it counts as crowded.
	fill float64
	// wish is the price of a profile's wish that is not met, above all others.
	wish float64
}

func newPrices(c model.PowerCosts, clocks clocks) prices {
	if !(c.PerBusyCore > 0) && !(c.PerWakeUp > 0) && !(c.PerAwakeCore > 0) {
		c.PerBusyCore, c.PerWakeUp, c.PerAwakeCore = defaultBusyCore, defaultWakeUp, defaultAwakeCore
		if !(c.Pinned > 0) && !(c.Separated > 0) {
			c.Pinned, c.Separated = defaultPinned, defaultSeparated
		}
	}
	p := prices{
		busy: bounded(float64(c.PerBusyCore), mostCost), wakeUp: bounded(float64(c.PerWakeUp), mostCost),
		awake:  bounded(float64(c.PerAwakeCore), mostCost),
		pinned: 1 - bounded(c.Pinned, mostSaved), separated: 1 - bounded(c.Separated, mostSaved),
		clocks: clocks, fill: knee,
	}
	// More than a core, its cache and its package cost awake, and than memory far
	// away: half of it has to be, which is what settled pins count for.
	p.crowd = 10*p.awake + 3*p.busy + 8*leastSaving
	p.knee = 2 * p.crowd
	p.wish = 1e3 * p.crowd
	return p
}

const (
	// mostCost is beyond any node's, and mostSaved beyond what any binding saves.
	mostCost, mostSaved = 1e4, 0.5
	// mostLoad is beyond that of any VM, in cores, or in weights of 1024.
	mostLoad = 1e4
)

// bounded returns a figure from 0 to most, and 0 for one that is not a number.
func bounded(v, most float64) float64 {
	if !(v > 0) {
		return 0
	}
	return math.Min(v, most)
}

// busyness is how much a vCPU wants a core of its own, from 0 to 1. It rises
// steadily, so that noise does not make a vCPU busy.
func busyness(demand float64) float64 {
	return min(1, max(0, (demand-quietDemand)/(busyDemand-quietDemand)))
}

// core returns the price of what runs on a core beyond what it would cost on one that is
// hardly used, and of a core that is crowded so much. most is the demand of the busiest
// vCPU that is pinned to it.
func (p *prices) core(use, busy, most, cpus float64, settled bool) float64 {
	// Beyond all its CPUs something on the core waits: what may run nowhere else starves.
	kneeAt, busyAt := min(cpus, max(p.fill*cpus, most+company*cpus)), 1.0
	if settled {
		kneeAt, busyAt = kneeAt*settledKnee, settledBusy
	}
	price := p.busy * p.clocks.above(use, cpus)
	if busy > busyAt {
		price += p.crowd * (busy - busyAt)
	}
	if use > kneeAt {
		price += p.knee * (use - kneeAt)
	}
	return price
}

// awakeness is how far a core is kept from deep sleep, from 0 to 1.
func awakeness(use float64) float64 {
	switch {
	case use >= awakeUse:
		return 1
	case use <= 0:
		return 0
	default:
		return use / awakeUse
	}
}
