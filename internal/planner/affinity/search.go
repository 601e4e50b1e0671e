package affinity

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
)

// candidate is a binding that is tried.
type candidate struct {
	mode  mode
	part  int
	llc   int
	class int
}

// anyLLC is for vCPUs that may be in any cache.
const anyLLC = -1

// manyLLCs is the number of caches from which on single ones are not tried: that
// vCPUs far apart cost more brings them together too.
const manyLLCs = 4

// candidates returns what may be tried for a VM, in the order in which, of equals, they
// are preferred.
func (s *state) candidates(v *vm, into []candidate) []candidate {
	into = into[:0]
	if v.count == 0 || v.denied {
		return append(into, candidate{mode: s.last(v).mode})
	}
	if v.mayBe(pinned) {
		for class := range s.node.classes {
			if len(v.scope.byClass[class]) == 0 {
				continue
			}
			into = append(into, candidate{mode: pinned, llc: anyLLC, class: class})
			if v.count > 1 && s.node.llcs > 1 && s.node.llcs <= manyLLCs {
				for llc := range s.node.llcs {
					into = append(into, candidate{mode: pinned, llc: llc, class: class})
				}
			}
		}
	}
	if v.mayBe(separated) {
		for part := range v.scope.parts {
			into = append(into, candidate{mode: separated, part: part})
		}
	}
	if v.mayBe(floating) || len(into) == 0 {
		into = append(into, candidate{mode: floating})
	}
	return into
}

// search places VMs anew.
type search struct {
	*state
	random *rand.Rand
	// end is the work at which the search ends.
	end int
	// blindness is the share of candidates that are left out at random, so that
	// another try ends elsewhere.
	blindness float64
	// scratch
	candidates []candidate
	order      []int
	best, pins []int
}

func (q *search) skips() bool { return q.blindness > 0 && q.random.Float64() < q.blindness }

// insert binds a VM that is nowhere where it costs least, without breaking a limit.
func (q *search) insert(v *vm) {
	q.candidates = q.state.candidates(v, q.candidates)
	q.order = q.order[:0]
	for i := range v.count {
		q.order = append(q.order, v.first+i)
	}
	if q.blindness > 0 && q.random.IntN(2) == 0 {
		q.random.Shuffle(len(q.order), func(i, j int) { q.order[i], q.order[j] = q.order[j], q.order[i] })
	} else {
		slices.SortStableFunc(q.order, func(i, j int) int { return cmp.Compare(q.vcpus[j].demand, q.vcpus[i].demand) })
	}
	least, hot := math.Inf(1), math.MaxInt
	var best binding
	// The cache that vCPUs are in that could be in any: it need not be tried.
	inside := anyLLC
	for _, c := range q.candidates {
		if q.skips() {
			continue
		}
		b := binding{mode: c.mode, part: c.part}
		if c.mode == pinned {
			if c.llc != anyLLC && c.llc == inside {
				continue
			}
			if !q.pin(v, c) {
				continue
			}
			b.cores = q.pins
			if c.llc == anyLLC {
				inside = q.oneLLC(q.pins)
			}
		}
		q.bind(v, b)
		if q.isBetter(hot, least) && q.isAllowed(v) {
			least, hot, best = q.total, q.hot, b
			if c.mode == pinned {
				q.best = append(q.best[:0], q.pins...)
			}
		}
		q.unbind(v)
	}
	if best.mode == pinned {
		best.cores = slices.Clone(q.best)
	}
	if best.mode == unplaced {
		best = q.last(v)
	}
	q.bind(v, best)
}

// oneLLC returns the cache that all cores are in, or anyLLC.
func (s *state) oneLLC(cores []int) int {
	llc := s.node.cores[cores[0]].llc
	for _, core := range cores {
		if s.node.cores[core].llc != llc {
			return anyLLC
		}
	}
	return llc
}

// last is where a VM is put when nothing else is allowed.
func (s *state) last(v *vm) binding {
	if v.mayBe(floating) || len(v.scope.parts) == 0 {
		return binding{mode: floating}
	}
	return binding{mode: separated}
}

// isBetter tells whether less is broken, or else less to be paid, than before.
func (s *state) isBetter(hot int, total float64) bool {
	return s.hot < hot || (s.hot == hot && s.total < total-eps)
}

// isAllowed tells whether a VM may be bound as it is. One that is confined to a pool
// has to be somewhere.
func (s *state) isAllowed(v *vm) bool {
	if v.now.mode != separated || !v.scope.within.IsEmpty() {
		return true
	}
	more := 0.0
	if v.wary {
		more = float64(v.count) - v.vcpuDemand
	}
	return !s.isPartHot(v, more)
}

// isPartHot tells whether the part that a VM is separated to has more to do than it
// may, with some more: the kernel spreads load within it.
func (s *state) isPartHot(v *vm, more float64) bool {
	part, use := &v.scope.parts[v.now.part], more
	for _, core := range part.cores {
		use += s.cores[core].use
	}
	return use > part.limit+eps
}

// pin finds a core for each vCPU of a VM that is nowhere, one vCPU after the other,
// into pins. It returns false when one has none.
func (q *search) pin(v *vm, c candidate) bool {
	q.pins = slices.Grow(q.pins[:0], v.count)[:v.count]
	found := true
	placed := 0
	for _, i := range q.order {
		core, ok := q.cheapest(i, c)
		if !ok {
			found = false
			break
		}
		q.put(i, core)
		q.pins[i-v.first] = core
		placed++
	}
	for _, i := range q.order[:placed] {
		q.take(i)
	}
	return found
}

// cheapest returns the core on which a vCPU costs least, beside what its VM has there.
func (q *search) cheapest(i int, c candidate) (int, bool) {
	v := q.vms[q.vcpus[i].vm]
	best, least := -1, math.Inf(1)
	another := splitCache * q.node.prices.busy * v.vcpuDemand / q.node.prices.remains(v.start.mode)
	for _, core := range v.scope.byClass[c.class] {
		n := &q.node.cores[core]
		if c.llc != anyLLC && n.llc != c.llc {
			continue
		}
		price, ok := q.probe(i, core)
		if !ok || q.skips() {
			continue
		}
		if v.llcs > 0 && v.perLLC[n.llc] == 0 {
			price += another / float64(v.llcs*(v.llcs+1))
		}
		if price < least-eps {
			best, least = core, price
		}
	}
	return best, best >= 0
}
