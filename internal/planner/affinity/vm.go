package affinity

import (
	"math"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// mode is how a VM's threads are bound.
type mode int

const (
	// unplaced VMs are nowhere: only while they are being placed.
	unplaced mode = iota
	// floating threads run anywhere in the cpuset.
	floating
	// separated threads run on a part.
	separated
	// pinned vCPUs have a core each.
	pinned
)

// binding of a VM. part is where its threads run, but for the vCPUs of pinned VMs: pins
// holds the core of each.
type binding struct {
	mode mode
	part *part
	pins []int
}

// vcpu is one vCPU.
type vcpu struct {
	vm    *vm
	index int
	// demand of CPU time, at most 1 CPU, spared the part of it that pins are to save, and busy
	// how much the vCPU wants a core of its own.
	demand, spared, busy float64
	// bears is what others may use of a core of so many CPUs.
	bears map[int]bearable
	// start is the core of the pin in force, or -1, and at the core now.
	start, at int
}

// bearable is the use of a core up to which a vCPU does not wait for too long: of one to
// which it is pinned, and of one to which it would be.
type bearable struct{ kept, fresh float64 }

// vm is a VM and how it is bound.
type vm struct {
	number     int
	preference v1alpha1.AffinityPreference
	namespace  string
	scope      *scope
	vcpus      []vcpu
	// emulator, io and other are the demand of the other threads, io of IO threads and vhost
	// workers together. vcpuDemand is that of all vCPUs, and busy how many want a core.
	emulator, io, other, vcpuDemand, busy float64
	// busiest is the demand of the busiest vCPU.
	busiest float64
	// watts of its threads, were they not bound, and threshold what a change must save.
	watts, threshold float64
	// perCPU is the price of a CPU of work, were it not bound.
	perCPU float64
	// memoryAway is the share of its memory on other NUMA nodes than a core's.
	memoryAway []float64
	// newWait and keptWait are the shares of a CPU that a vCPU of new pins, and of those in
	// force, may wait for one.
	newWait, keptWait float64
	network, alone    bool
	// first VMs have short slices and wait for no VM that yields, whose slices are long.
	first, yields bool
	// start is the binding in force. unplaced: none, or not one that may stay.
	start binding
	// free VMs are placed anew: they have no pins that may stay. fixed ones get no others,
	// and denied ones none at all.
	free, fixed, denied bool
	// hot VMs lost their pins because a limit was broken.
	hot   bool
	now   binding
	price float64
}

// thread is the load of some threads of a VM, and where they run now.
type thread struct {
	run, wait float64
	cpus      units.CPUSet
}

// threadsOf are the loads of a VM's vCPUs, and after them of its emulator, IO threads, vhost
// workers and other threads.
func threadsOf(in *VM) []thread {
	r := in.Rates
	threads := make([]thread, 0, len(r.VCPUs)+4)
	add := func(t model.ThreadRates, cpus units.CPUSet) {
		if cpus.IsEmpty() {
			cpus = r.AllowedCPUs
		}
		threads = append(threads, thread{float64(t.RunCores), float64(t.WaitCores), cpus})
	}
	for _, c := range r.VCPUs {
		add(c.ThreadRates, c.CPUs)
	}
	add(r.Emulator, in.CurrentThreads.Emulator)
	add(r.IOThreads, in.CurrentThreads.IOThreads)
	add(r.Vhost, in.CurrentThreads.Vhost)
	add(r.Other, units.CPUSet{})
	return threads
}

// mostWait is how much of a CPU a vCPU that is pinned anew may wait for: well below what the agent's
// guard undoes pins for, as waits of single seconds are twice the mean and more. Pins stay up to
// keptWait. The manager's guard withdraws the lever beyond the VM's service level, so newShare and
// keptShare of that level are the limits where they are lower.
const (
	mostWait, keptWait  = 0.075, 0.15
	newShare, keptShare = 0.65, 0.9
)

// bearsFor returns how much others may use of a core of so many CPUs for a vCPU not to wait for
// longer. It waits while all CPUs work for others: if they do so for a part p of the time, it
// waits for p/(1-p) of each second that it runs, which is exact for one and two CPUs (M/M/1
// and M/M/2). One that yields to the others, who have shorter slices, waits for 1/(1-p)^2 - 1
// (M/M/1 with priorities).
func (v *vm) bearsFor(demand, wait, cpus float64) float64 {
	idle := demand / (demand + wait)
	if v.yields {
		idle = math.Sqrt(idle)
	}
	return cpus * math.Pow(1-idle, 1/cpus)
}

func (n *node) newVM(number int, in *VM, scope *scope) *vm {
	v := &vm{
		number: number, preference: in.Preference, namespace: in.Namespace, scope: scope,
		vcpus: make([]vcpu, len(in.Rates.VCPUs)), newWait: mostWait, keptWait: keptWait,
		network: in.Network, first: n.slices && in.Network, yields: n.slices && in.Compute, alone: in.Alone, fixed: in.Fixed, free: true,
	}
	if level := float64(in.MaxWait); level > 0 {
		v.newWait, v.keptWait = min(mostWait, newShare*level), min(keptWait, keptShare*level)
	}
	threads := threadsOf(in)
	demand := func(i int) float64 { return threads[i].run + float64(n.lack.Part(threads[i].cpus))*threads[i].wait }
	for i := range v.vcpus {
		c := vcpu{vm: v, index: in.Rates.VCPUs[i].Index, start: -1, at: -1, demand: min(1, demand(i)), bears: map[int]bearable{}}
		c.busy = busyness(c.demand)
		v.vcpuDemand, v.busy, v.busiest = v.vcpuDemand+c.demand, v.busy+c.busy, max(v.busiest, c.demand)
		v.vcpus[i] = c
	}
	count := len(v.vcpus)
	v.emulator, v.io, v.other = demand(count), demand(count+1)+demand(count+2), demand(count+3)
	n.findCurrent(v, in.Current, in.Separated)
	n.findBearable(v)
	// What is measured of a bound VM already has what the binding saves.
	p := &n.prices
	v.perCPU = p.busy / p.remains(v.start.mode)
	v.watts = v.perCPU*v.demand() + p.wakeUp*float64(in.Rates.WakeUps())/p.remains(v.start.mode)
	v.threshold = max(leastSaving, leastShare*v.watts)
	n.locateMemory(v, in.Rates.MemoryMiB)
	return v
}

// findBearable finds what a core's use may be for the VM's vCPUs not to wait for too long.
// That pins save time is counted on for new ones.
func (n *node) findBearable(v *vm) {
	saves := 1 - n.prices.pinned/n.prices.remains(v.start.mode)
	for i := range v.vcpus {
		c := &v.vcpus[i]
		c.spared = saves * c.demand
		for _, cpus := range n.sizes {
			c.bears[cpus] = bearable{
				kept:  v.bearsFor(c.demand, v.keptWait, float64(cpus)),
				fresh: v.bearsFor(c.demand-c.spared, v.newWait, float64(cpus)),
			}
		}
	}
}

// demand of all threads.
func (v *vm) demand() float64 { return v.vcpuDemand + v.emulator + v.io + v.other }

// findCurrent reads the binding in force, as far as the VM may keep it.
func (n *node) findCurrent(v *vm, current []model.Pin, isSeparated bool) {
	if len(current) == 0 || len(v.vcpus) == 0 {
		return
	}
	cores, onCores, same := make([]int, len(v.vcpus)), !isSeparated, len(current) == len(v.vcpus)
	for i := range v.vcpus {
		c := &v.vcpus[i]
		for _, pin := range current {
			same = same && pin.CPUs.Equal(current[0].CPUs)
			if core := n.coreOf(pin.CPUs); pin.VCPU == c.index && core >= 0 && v.scope.mayPin[core] {
				c.start = core
			}
		}
		cores[i] = c.start
		onCores = onCores && c.start >= 0 && n.cores[c.start].slow == n.cores[cores[0]].slow
	}
	if v.mayBe(pinned) && onCores {
		v.start, v.free = binding{mode: pinned, part: n.besidePins(v.scope, cores), pins: cores}, false
		return
	}
	for _, p := range v.scope.parts {
		if same && v.mayBe(separated) && p.cpus.Equal(current[0].CPUs) {
			v.start, v.free = binding{mode: separated, part: p}, false
		}
	}
}

// confined reports whether the VM has to be on the cores of its pool.
func (v *vm) confined() bool { return !v.scope.within.IsEmpty() && len(v.scope.parts) > 0 }

// mayBe reports whether the VM's preference allows a mode.
func (v *vm) mayBe(m mode) bool {
	switch m {
	case pinned:
		return v.preference != v1alpha1.AffinitySeparated && v.preference != v1alpha1.AffinityShared
	case separated:
		return v.confined() || (v.preference != v1alpha1.AffinityPinned && v.preference != v1alpha1.AffinityShared)
	default:
		return !v.confined()
	}
}

// isUnmet reports whether a mode is not what the VM's owner wishes.
func (v *vm) isUnmet(m mode) bool {
	return (v.preference == v1alpha1.AffinityPinned && m != pinned) ||
		(v.preference == v1alpha1.AffinitySeparated && m != separated)
}

// locateMemory finds how much of the VM's memory is elsewhere than each core.
func (n *node) locateMemory(v *vm, mib []uint64) {
	total := 0.0
	for _, m := range mib {
		total += float64(m)
	}
	v.memoryAway = make([]float64, len(n.cores))
	for i, c := range n.cores {
		switch {
		case total == 0:
		case c.numa >= 0 && c.numa < len(mib):
			v.memoryAway[i] = 1 - float64(mib[c.numa])/total
		default:
			v.memoryAway[i] = 1
		}
	}
}
