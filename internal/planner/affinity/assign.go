package affinity

import (
	"cmp"
	"math"
	"slices"

	"github.com/joulevirt/joulevirt/internal/units"
)

const (
	// minRelief is by how much less other work there must be on another core
	// for a vCPU to move. It is above the noise of 15 s means and below what
	// two busy vCPUs do to each other.
	minRelief units.Cores = 0.1
	// sameLoad is the difference that placement ignores, so that a shared
	// cache can decide.
	sameLoad units.Cores = 0.05
	// maxRounds ends the improvement when rounding errors would keep it going;
	// it takes a handful of rounds.
	maxRounds = 100
)

// assignment is vCPUs on cores. Better is: fewer pairs of vCPUs of one VM on
// the same core, and then a smaller sum of squares of the cores' loads, which
// prefers even loads over uneven ones and never gains by stacking.
type assignment struct {
	cores *cores
	// load of each core, unmanaged load included.
	load []units.Cores
	on   [][]*vcpu
	at   map[*vcpu]int
	// ofVM counts the vCPUs of a VM on a core, at vm*len(load)+core.
	ofVM []int
	// order of the vCPUs: maps have none.
	order []*vcpu
}

func newAssignment(c *cores, unmanaged []units.Cores, vms int) *assignment {
	n := len(unmanaged)
	return &assignment{cores: c, load: unmanaged, on: make([][]*vcpu, n), at: map[*vcpu]int{}, ofVM: make([]int, vms*n)}
}

func (a *assignment) count(vm, core int) int { return a.ofVM[vm*len(a.load)+core] }

func (a *assignment) put(v *vcpu, core int) {
	if _, known := a.at[v]; !known {
		a.order = append(a.order, v)
	}
	a.at[v] = core
	a.load[core] += v.load
	a.on[core] = append(a.on[core], v)
	a.ofVM[v.vm*len(a.load)+core]++
}

func (a *assignment) move(v *vcpu, to int) {
	from := a.at[v]
	a.load[from] -= v.load
	a.on[from] = slices.DeleteFunc(a.on[from], func(o *vcpu) bool { return o == v })
	a.ofVM[v.vm*len(a.load)+from]--
	a.put(v, to)
}

// placeLongestFirst puts each vCPU on the core that suits it best, the busiest
// vCPU first.
func (a *assignment) placeLongestFirst(free []*vcpu) {
	free = slices.Clone(free)
	slices.SortStableFunc(free, func(x, y *vcpu) int { return cmp.Compare(y.load, x.load) })
	for _, v := range free {
		best := slices.MinFunc(v.allowed, func(x, y int) int {
			return cmp.Or(
				cmp.Compare(a.count(v.vm, x), a.count(v.vm, y)),
				cmp.Compare(a.over(v, x), a.over(v, y)),
				cmp.Compare(math.Floor(float64(a.load[x]/sameLoad)), math.Floor(float64(a.load[y]/sameLoad))),
				cmp.Compare(a.inCache(v, y), a.inCache(v, x)),
				cmp.Compare(len(a.on[x]), len(a.on[y])),
				cmp.Compare(x, y),
			)
		})
		a.put(v, best)
	}
}

// over returns by how much the vCPU would make a core hot, or 0.
func (a *assignment) over(v *vcpu, core int) units.Cores {
	return max(0, a.cores.excess(core, a.load[core]+v.load, len(a.on[core])+1, v.load))
}

// inCache counts the vCPUs of v's VM that share the core's last-level cache.
func (a *assignment) inCache(v *vcpu, core int) int {
	n := 0
	for other, llc := range a.cores.llc {
		if llc == a.cores.llc[core] {
			n += a.count(v.vm, other)
		}
	}
	return n
}

// improve moves vCPUs until no single move, and no move that makes room by one
// other move, is worth it.
func (a *assignment) improve() {
	for range maxRounds {
		changed := false
		for _, v := range slices.Clone(a.order) {
			changed = a.improveOne(v) || changed
		}
		if !changed {
			return
		}
	}
}

func (a *assignment) improveOne(v *vcpu) bool {
	from := a.at[v]
	if a.load[from]-v.load <= minRelief && a.count(v.vm, from) == 1 {
		return false
	}
	best := step{}
	for _, to := range v.allowed {
		if to == from {
			continue
		}
		best = better(best, a.tryMove(v, to))
		for _, other := range a.on[to] {
			best = better(best, a.tryPair(v, other, from))
			for _, third := range other.allowed {
				// Where v could go itself, the single move was tried.
				if third != to && third != from && !slices.Contains(v.allowed, third) {
					best = better(best, a.tryPair(v, other, third))
				}
			}
		}
	}
	if best.v == nil {
		return false
	}
	a.move(best.v, best.to)
	if best.other != nil {
		a.move(best.other, best.otherTo)
	}
	return true
}

// step is one or two moves and what they gain.
type step struct {
	v          *vcpu
	to         int
	other      *vcpu
	otherTo    int
	pairs      int
	squares    units.Cores
	worthwhile bool
}

func better(x, y step) step {
	if !y.worthwhile {
		return x
	}
	if x.v == nil || y.pairs > x.pairs || (y.pairs == x.pairs && y.squares > x.squares) {
		return y
	}
	return x
}

// tryMove judges moving v. With o the other load on its core and t the load on
// the target, half the sum of squares falls by load*(o-t).
func (a *assignment) tryMove(v *vcpu, to int) step {
	from := a.at[v]
	s := step{v: v, to: to}
	s.pairs = a.count(v.vm, from) - 1 - a.count(v.vm, to)
	relief := a.load[from] - v.load - a.load[to]
	s.squares = v.load * relief
	cool := a.over(v, to) <= 0
	s.worthwhile = cool && (s.pairs > 0 || (s.pairs == 0 && relief > minRelief))
	return s
}

// tryPair judges moving v to the core of other, and other to a third core,
// which may be v's.
func (a *assignment) tryPair(v, other *vcpu, third int) step {
	from, to := a.at[v], a.at[other]
	s := step{v: v, to: to, other: other, otherTo: third}
	if !slices.Contains(other.allowed, third) {
		return s
	}
	s.pairs = a.pairsGained(v, other, third)
	fromLoad, toLoad, thirdLoad := a.load[from]-v.load, a.load[to]+v.load-other.load, a.load[third]+other.load
	s.squares = square(a.load[from]) + square(a.load[to]) - square(toLoad)
	if third == from {
		thirdLoad -= v.load
		s.squares -= square(thirdLoad)
	} else {
		s.squares += square(a.load[third]) - square(fromLoad) - square(thirdLoad)
	}
	s.squares /= 2
	onThird := len(a.on[third]) + 1
	if third == from {
		onThird--
	}
	cool := a.cores.excess(to, toLoad, len(a.on[to]), v.load) <= 0 &&
		a.cores.excess(third, thirdLoad, onThird, other.load) <= 0
	s.worthwhile = cool && (s.pairs > 0 || (s.pairs == 0 && s.squares > minRelief*(v.load+other.load)))
	return s
}

func square(x units.Cores) units.Cores { return x * x }

func (a *assignment) pairsGained(v, other *vcpu, third int) int {
	from, to := a.at[v], a.at[other]
	if v.vm == other.vm && third == from {
		return 0
	}
	gained := a.count(v.vm, from) - 1 - a.count(v.vm, to)
	gained += a.count(other.vm, to) - 1 - a.count(other.vm, third)
	if v.vm == other.vm {
		// v meets one vCPU less than counted: other leaves as v comes.
		gained++
	}
	return gained
}

// hottest returns the core with vCPUs that is most above its limit, or -1. The
// margin of a core is what must be left free below its limits.
func (a *assignment) hottest(margin []units.Cores) int {
	hot, most := -1, units.Cores(0)
	for core := range a.load {
		if excess := a.excess(core) + margin[core]; len(a.on[core]) > 0 && excess > most {
			hot, most = core, excess
		}
	}
	return hot
}

// excess is that of the core as it is now.
func (a *assignment) excess(core int) units.Cores {
	var lone units.Cores
	if len(a.on[core]) == 1 {
		lone = a.on[core][0].load
	}
	return a.cores.excess(core, a.load[core], len(a.on[core]), lone)
}
