package affinity

import (
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// node is the node's physical cores as the placement sees them.
type node struct {
	cores   []core
	prices  prices
	sharing model.SiblingSharing
	// numbers of caches, packages, NUMA nodes and classes: cores hold them from 0 on.
	llcs, packages, numas, classes int
	// numaNodes are the kernel's numbers of the NUMA nodes.
	numaNodes []int
	// near are the NUMA nodes with network cards.
	near []bool
	// sizes of cores, in CPUs, and what is used of a core of each beside a vCPU that may be
	// always busy.
	sizes, besideBusy []float64
}

type core struct {
	set units.CPUSet
	// first is the number of one CPU, and cpus their count.
	first int
	cpus  float64
	// size numbers the core among those of as many CPUs.
	size int
	// llc, pkg, numa and class number what the core is in. Class 0 is the one to
	// prefer.
	llc, pkg, numa, class int
	slow                  bool
	// usable is false for cores that take no pins.
	usable bool
	// busy is the measured use, all siblings together.
	busy float64
	// limit is the use above which a core is hot.
	limit float64
	// quiet is the other use up to which a core is not hot with a single vCPU
	// on it, however busy that is: it would be as busy on any core, and a core
	// of its own is the best that it can get.
	quiet float64
	// reserve is the part of the limit that new pins leave free, so that a VM
	// at the limit does not come and go with each round.
	reserve float64
}

func newNode(in Node) *node {
	n := &node{cores: make([]core, len(in.Topology.Cores)), sharing: in.Sharing}
	llcs, packages, numas, sizes := numbers{}, numbers{}, numbers{}, numbers{}
	coreOf := map[int]int{}
	slow := false
	for i, c := range in.Topology.Cores {
		cpus := c.CPUs.CPUs()
		siblings := float64(len(cpus))
		limit := bounded(float64(in.MaxCoreUtilization), 1) * siblings
		n.cores[i] = core{
			set: c.CPUs, first: -1, cpus: siblings, size: sizes.of(len(cpus)),
			llc: llcs.of(c.LLC), pkg: packages.of(c.Package), numa: numas.of(c.NUMANode),
			slow:   c.Class == model.CoreEfficiency,
			usable: len(cpus) > 0 && c.CPUs.Intersection(in.Excluded).IsEmpty(),
			limit:  limit, quiet: min(limit, quietShare*siblings), reserve: newCoreReserve * siblings,
		}
		slow = slow || n.cores[i].slow
		for at, cpu := range cpus {
			if at == 0 {
				n.cores[i].first = cpu
			}
			coreOf[cpu] = i
		}
	}
	n.findSizes(sizes)
	n.llcs, n.packages, n.numas, n.classes = len(llcs), len(packages), len(numas), 1
	if slow {
		n.classes = 2
		for i := range n.cores {
			if n.cores[i].slow {
				n.cores[i].class = 1
			}
		}
	}
	n.near, n.numaNodes = make([]bool, n.numas), make([]int, n.numas)
	for number, at := range numas {
		n.numaNodes[at] = number
	}
	for _, nic := range in.Topology.NICs {
		if at, known := numas[nic.NUMANode]; known {
			n.near[at] = true
		}
	}
	for _, cpu := range in.CPUs {
		if i, ok := coreOf[cpu.CPU]; ok {
			n.cores[i].busy += bounded(float64(cpu.BusyCores), 1)
		}
	}
	clocks := newClocks(in.Topology.Clocks, n.used())
	clocks.weigh(n.cores)
	n.prices = newPrices(in.Costs, clocks)
	return n
}

// used is the part of all CPUs' time that is used.
func (n *node) used() float64 {
	busy, cpus := 0.0, 0.0
	for i := range n.cores {
		busy, cpus = busy+n.cores[i].busy, cpus+n.cores[i].cpus
	}
	return busy / max(1, cpus)
}

func (n *node) findSizes(sizes numbers) {
	n.sizes, n.besideBusy = make([]float64, len(sizes)), make([]float64, len(sizes))
	for cpus, at := range sizes {
		n.sizes[at], n.besideBusy[at] = float64(cpus), others(burstWait, float64(cpus))
	}
}

// numbers renumbers from 0 on, in the order in which they come.
type numbers map[int]int

func (n numbers) of(number int) int {
	at, known := n[number]
	if !known {
		at = len(n)
		n[number] = at
	}
	return at
}

// coreOf returns the core whose siblings the set is exactly, or -1.
func (n *node) coreOf(set units.CPUSet) int {
	for i := range n.cores {
		if set.Contains(n.cores[i].first) {
			if n.cores[i].set.Equal(set) {
				return i
			}
			return -1
		}
	}
	return -1
}

// cpusOf returns the CPUs of cores.
func (n *node) cpusOf(cores []int) units.CPUSet {
	var cpus []int
	for _, c := range cores {
		cpus = append(cpus, n.cores[c].set.CPUs()...)
	}
	return units.NewCPUSet(cpus...)
}

// reach is where threads run that are bound to some CPUs: the cores, and the share of
// the threads' time on each, which is the core's share of the CPUs.
type reach struct {
	cores  []int
	shares []float64
}

func (n *node) reach(cores []int, cpus units.CPUSet) reach {
	r := reach{cores: make([]int, 0, len(cores)), shares: make([]float64, 0, len(cores))}
	total := 0.0
	for _, c := range cores {
		if in := float64(n.cores[c].set.Intersection(cpus).Len()); in > 0 {
			r.cores, r.shares = append(r.cores, c), append(r.shares, in)
			total += in
		}
	}
	for i := range r.shares {
		r.shares[i] /= total
	}
	return r
}

// scope is what VMs of the same cpuset and pool may use.
type scope struct {
	allowed, within units.CPUSet
	// anywhere is where unbound threads run.
	anywhere reach
	// anywhereLLCs is how many caches that are.
	anywhereLLCs int
	// all are the whole cores in the cpuset that take pins, and confined those of
	// them in the pool.
	all, confined []int
	// inAll and inConfined tell the same by core.
	inAll, inConfined []bool
	// parts that all threads of a VM may be bound to.
	parts []part
	// byClass are the confined cores of each class.
	byClass [][]int
}

// part is a part of the cores.
type part struct {
	reach
	set units.CPUSet
	// emulator is where the emulator thread runs: whole caches.
	emulator    reach
	emulatorSet units.CPUSet
	limit       float64
	llcs        int
	slow        bool
}

func (n *node) countLLCs(cores []int) int {
	in, count := make([]bool, n.llcs), 0
	for _, c := range cores {
		if !in[n.cores[c].llc] {
			in[n.cores[c].llc] = true
			count++
		}
	}
	return count
}

func (n *node) newScope(allowed, within units.CPUSet) *scope {
	s := &scope{
		allowed: allowed, within: within,
		inAll: make([]bool, len(n.cores)), inConfined: make([]bool, len(n.cores)), byClass: make([][]int, n.classes),
	}
	every := make([]int, len(n.cores))
	for i := range n.cores {
		every[i] = i
		c := &n.cores[i]
		if !c.usable || !c.set.IsSubsetOf(allowed) {
			continue
		}
		s.all, s.inAll[i] = append(s.all, i), true
		if within.IsEmpty() || c.set.IsSubsetOf(within) {
			s.confined, s.inConfined[i] = append(s.confined, i), true
			s.byClass[c.class] = append(s.byClass[c.class], i)
		}
	}
	s.anywhere = n.reach(every, allowed)
	s.anywhereLLCs = n.countLLCs(s.anywhere.cores)
	n.divide(s)
	return s
}

// divide finds the parts: the pool, or else each last-level cache and each NUMA node
// that is not all there is. Each part has cores of one class.
func (n *node) divide(s *scope) {
	if !s.within.IsEmpty() {
		for _, cores := range s.byClass {
			n.addPart(s, cores)
		}
		return
	}
	for _, domain := range []struct {
		count int
		of    func(core) int
	}{{n.llcs, func(c core) int { return c.llc }}, {n.numas, func(c core) int { return c.numa }}} {
		if domain.count < 2 {
			continue
		}
		for number := range domain.count {
			for _, class := range s.byClass {
				var cores []int
				for _, c := range class {
					if domain.of(n.cores[c]) == number {
						cores = append(cores, c)
					}
				}
				if len(cores) < len(s.confined) {
					n.addPart(s, cores)
				}
			}
		}
	}
}

func (n *node) addPart(s *scope, cores []int) {
	if len(cores) == 0 {
		return
	}
	p := part{set: n.cpusOf(cores), slow: n.cores[cores[0]].slow}
	for _, known := range s.parts {
		if known.set.Equal(p.set) {
			return
		}
	}
	p.reach = n.reach(cores, p.set)
	in := make([]bool, n.llcs)
	for _, c := range cores {
		p.limit += n.cores[c].limit
		in[n.cores[c].llc] = true
	}
	p.llcs = n.countLLCs(cores)
	var whole []int
	for _, c := range s.all {
		if in[n.cores[c].llc] {
			whole = append(whole, c)
		}
	}
	p.emulatorSet = n.cpusOf(whole)
	p.emulator = n.reach(whole, p.emulatorSet)
	s.parts = append(s.parts, p)
}
