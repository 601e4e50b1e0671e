package affinity

import (
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// mode is how a VM's threads are bound.
type mode int

const (
	// unplaced VMs are nowhere: only while the search works.
	unplaced mode = iota
	// floating threads run anywhere in the cpuset.
	floating
	// separated threads run on a part.
	separated
	// pinned vCPUs have a core each.
	pinned
)

// binding of a VM. cores holds the core of each vCPU when it is pinned.
type binding struct {
	mode  mode
	part  int
	cores []int
}

// vcpu is one vCPU.
type vcpu struct {
	vm, index int
	// demand of CPU time, at most 1 CPU. busy is how much it wants a core of its
	// own.
	demand, busy float64
	// press is what the vCPU weighs against others on its core while it runs,
	// times how long that is.
	press float64
	// endures is how much a core of each size may be used with the vCPU on it.
	endures []endures
	// start is the core of the pin in force, or -1, and at the core now.
	start, at int
	// away is what it costs on a core of a NUMA node and class, in watts: at
	// numa*classes+class.
	away []float64
}

// bears returns the press on a core that the vCPU, being part of it, gets its demand
// against: with weight w of its own, min(1, cpus w / (w + others)) is its share.
func (v *vcpu) bears(perDemand, cpus float64) float64 {
	return perDemand * (v.demand*v.demand + cpus - v.demand)
}

// vm is a VM and where it is.
type vm struct {
	number     int
	preference model.AffinityPreference
	namespace  int
	scope      *scope
	// first vCPU in state.vcpus, and how many.
	first, count int
	// weight of a demand of 1: the kernel divides a group's weight among CPUs by the
	// group's load there.
	perDemand float64
	// emulator, io and other are the demand of the other threads, io of IO threads
	// and vhost workers together. press of each.
	emulator, io, other             thread
	demand, press, busy, vcpuDemand float64
	watts                           float64
	threshold                       float64
	// sparing is what binding the VM anew spares of its threads' time, separated and pinned.
	sparing    [2]float64
	memoryAway []float64
	network    bool
	// busiest is the demand of the busiest vCPU.
	busiest float64
	// currentIO are the CPUs of its IO threads and vhost workers, which stay while all
	// pins do, atStart of the vCPUs, unless that is illegal or costs too much.
	currentIO units.CPUSet
	mayKeepIO bool
	atStart   int
	// start is the binding in force. unplaced: none, or not one that may stay.
	start binding
	// free VMs are placed anew: they have no pins that may stay.
	free bool
	// denied VMs are not bound any more: a limit was broken where they were.
	denied bool
	// hot VMs were let go of because a limit was broken. wary ones are bound only where
	// all of their vCPUs may be busy.
	hot, wary bool
	// waited VMs share no CPU.
	waited bool
	// stays VMs are not bound otherwise than they are.
	stays bool
	now   binding
	// price of the VM as it is bound now.
	price float64
	// perLLC counts the vCPUs in each last-level cache.
	perLLC []int
	llcs   int
}

// thread is the load of some threads that are no vCPUs.
type thread struct{ demand, press float64 }

// leastDemand keeps the weight of an idle VM finite.
const leastDemand = 1e-4

func (s *state) newVM(number int, in VM, scope *scope) *vm {
	r := in.Rates
	v := &vm{
		number: number, preference: in.Preference, scope: scope, first: len(s.vcpus), count: len(r.VCPUs),
		network: in.Network, free: true, wary: in.Wary || in.Waited, waited: in.Waited, stays: in.Stays, perLLC: make([]int, s.node.llcs),
	}
	demandOf := func(t model.ThreadRates, set units.CPUSet, most float64) float64 {
		if set.IsEmpty() {
			set = r.AllowedCPUs
		}
		return min(most, bounded(float64(t.RunCores), mostLoad)+float64(s.lack.Part(set))*bounded(float64(t.WaitCores), mostLoad))
	}
	v.emulator.demand = demandOf(r.Emulator, in.CurrentThreads.Emulator, 1)
	v.io.demand = demandOf(r.IOThreads, in.CurrentThreads.IOThreads, mostLoad) + demandOf(r.Vhost, in.CurrentThreads.Vhost, mostLoad)
	v.other.demand = demandOf(r.Other, units.CPUSet{}, mostLoad)
	v.demand = v.emulator.demand + v.io.demand + v.other.demand
	for _, c := range r.VCPUs {
		c := vcpu{vm: number, index: c.Index, start: -1, at: -1, demand: max(leastDemand, demandOf(c.ThreadRates, c.CPUs, 1))}
		c.busy = busyness(c.demand)
		v.demand += c.demand
		v.vcpuDemand += c.demand
		v.busy += c.busy
		v.busiest = max(v.busiest, c.demand)
		s.vcpus = append(s.vcpus, c)
	}
	weight := bounded(r.Weight, mostLoad*vCPUWeight)
	if weight <= 0 {
		weight = vCPUWeight * float64(max(1, v.count))
	}
	v.findCurrent(s, in.Current)
	for i, m := range []mode{separated, pinned} {
		v.sparing[i] = 1 - s.node.prices.remains(m)/s.node.prices.remains(v.start.mode)
	}
	v.perDemand = weight / max(leastDemand, v.demand)
	for _, t := range []*thread{&v.emulator, &v.io, &v.other} {
		t.press = v.perDemand * t.demand * min(1, t.demand)
		v.press += t.press
	}
	for i := range v.count {
		c := &s.vcpus[v.first+i]
		c.press = v.perDemand * c.demand * c.demand
		c.endures = s.endures(c.demand, (1-v.spares(pinned))*c.demand, in.MostWait)
		v.press += c.press
	}
	v.findCurrentIO(s.node, in.CurrentThreads)
	// What is measured of a bound VM already has what the binding saves.
	p := &s.node.prices
	v.watts = (p.busy*v.demand + p.wakeUp*bounded(float64(r.WakeUps()), mostRate)) / p.remains(v.start.mode)
	v.threshold = max(leastSaving, leastShare*v.watts)
	s.locate(v, in)
	return v
}

// spares is the part of the VM's threads' time that binding it so spares, beyond what it is
// bound now: a vCPU that wakes where it ran before runs for less, and others wait less.
func (v *vm) spares(m mode) float64 {
	if m == separated {
		return v.sparing[0]
	}
	return v.sparing[1]
}

// mostRate is beyond any rate of wake-ups.
const mostRate = 1e9

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

// findCurrent reads the binding in force, as far as the VM may keep it.
func (v *vm) findCurrent(s *state, current []model.Pin) {
	if v.count == 0 {
		return
	}
	cores, same := make([]int, v.count), true
	for i := range cores {
		c := &s.vcpus[v.first+i]
		cores[i] = -1
		for _, pin := range current {
			if pin.VCPU != c.index {
				continue
			}
			same = same && pin.CPUs.Equal(current[0].CPUs)
			if core := s.node.coreOf(pin.CPUs); core >= 0 && v.scope.inConfined[core] {
				cores[i], c.start = core, core
			}
		}
		same = same && len(current) == v.count
	}
	if v.mayBe(pinned) && s.oneClass(cores) {
		v.start, v.free = binding{mode: pinned, cores: cores}, false
		return
	}
	if !same || !v.mayBe(separated) {
		return
	}
	for i := range v.scope.parts {
		if v.scope.parts[i].set.Equal(current[0].CPUs) {
			v.start, v.free = binding{mode: separated, part: i}, false
		}
	}
}

// findCurrentIO tells whether IO threads and vhost workers are where those of a pinned VM
// may be: on whole cores of the pool, in the caches of the vCPUs.
func (v *vm) findCurrentIO(n *node, current model.ThreadCPUs) {
	if v.start.mode != pinned || !current.Vhost.Equal(current.IOThreads) {
		return
	}
	near := make([]bool, n.llcs)
	for _, core := range v.start.cores {
		near[n.cores[core].llc] = true
	}
	var may units.CPUSet
	for _, core := range v.scope.confined {
		if c := &n.cores[core]; near[c.llc] && current.Vhost.Contains(c.first) {
			may = may.Union(c.set)
		}
	}
	v.currentIO, v.mayKeepIO = current.Vhost, !may.IsEmpty() && may.Equal(current.Vhost)
}

// oneClass tells whether all are cores, of one class.
func (s *state) oneClass(cores []int) bool {
	for _, c := range cores {
		if c < 0 || s.node.cores[c].class != s.node.cores[cores[0]].class {
			return false
		}
	}
	return true
}

// mayBe tells whether the VM's preference allows a mode.
func (v *vm) mayBe(m mode) bool {
	confined := !v.scope.within.IsEmpty() && len(v.scope.parts) > 0
	switch v.preference {
	case model.AffinityPinned:
		return m == pinned || (m == separated && confined) || (m == floating && !confined)
	case model.AffinitySeparated:
		return m == separated || (m == floating && !confined)
	case model.AffinityShared:
		return (m == separated && confined) || (m == floating && !confined)
	default:
		return m != floating || !confined
	}
}

// unmet tells whether a mode is not what the VM's owner wishes.
func (v *vm) unmet(m mode) bool {
	switch v.preference {
	case model.AffinityPinned:
		return m != pinned
	case model.AffinitySeparated:
		return m != separated
	default:
		return false
	}
}

// locate finds what the VM's vCPUs cost where.
func (s *state) locate(v *vm, in VM) {
	n := s.node
	total := 0.0
	for _, mib := range in.Rates.MemoryMiB {
		total += float64(mib)
	}
	v.memoryAway = make([]float64, n.numas)
	for at, number := range n.numaNodes {
		if total > 0 {
			here := 0.0
			if number >= 0 && number < len(in.Rates.MemoryMiB) {
				here = float64(in.Rates.MemoryMiB[number])
			}
			v.memoryAway[at] = 1 - here/total
		}
	}
	near := false
	for _, is := range n.near {
		near = near || is
	}
	saved := n.prices.remains(v.start.mode)
	away := make([]float64, v.count*n.numas*n.classes)
	for i := range v.count {
		c := &s.vcpus[v.first+i]
		c.away = away[i*n.numas*n.classes : (i+1)*n.numas*n.classes]
		for numa := range n.numas {
			for class := range n.classes {
				share := remoteMemory * v.memoryAway[numa]
				if class > 0 {
					share += slowCore
				}
				if v.network && near && !n.near[numa] {
					share += farFromNIC
				}
				c.away[numa*n.classes+class] = n.prices.busy * c.demand / saved * share
			}
		}
	}
}
