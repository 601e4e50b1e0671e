package affinity

import (
	"slices"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// eps is what rounding may do to sums.
const eps = 1e-9

// state is where all threads are, and what that costs. All sums are kept as threads
// come and go, so that to try something costs little.
type state struct {
	node  *node
	vms   []*vm
	vcpus []vcpu
	cores []coreState
	lack  *model.Lack
	// unmanaged is the use of each core by all that is not placed.
	unmanaged []float64
	// llcAwake and pkgAwake are sums over their awake cores.
	llcAwake, pkgAwake []float64
	// total is the price of everything, and hot the number of cores with pins on
	// which a limit is broken.
	total float64
	hot   int
	// work counts steps: it ends searches at the same point on any machine.
	work int
	// reluctance is what changes by choice must save beyond what else they must.
	reluctance float64
	// anySiblings is true while it is tried what other sharing would allow.
	anySiblings bool
}

// coreState is what runs on one core.
type coreState struct {
	// use of the core, the vCPUs on it that want it for themselves, the press of all on
	// it, by weights, and the part of the use that binding anew is to spare.
	use, busy, press, spared float64
	// on are the vCPUs that are pinned to the core, fresh how many of them were not
	// before, bears the least of what presses they bear, endures of the use, and most the
	// demand of the busiest.
	on          []int
	fresh       int
	bears, most float64
	endures     endures
	// waited is how many of the vCPUs are of VMs that share no CPU.
	waited int
	// price and awake as they count now.
	price, awake float64
	hot          bool
}

func newState(n *node, cpus []model.CPURates, vms []VM) *state {
	return newStateBeside(n, cpus, vms, n.unmanaged(vms))
}

// newStateBeside returns a state in which something else uses each core.
func newStateBeside(n *node, cpus []model.CPURates, vms []VM, unmanaged []float64) *state {
	s := &state{
		node: n, cores: make([]coreState, len(n.cores)), lack: model.NewLack(cpus), unmanaged: unmanaged,
		llcAwake: make([]float64, n.llcs), pkgAwake: make([]float64, n.packages),
	}
	var scopes []*scope
	namespaces := map[string]int{}
	for i, in := range vms {
		at := slices.IndexFunc(scopes, func(s *scope) bool {
			return s.allowed.Equal(in.Rates.AllowedCPUs) && s.within.Equal(in.Within)
		})
		if at < 0 {
			at = len(scopes)
			scopes = append(scopes, n.newScope(in.Rates.AllowedCPUs, in.Within))
		}
		v := s.newVM(i, in, scopes[at])
		number, known := namespaces[in.Namespace]
		if !known {
			number = len(namespaces)
			namespaces[in.Namespace] = number
		}
		v.namespace = number
		s.vms = append(s.vms, v)
	}
	for i := range s.cores {
		s.add(i, s.unmanaged[i], busyness(s.unmanaged[i]), vCPUWeight*s.unmanaged[i])
	}
	for _, v := range s.vms {
		// Other threads are never bound: they run anywhere whatever becomes of the VM.
		s.spread(v.scope.anywhere, v.other.demand, 0, v.other.press)
	}
	return s
}

// add changes what runs on a core.
func (s *state) add(core int, use, busy, press float64) {
	c := &s.cores[core]
	c.use += use
	c.busy += busy
	c.press += press
	s.refresh(core)
}

// refresh counts a core again.
func (s *state) refresh(core int) {
	s.work++
	c, n := &s.cores[core], &s.node.cores[core]
	price := s.node.prices.core(c.use, c.busy, c.most, n.cpus, len(c.on) > 0 && c.fresh == 0)
	awake := awakeness(c.use)
	s.total += price - c.price
	c.price = price
	if awake != c.awake {
		s.total += s.wake(n, awake-c.awake)
		s.llcAwake[n.llc] += awake - c.awake
		s.pkgAwake[n.pkg] += awake - c.awake
		c.awake = awake
	}
	if hot := len(c.on) > 0 && s.isHot(core); hot != c.hot {
		c.hot = hot
		if hot {
			s.hot++
		} else {
			s.hot--
		}
	}
}

func (s *state) refreshAll() {
	for i := range s.cores {
		s.refresh(i)
	}
}

// wake returns what it costs that a core is more awake by a part, with its cache and
// package.
func (s *state) wake(n *core, by float64) float64 {
	llc, pkg := s.llcAwake[n.llc], s.pkgAwake[n.pkg]
	return s.node.prices.awake * (by + awakeCache*(min(1, llc+by)-min(1, llc)) + awakePackage*(min(1, pkg+by)-min(1, pkg)))
}

// isHot tells whether a limit is broken on a core that has pins.
func (s *state) isHot(core int) bool {
	c := &s.cores[core]
	lone := 0.0
	if len(c.on) == 1 {
		lone = s.vcpus[c.on[0]].demand
	}
	return s.breaks(core, load{
		use: c.use, spared: c.spared, press: c.press, bears: c.bears, endures: c.endures, lone: lone, vcpus: len(c.on), fresh: c.fresh > 0, alone: c.waited > 0,
	})
}

// load is what limits are held against.
type load struct {
	use, spared, press, bears, lone float64
	endures                         endures
	vcpus                           int
	fresh                           bool
	// alone loads have no more vCPUs than CPUs.
	alone bool
}

// breaks tells whether a load of a core breaks a limit. A core that a single vCPU has
// to itself is judged by all else that runs there, which takes little from it whatever
// it weighs.
func (s *state) breaks(core int, l load) bool {
	n := &s.node.cores[core]
	if l.alone && l.vcpus > int(n.cpus) {
		return true
	}
	reserve, waits := 0.0, l.use > l.endures.kept+eps
	if l.fresh {
		reserve, waits = n.reserve, waits || l.use-l.spared > l.endures.fresh+eps
	}
	if l.vcpus == 1 && l.use-l.lone <= n.quiet-reserve+eps {
		return false
	}
	return l.use > n.limit-reserve+eps || waits || l.press > l.bears*(1+eps)+eps || l.vcpus > maxVCPUsPerCPU*int(n.cpus)
}

// probe returns what it would cost to pin a vCPU to a core, and false when it may not.
func (s *state) probe(i, core int) (float64, bool) {
	s.work++
	v, c, n := &s.vcpus[i], &s.cores[core], &s.node.cores[core]
	owner := s.vms[v.vm]
	if !s.mayShare(owner, core) {
		return 0, false
	}
	l := load{use: c.use + v.demand, spared: c.spared + owner.spares(pinned)*v.demand, press: c.press + v.press, lone: v.demand, vcpus: len(c.on) + 1, fresh: c.fresh > 0 || core != v.start}
	l.alone = c.waited > 0 || owner.waited
	l.bears, l.endures = v.bears(owner.perDemand, n.cpus), v.endures[n.size]
	if len(c.on) > 0 {
		l.bears, l.endures = min(l.bears, c.bears), l.endures.least(c.endures)
	}
	if s.breaks(core, l) || (owner.wary && core != v.start && s.breaks(core, s.allBusy(i, core, l))) {
		return 0, false
	}
	price := s.node.prices.core(l.use, c.busy+v.busy, max(c.most, v.demand), n.cpus, !l.fresh) - c.price
	if by := awakeness(l.use) - c.awake; by > 0 {
		price += s.wake(n, by)
	}
	return price + s.away(i, core), true
}

// allBusy returns what the load of a core would be were all vCPUs busy that a VM has
// there, with one that is to come.
func (s *state) allBusy(i, core int, l load) load {
	l.use += 1 - s.vcpus[i].demand
	l.lone = 1
	for _, other := range s.cores[core].on {
		if s.vcpus[other].vm == s.vcpus[i].vm {
			l.use += 1 - s.vcpus[other].demand
		}
	}
	// By weight it would get less while it is idle, and more when it is not.
	l.press = 0
	// It is not known what is spared of it.
	l.spared = s.cores[core].spared
	most := 1 + s.node.besideBusy[s.node.cores[core].size]
	l.endures = endures{most, most}
	return l
}

// away is what a vCPU costs on a core beyond what it costs on the best.
func (s *state) away(i, core int) float64 {
	v, n := &s.vcpus[i], &s.node.cores[core]
	price := v.away[n.numa*s.node.classes+n.class]
	if v.start >= 0 && v.start != core {
		price += s.vms[v.vm].threshold / float64(s.vms[v.vm].count)
	}
	return price
}

// mayShare tells whether siblings of a core may have vCPUs of a VM beside those there.
func (s *state) mayShare(v *vm, core int) bool {
	c := &s.cores[core]
	if len(c.on) == 0 || s.node.sharing == model.ShareAny || s.anySiblings || s.node.cores[core].cpus < 2 {
		return true
	}
	// Those there may share with each other: what is so of one is so of all.
	return s.node.shareable(v, s.vms[s.vcpus[c.on[0]].vm])
}

// put pins a vCPU to a core. Its VM's other threads stay where they are.
func (s *state) put(i, core int) {
	v, c := &s.vcpus[i], &s.cores[core]
	owner := s.vms[v.vm]
	bears := v.bears(owner.perDemand, s.node.cores[core].cpus)
	if len(c.on) == 0 || bears < c.bears {
		c.bears = bears
	}
	if mine := v.endures[s.node.cores[core].size]; len(c.on) == 0 {
		c.endures = mine
	} else {
		c.endures = c.endures.least(mine)
	}
	c.on, c.most = append(c.on, i), max(c.most, v.demand)
	if core != v.start {
		c.fresh++
	} else {
		owner.atStart++
	}
	if owner.waited {
		c.waited++
	}
	v.at = core
	owner.enter(s.node.cores[core].llc)
	c.spared += owner.spares(pinned) * v.demand
	s.add(core, v.demand, v.busy, v.press)
}

// take undoes put.
func (s *state) take(i int) {
	v := &s.vcpus[i]
	core := v.at
	c, owner := &s.cores[core], s.vms[v.vm]
	at := slices.Index(c.on, i)
	c.on = slices.Delete(c.on, at, at+1)
	c.bears, c.most = 0, 0
	for k, other := range c.on {
		o := &s.vcpus[other]
		c.most = max(c.most, o.demand)
		if bears := o.bears(s.vms[o.vm].perDemand, s.node.cores[core].cpus); k == 0 || bears < c.bears {
			c.bears = bears
		}
		if theirs := o.endures[s.node.cores[core].size]; k == 0 {
			c.endures = theirs
		} else {
			c.endures = c.endures.least(theirs)
		}
	}
	if core != v.start {
		c.fresh--
	} else {
		owner.atStart--
	}
	if owner.waited {
		c.waited--
	}
	v.at = -1
	owner.leave(s.node.cores[core].llc)
	c.spared -= owner.spares(pinned) * v.demand
	s.add(core, -v.demand, -v.busy, -v.press)
}

func (v *vm) enter(llc int) {
	if v.perLLC[llc]++; v.perLLC[llc] == 1 {
		v.llcs++
	}
}

func (v *vm) leave(llc int) {
	if v.perLLC[llc]--; v.perLLC[llc] == 0 {
		v.llcs--
	}
}

// watts predicts the dynamic power of the node: what the placement is weighed by
// without what are no watts.
func (s *state) watts() units.Watts {
	p := &s.node.prices
	sum := 0.0
	for i := range s.cores {
		sum += p.busy * (s.unmanaged[i] + p.clocks.extra(s.cores[i].use, s.node.cores[i].cpus))
		sum += p.awake * s.cores[i].awake
	}
	for i := range s.pkgAwake {
		sum += p.awake * awakePackage * min(1, max(0, s.pkgAwake[i]))
	}
	for i := range s.llcAwake {
		sum += p.awake * awakeCache * min(1, max(0, s.llcAwake[i]))
	}
	for _, v := range s.vms {
		sum += s.wattsOf(v)
	}
	return units.Watts(sum)
}
