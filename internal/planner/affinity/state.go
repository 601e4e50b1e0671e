package affinity

import (
	"slices"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/units"
)

// eps is what rounding may do to sums.
const eps = 1e-9

// state is where all threads are, and what that costs. Sums follow as threads come and go,
// so that to try something costs little.
type state struct {
	node  *node
	vms   []*vm
	cores []coreState
	// unmanaged is the use of each core by all that is not placed.
	unmanaged []float64
	// llcAwake and pkgAwake are sums over their awake cores.
	llcAwake, pkgAwake []float64
	// total is the price of everything, and hot the number of cores with pins on which a
	// limit is broken.
	total float64
	hot   int
	// before is the dynamic power predicted of the node as it is.
	before units.Watts
	// anySiblings is true while it is tried what other sharing would allow.
	anySiblings bool
	// thorough is true where there is time to place each vCPU once more.
	thorough bool
}

// coreState is what runs on one core.
type coreState struct {
	// use of the core, the part of it by VMs that yield, and how many of the vCPUs on it want
	// it for themselves.
	use, late, busy float64
	// on are the vCPUs that are pinned to the core, and pins what they demand of it.
	on   []*vcpu
	pins pinLoad
	// price and awake as they count now.
	price, awake float64
	hot          bool
}

func newState(n *node, vms []VM, unmanaged []float64) *state {
	s := &state{
		node: n, cores: make([]coreState, len(n.cores)), unmanaged: unmanaged,
		llcAwake: make([]float64, n.llcs), pkgAwake: make([]float64, n.packages),
	}
	var scopes []*scope
	used, cpus := 0.0, 0.0
	for i := range vms {
		in := &vms[i]
		at := slices.IndexFunc(scopes, func(s *scope) bool {
			return s.allowed.Equal(in.Rates.AllowedCPUs) && s.within.Equal(in.Within)
		})
		if at < 0 {
			at = len(scopes)
			scopes = append(scopes, n.newScope(in.Rates.AllowedCPUs, in.Within))
		}
		v := n.newVM(i, in, scopes[at])
		s.vms = append(s.vms, v)
		used += v.demand()
	}
	for i := range n.cores {
		used, cpus = used+unmanaged[i], cpus+n.cores[i].cpus
	}
	n.prices.setLoad(used / max(1, cpus))
	for i := range s.cores {
		s.add(i, s.unmanaged[i], busyness(s.unmanaged[i]), false)
	}
	for _, v := range s.vms {
		// Other threads are never bound: they run anywhere whatever becomes of the VM.
		s.spread(&v.scope.anywhere.area, v.other, 0, v.yields)
	}
	return s
}

// add changes what runs on a core.
func (s *state) add(core int, use, busy float64, yields bool) {
	c := &s.cores[core]
	c.use += use
	c.busy += busy
	if yields {
		c.late += use
	}
	s.refresh(core)
}

// refresh counts a core again.
func (s *state) refresh(core int) {
	c, n := &s.cores[core], &s.node.cores[core]
	price := s.node.prices.core(c.use, c.busy, n.cpus, &c.pins)
	s.total += price - c.price
	c.price = price
	if by := awakeness(c.use) - c.awake; by != 0 {
		s.total += s.wake(n, by)
		s.llcAwake[n.llc] += by
		s.pkgAwake[n.pkg] += by
		c.awake += by
	}
	if hot := c.pins.breaksLimit(c.use, c.late, n); hot != c.hot {
		c.hot = hot
		if hot {
			s.hot++
		} else {
			s.hot--
		}
	}
}

// wake returns what it costs that a core is more awake by a part, with its cache and package.
func (s *state) wake(n *core, by float64) float64 {
	llc, pkg := s.llcAwake[n.llc], s.pkgAwake[n.pkg]
	return s.node.prices.awake * (by + awakeCache*(min(1, llc+by)-min(1, llc)) + awakePackage*(min(1, pkg+by)-min(1, pkg)))
}

// pinLoad sums up the vCPUs that are pinned to a core.
type pinLoad struct {
	count int
	// most is the demand of the busiest.
	most float64
	// peak is how much more they use if those all run that are to be alone.
	peak float64
	// last is the use of the last of them, and spared what pins are to save of all.
	last, spared float64
	// all is the use of the core up to which none waits for too long of those that wait for
	// all others, and first the same for those that wait for no VM that yields.
	all, first limit
	// alone is true when one of them is to be alone, and settled when all were there before.
	alone, settled bool
}

// limit of a core's use. Not set: any use is fine.
type limit struct {
	bearable
	set bool
}

func (l *limit) lower(to bearable) {
	if l.set {
		to.kept, to.fresh = min(to.kept, l.kept), min(to.fresh, l.fresh)
	}
	*l = limit{to, true}
}

// isBroken reports whether a use is more, of pins that were there before or, with what they are to
// save, of others.
func (l *limit) isBroken(use, spared float64, settled bool) bool {
	most := l.kept
	if !settled {
		most = min(most, l.fresh+spared)
	}
	return l.set && use > most+eps
}

// with returns the load with a vCPU more.
func (p pinLoad) with(v *vcpu, core int, n *core) pinLoad {
	use, stays := v.demand, core == v.start
	if v.vm.alone && !stays {
		use = 1
	}
	bears := v.bears[int(n.cpus)]
	bears.kept, bears.fresh = use+bears.kept, use-v.spared+bears.fresh
	if v.vm.first {
		p.first.lower(bears)
	} else {
		p.all.lower(bears)
	}
	if p.count > 0 {
		stays = stays && p.settled
	}
	return pinLoad{
		count: p.count + 1, most: max(p.most, v.demand), peak: p.peak + use - v.demand, last: use, spared: p.spared + v.spared,
		all: p.all, first: p.first, alone: p.alone || v.vm.alone, settled: stays,
	}
}

// maxVCPUsPerCPU is KubeVirt's default ratio of overcommitment: idle vCPUs wake up too.
const maxVCPUsPerCPU = 10

// breaksLimit reports whether a core's use, of which a part is late, by VMs that yield, is more than
// its pins allow.
func (p *pinLoad) breaksLimit(use, late float64, n *core) bool {
	if p.count == 0 {
		return false
	}
	if p.count > maxVCPUsPerCPU*int(n.cpus) || p.alone && p.count > int(n.cpus) {
		return true
	}
	use += p.peak
	reserve := n.reserve
	if p.settled {
		reserve = 0
	}
	// A core that a single vCPU has to itself is judged by all else that runs there.
	if p.count == 1 && use-p.last <= n.quiet-reserve+eps {
		return false
	}
	return use > n.limit-reserve+eps || p.all.isBroken(use, p.spared, p.settled) || p.first.isBroken(use-late, p.spared, p.settled)
}

// mayShare reports whether siblings of a core may have vCPUs of a VM beside those there.
// Those there may share with each other: what is so of one is so of all.
func (s *state) mayShare(v *vm, core int) bool {
	on := s.cores[core].on
	if len(on) == 0 || on[0].vm == v || s.anySiblings || s.node.cores[core].cpus < 2 {
		return true
	}
	switch s.node.sharing {
	case v1alpha1.ShareAny:
		return true
	case v1alpha1.ShareWithinNamespace:
		return on[0].vm.namespace == v.namespace
	default:
		return false
	}
}

// put pins a vCPU to a core. Its VM's other threads stay where they are.
func (s *state) put(v *vcpu, core int) {
	v.at = core
	c := &s.cores[core]
	c.on, c.pins = append(c.on, v), c.pins.with(v, core, &s.node.cores[core])
	s.add(core, v.demand, v.busy, v.vm.yields)
}

// remove undoes put.
func (s *state) remove(v *vcpu) {
	c, core := &s.cores[v.at], v.at
	at := slices.Index(c.on, v)
	c.on, c.pins = slices.Delete(c.on, at, at+1), pinLoad{}
	for _, other := range c.on {
		c.pins = c.pins.with(other, core, &s.node.cores[core])
	}
	v.at = -1
	s.add(core, -v.demand, -v.busy, v.vm.yields)
}

// spread adds load to the cores of an area.
func (s *state) spread(a *area, use, busy float64, yields bool) {
	if use == 0 {
		return
	}
	for i, core := range a.cores {
		s.add(core, use*a.shares[i], busy*a.shares[i], yields)
	}
}

// bind places a VM that is nowhere.
func (s *state) bind(v *vm, b binding) {
	v.now = b
	s.spreadThreads(v, 1)
	for i := range b.pins {
		s.put(&v.vcpus[i], b.pins[i])
	}
	v.price = s.priceOf(v)
	s.total += v.price
}

// unbind takes a VM off all cores.
func (s *state) unbind(v *vm) {
	if v.now.mode == unplaced {
		return
	}
	for i := range v.now.pins {
		s.remove(&v.vcpus[i])
	}
	s.spreadThreads(v, -1)
	s.total -= v.price
	v.now, v.price = binding{}, 0
}

// spreadThreads adds, or with sign -1 removes, the threads of a VM that are not pinned to a
// core each.
func (s *state) spreadThreads(v *vm, sign float64) {
	use, busy := v.io, 0.0
	if v.now.mode != pinned {
		use, busy = use+v.vcpuDemand, v.busy
	}
	part := v.now.part
	if len(part.cores) == len(part.emulator.cores) {
		s.spread(&part.area, sign*(use+v.emulator), sign*busy, v.yields)
		return
	}
	s.spread(&part.area, sign*use, sign*busy, v.yields)
	s.spread(&part.emulator, sign*v.emulator, 0, v.yields)
}

// priceOf is what a VM costs as it is bound now, but for the cores that it uses.
func (s *state) priceOf(v *vm) float64 {
	price := s.wattsOf(v)
	for i, core := range v.now.pins {
		price += s.preference(v, core) * v.vcpus[i].demand
		if start := v.vcpus[i].start; start >= 0 && start != core {
			price += v.threshold / float64(len(v.vcpus))
		}
	}
	if v.now.mode == separated && v.now.part.slow {
		price += slowCore * v.perCPU * v.vcpuDemand
	}
	if v.isUnmet(v.now.mode) {
		price += s.node.prices.wish
	}
	if v.now.mode != floating && v.start.mode == unplaced && !v.isUnmet(floating) && v.scope.within.IsEmpty() {
		price += v.threshold
	}
	return price
}

// preference is what a CPU of work counts for on a core, beyond watts.
func (s *state) preference(v *vm, core int) float64 {
	n, share := &s.node.cores[core], 0.0
	if n.slow {
		share += slowCore
	}
	if v.network && s.node.hasNIC && !n.nearNIC {
		share += farFromNIC
	}
	return share * v.perCPU
}

// wattsOf predicts the power of a VM's threads, but for the cores that they use: with what
// memory on other NUMA nodes costs, and vCPUs in several caches.
func (s *state) wattsOf(v *vm) float64 {
	away, llcs := 0.0, v.now.part.llcs
	if v.now.mode == pinned {
		llcs = s.countLLCs(v.now.pins)
		for i, core := range v.now.pins {
			away += v.vcpus[i].demand * v.memoryAway[core]
		}
	} else {
		for i, core := range v.now.part.cores {
			away += v.vcpuDemand * v.now.part.shares[i] * v.memoryAway[core]
		}
	}
	split := splitCache * (1 - 1/float64(max(1, llcs)))
	return v.watts*s.node.prices.remains(v.now.mode) + v.perCPU*(remoteMemory*away+split*v.vcpuDemand)
}

func (s *state) countLLCs(cores []int) int {
	count := 0
	for i, c := range cores {
		llc := s.node.cores[c].llc
		if !slices.ContainsFunc(cores[:i], func(other int) bool { return s.node.cores[other].llc == llc }) {
			count++
		}
	}
	return count
}

// watts predicts the dynamic power of the node: what the placement is weighed by without
// what are no watts.
func (s *state) watts() units.Watts {
	p := &s.node.prices
	sum := 0.0
	for i := range s.cores {
		sum += p.busy*s.unmanaged[i] + p.clocked(s.cores[i].use, s.node.cores[i].cpus) + p.awake*s.cores[i].awake
	}
	for i := range s.pkgAwake {
		sum += p.awake * awakePackage * min(1, s.pkgAwake[i])
	}
	for i := range s.llcAwake {
		sum += p.awake * awakeCache * min(1, s.llcAwake[i])
	}
	for _, v := range s.vms {
		sum += s.wattsOf(v)
	}
	return units.Watts(sum)
}
