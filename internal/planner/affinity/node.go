package affinity

import (
	"slices"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// node is the node's physical cores as the placement sees them.
type node struct {
	cores   []core
	prices  prices
	sharing v1alpha1.SiblingSharing
	slices  bool
	// llcs and packages are how many there are: cores number them from 0 on.
	llcs, packages int
	// hasNIC is true when the NUMA node of some network card is known.
	hasNIC bool
	// sizes of cores, in CPUs.
	sizes []int
	// lack of CPU time, which turns waiting into demand.
	lack *model.Lack
}

type core struct {
	set units.CPUSet
	// first is the number of one CPU, and cpus their count.
	first int
	cpus  float64
	// llc and pkg number the core's last-level cache and package, numa is the kernel's
	// number.
	llc, pkg, numa int
	// slow cores are efficiency cores, usable ones take pins, and nearNIC ones are on the
	// NUMA node of a network card.
	slow, usable, nearNIC bool
	// busy is the measured use, all siblings together.
	busy float64
	// limit is the use above which a core is hot, and reserve the part of it that new pins
	// leave free, so that a VM at the limit does not come and go with each round.
	limit, reserve float64
	// quiet is the other use up to which a core is not hot with a single vCPU on it, however
	// busy that is: a core of its own is the best that it can get.
	quiet float64
}

const (
	// quietShare is the share of a core's CPUs that others may use on a quiet core.
	quietShare = 0.15
	// newCoreReserve is the share of a core's CPUs that new pins leave free below the limit.
	newCoreReserve = 0.05
)

func newNode(in Node) *node {
	n := &node{cores: make([]core, len(in.Topology.Cores)), sharing: in.Sharing, slices: in.Slices}
	llcs, packages := numbers{}, numbers{}
	coreOf := map[int]int{}
	for i, c := range in.Topology.Cores {
		cpus := c.CPUs.CPUs()
		siblings := float64(len(cpus))
		limit := float64(in.MaxCoreUtilization) * siblings
		n.cores[i] = core{
			set: c.CPUs, first: -1, cpus: siblings, llc: llcs.of(c.LLC), pkg: packages.of(c.Package), numa: c.NUMANode,
			slow:   c.Class == v1alpha1.CoreEfficiency,
			usable: len(cpus) > 0 && c.CPUs.Intersection(in.Excluded).IsEmpty(),
			limit:  limit, quiet: min(limit, quietShare*siblings), reserve: newCoreReserve * siblings,
		}
		if !slices.Contains(n.sizes, len(cpus)) {
			n.sizes = append(n.sizes, len(cpus))
		}
		for _, nic := range in.Topology.NICs {
			if nic.NUMANode == c.NUMANode {
				n.cores[i].nearNIC, n.hasNIC = true, true
			}
		}
		for at, cpu := range cpus {
			if at == 0 {
				n.cores[i].first = cpu
			}
			coreOf[cpu] = i
		}
	}
	n.llcs, n.packages = len(llcs), len(packages)
	for _, cpu := range in.CPUs {
		if i, ok := coreOf[cpu.CPU]; ok {
			n.cores[i].busy += min(1, float64(cpu.BusyCores))
		}
	}
	n.prices, n.lack = newPrices(in.Costs, in.Topology.Clocks), model.NewLack(in.CPUs)
	return n
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
		if n.cores[i].first >= 0 && set.Contains(n.cores[i].first) {
			if n.cores[i].set.Equal(set) {
				return i
			}
			return -1
		}
	}
	return -1
}

// area is where threads run that are bound to some CPUs: the cores, and the share of the
// threads' time on each, which is the core's share of the CPUs.
type area struct {
	cpus   units.CPUSet
	cores  []int
	shares []float64
	// llcs is how many last-level caches the cores are in.
	llcs int
}

// newArea returns the area of those CPUs of cores that are in a set.
func (n *node) newArea(cores []int, set units.CPUSet) area {
	var a area
	total, seen := 0.0, make([]bool, n.llcs)
	for _, c := range cores {
		cpus := n.cores[c].set.Intersection(set)
		in := float64(cpus.Len())
		if in == 0 {
			continue
		}
		a.cpus, a.cores, a.shares = a.cpus.Union(cpus), append(a.cores, c), append(a.shares, in)
		total += in
		if llc := n.cores[c].llc; !seen[llc] {
			seen[llc] = true
			a.llcs++
		}
	}
	for i := range a.shares {
		a.shares[i] /= total
	}
	return a
}

// part is where the threads of a VM run that are not pinned to a core each.
type part struct {
	// area of vCPUs, IO threads and vhost workers.
	area
	// emulator is the area of the emulator thread: whole caches, inside the pool or not.
	emulator area
	// limit is the use above which the part is hot.
	limit float64
	slow  bool
}

// scope is what VMs with the same cpuset and pool may use.
type scope struct {
	allowed, within units.CPUSet
	// anywhere is where unbound threads run.
	anywhere part
	// whole are the cores entirely in the cpuset that take pins, and pinnable those of them
	// in the pool: fast ones, and slow ones.
	whole    []int
	pinnable [2][]int
	// mayPin says the same of pinnable by core.
	mayPin []bool
	// parts that all threads of a VM may be bound to.
	parts []*part
	// beside are the parts of the other threads of pinned VMs, by the caches of the pins.
	beside map[string]*part
}

func (n *node) newScope(allowed, within units.CPUSet) *scope {
	s := &scope{allowed: allowed, within: within, mayPin: make([]bool, len(n.cores)), beside: map[string]*part{}}
	every := make([]int, len(n.cores))
	for i := range n.cores {
		every[i] = i
		c := &n.cores[i]
		if !c.usable || !c.set.IsSubsetOf(allowed) {
			continue
		}
		s.whole = append(s.whole, i)
		if within.IsEmpty() || c.set.IsSubsetOf(within) {
			class := 0
			if c.slow {
				class = 1
			}
			s.pinnable[class], s.mayPin[i] = append(s.pinnable[class], i), true
		}
	}
	area := n.newArea(every, allowed)
	s.anywhere = part{area: area, emulator: area}
	n.divide(s)
	return s
}

// divide finds the parts: the pool, or else each last-level cache and each NUMA node that
// is not all there is. Each part has cores of one class.
func (n *node) divide(s *scope) {
	if !s.within.IsEmpty() {
		for _, cores := range s.pinnable {
			n.addPart(s, cores)
		}
		return
	}
	for _, domain := range []func(core) int{func(c core) int { return c.llc }, func(c core) int { return c.numa }} {
		all := numbers{}
		for _, c := range n.cores {
			all.of(domain(c))
		}
		groups := make([][]int, 2*len(all))
		for class, cores := range s.pinnable {
			for _, c := range cores {
				at := 2*all.of(domain(n.cores[c])) + class
				groups[at] = append(groups[at], c)
			}
		}
		for _, cores := range groups {
			if len(all) > 1 && len(cores) < len(s.pinnable[0])+len(s.pinnable[1]) {
				n.addPart(s, cores)
			}
		}
	}
}

func (n *node) addPart(s *scope, cores []int) {
	if len(cores) == 0 {
		return
	}
	p := n.newPart(s, cores)
	for _, known := range s.parts {
		if known.cpus.Equal(p.cpus) {
			return
		}
	}
	s.parts = append(s.parts, p)
}

func (n *node) newPart(s *scope, cores []int) *part {
	p := &part{area: n.newArea(cores, s.allowed), slow: n.cores[cores[0]].slow}
	near := make([]bool, n.llcs)
	for _, c := range cores {
		p.limit += n.cores[c].limit
		near[n.cores[c].llc] = true
	}
	var whole []int
	for _, c := range s.whole {
		if near[n.cores[c].llc] {
			whole = append(whole, c)
		}
	}
	p.emulator = n.newArea(whole, s.allowed)
	return p
}

// besidePins is the part of the other threads of a VM with pins: the pool's cores in the
// caches of its vCPUs.
func (n *node) besidePins(s *scope, pins []int) *part {
	near := make([]byte, n.llcs)
	for _, c := range pins {
		near[n.cores[c].llc] = 1
	}
	if known := s.beside[string(near)]; known != nil {
		return known
	}
	var cores []int
	for c := range n.cores {
		if s.mayPin[c] && near[n.cores[c].llc] > 0 {
			cores = append(cores, c)
		}
	}
	p := n.newPart(s, cores)
	s.beside[string(near)] = p
	return p
}

// unmanaged returns the use of each core by all but the VMs that are being placed: the
// system's own work, and VMs that no profile governs. Threads that are bound to one core ran
// there. Of others it is only known how long they ran: that was where the node was busy, as
// far as their mask reaches. CPUs and threads are not read at the same instant, so that what
// is left can fall below zero: it is cut there.
func (n *node) unmanaged(vms []VM) []float64 {
	left := make([]float64, len(n.cores))
	for i := range n.cores {
		left[i] = n.cores[i].busy
	}
	for _, bound := range []bool{true, false} {
		busy := append([]float64(nil), left...)
		var last units.CPUSet
		var reached []int
		total := 0.0
		for i := range vms {
			for _, t := range threadsOf(&vms[i]) {
				if !t.cpus.Equal(last) {
					last, reached, total = t.cpus, reached[:0], 0
					for c := range n.cores {
						if n.cores[c].meets(t.cpus) {
							reached, total = append(reached, c), total+busy[c]
						}
					}
				}
				if (len(reached) == 1) != bound {
					continue
				}
				for _, c := range reached {
					if bound {
						left[c] -= t.run
					} else if total > 0 {
						left[c] -= t.run * busy[c] / total
					}
				}
			}
		}
		for i := range left {
			left[i] = max(left[i], 0)
		}
	}
	return left
}

// meets reports whether the core has a CPU of the set.
func (c *core) meets(set units.CPUSet) bool {
	return c.first >= 0 && (set.Contains(c.first) || (c.cpus > 1 && !c.set.Intersection(set).IsEmpty()))
}

// OtherUse returns the use of each core of a topology by all but some VMs, as far as their
// rates and the CPUs of their threads tell.
func OtherUse(topology model.Topology, cpus []model.CPURates, vms []VM) []float64 {
	return newNode(Node{Topology: topology, CPUs: cpus}).unmanaged(vms)
}
