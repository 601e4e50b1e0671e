package affinity

import (
	"cmp"
	"math"
	"slices"
)

// bindCurrent puts all VMs where they are now. Those without pins that may stay run
// anywhere.
func (s *state) bindCurrent() {
	for _, v := range s.vms {
		if slices.ContainsFunc(v.start.pins, func(core int) bool { return !s.mayShare(v, core) }) {
			v.free = true
		}
		if v.free {
			s.bind(v, floatingBinding(v))
			v.free = !v.fixed
			continue
		}
		s.bind(v, v.start)
	}
}

func floatingBinding(v *vm) binding { return binding{mode: floating, part: &v.scope.anywhere} }

// fallback is how a VM is bound when nothing else is allowed.
func fallback(v *vm) binding {
	if v.mayBe(floating) {
		return floatingBinding(v)
	}
	return binding{mode: separated, part: v.scope.parts[0]}
}

// releaseBroken takes the pins of VMs until no limit is broken: of those that use most of a
// core, or of a part, on which one is. then says what else becomes of the VM.
func (s *state) releaseBroken(then func(*vm)) {
	for v := s.onBroken(); v != nil; v = s.onBroken() {
		v.hot = true
		then(v)
		s.unbind(v)
		if v.fixed {
			s.bind(v, floatingBinding(v))
		} else {
			s.bind(v, fallback(v))
		}
	}
}

// onBroken returns a VM to be released from a core or part where a limit is broken, or nil.
func (s *state) onBroken() *vm {
	for core := range s.cores {
		if s.cores[core].hot {
			return s.heaviestOn(core)
		}
	}
	for _, v := range s.vms {
		if s.isPartHot(v) {
			return v
		}
	}
	return nil
}

// heaviestOn returns the VM that uses most of a core by its vCPUs, or one that should be
// alone and is not.
func (s *state) heaviestOn(core int) *vm {
	on := s.cores[core].on
	use := map[*vm]float64{}
	heaviest := on[0].vm
	for _, v := range on {
		if v.vm.alone && len(on) > int(s.node.cores[core].cpus) {
			return v.vm
		}
		if use[v.vm] += v.demand; use[v.vm] > use[heaviest] {
			heaviest = v.vm
		}
	}
	return heaviest
}

// isPartHot reports whether the part that a VM is separated to, outside of a pool, has more
// to do than it may.
func (s *state) isPartHot(v *vm) bool {
	if v.now.mode != separated || !v.scope.within.IsEmpty() {
		return false
	}
	use := 0.0
	if v.alone {
		use = float64(len(v.vcpus)) - v.vcpuDemand
	}
	for _, core := range v.now.part.cores {
		use += s.cores[core].use
	}
	return use > v.now.part.limit+eps
}

// placeFree places all VMs that are free: those that had pins first, then those whose owners
// wish it, and the busiest first. The first start is that all run anywhere: they keep all
// cores awake, so that to bind one alone lets none sleep. The next starts are that they are
// nowhere, and other orders of few VMs. The best result stays.
func (s *state) placeFree() {
	var free []*vm
	for _, v := range s.vms {
		if v.free {
			free = append(free, v)
		}
	}
	rank := func(v *vm) int {
		switch {
		case v.start.mode != unplaced:
			return 0
		case len(v.vcpus) == 0 || len(v.scope.pinnable[0])+len(v.scope.pinnable[1]) == 0:
			return 1
		case v.isUnmet(floating):
			return 2
		default:
			return 3
		}
	}
	slices.SortStableFunc(free, func(x, y *vm) int {
		return cmp.Or(cmp.Compare(rank(x), rank(y)), cmp.Compare(y.busiest, x.busiest))
	})
	for _, v := range free {
		s.unbind(v)
		s.bind(v, fallback(v))
	}
	s.fill(free)
	starts := 0
	if len(free) <= fewVMs {
		starts = 2 * len(free)
	} else if len(free) <= manyVMs {
		starts = 1
	}
	for start := range starts {
		was := s.snapshot(free)
		for _, v := range free {
			s.unbind(v)
		}
		if start == len(free) {
			slices.Reverse(free)
		}
		s.fill(free)
		if !s.isBetter(&was) {
			s.restore(&was)
		}
		free = append(free[1:], free[0])
	}
}

// snapshot is how some VMs are bound, and what that comes to.
type snapshot struct {
	total    float64
	broken   int
	vms      []*vm
	bindings []binding
}

func (s *state) snapshot(vms []*vm) snapshot {
	was := snapshot{s.total, s.broken(), slices.Clone(vms), make([]binding, len(vms))}
	for i, v := range vms {
		was.bindings[i] = v.now
	}
	return was
}

// restore binds VMs as they were.
func (s *state) restore(was *snapshot) {
	for _, v := range was.vms {
		s.unbind(v)
	}
	for i, v := range was.vms {
		s.bind(v, was.bindings[i])
	}
}

// isBetter reports whether less is broken than it was, or else it costs less.
func (s *state) isBetter(was *snapshot) bool {
	broken := s.broken()
	return broken < was.broken || (broken == was.broken && s.total < was.total-eps)
}

// broken counts the limits that are.
func (s *state) broken() int {
	count := s.hot
	for _, v := range s.vms {
		if s.isPartHot(v) {
			count++
		}
	}
	return count
}

const (
	// fewVMs is up to how many VMs each two are placed together, and several orders tried,
	// and manyVMs from how many on there is one start.
	fewVMs, manyVMs = 8, 64
)

// fill places VMs one after the other, then each once more beside all others, and few VMs
// each two together.
func (s *state) fill(free []*vm) {
	for _, v := range free {
		s.unbind(v)
		s.insert(v)
	}
	for _, v := range free {
		s.try(v)
	}
	if len(free) > fewVMs {
		return
	}
	for i, x := range free {
		for _, y := range free[i+1:] {
			s.try(x, y)
			s.try(y, x)
		}
	}
}

// try places VMs anew, one after the other, if that is better.
func (s *state) try(vms ...*vm) {
	was := s.snapshot(vms)
	for _, v := range vms {
		s.unbind(v)
	}
	for _, v := range vms {
		s.insert(v)
	}
	if !s.isBetter(&was) {
		s.restore(&was)
	}
}

// insert binds a VM that is nowhere where it costs least, without breaking a limit.
func (s *state) insert(v *vm) {
	least, hot, best := math.Inf(1), math.MaxInt, fallback(v)
	for _, b := range s.options(v) {
		s.bind(v, b)
		if !s.isPartHot(v) && (s.hot < hot || (s.hot == hot && s.total < least-eps)) {
			least, hot, best = s.total, s.hot, b
		}
		s.unbind(v)
	}
	s.bind(v, best)
}

// manyLLCs is the number of caches from which on single ones are not tried: that vCPUs far
// apart cost more brings them together too.
const manyLLCs = 4

// options are the bindings that are tried for a VM, in the order in which, of equals, they
// are preferred. Pins are those that cost least in any cache, and in each.
func (s *state) options(v *vm) []binding {
	if len(v.vcpus) == 0 || v.denied {
		return []binding{fallback(v)}
	}
	var options []binding
	const anyLLC = -1
	for class := range v.scope.pinnable {
		if !v.mayBe(pinned) {
			break
		}
		for llc := anyLLC; llc < s.node.llcs; llc++ {
			if llc != anyLLC && (s.node.llcs < 2 || s.node.llcs > manyLLCs) {
				break
			}
			cores := v.scope.pinnable[class]
			if llc != anyLLC {
				cores = slices.DeleteFunc(slices.Clone(cores), func(core int) bool { return s.node.cores[core].llc != llc })
			}
			if pins := s.cheapest(v, cores); pins != nil {
				options = append(options, binding{mode: pinned, part: s.node.besidePins(v.scope, pins), pins: pins})
			}
		}
	}
	if v.mayBe(separated) {
		for _, p := range v.scope.parts {
			options = append(options, binding{mode: separated, part: p})
		}
	}
	if v.mayBe(floating) {
		options = append(options, floatingBinding(v))
	}
	return options
}

// cheapest finds the cores on which the vCPUs of a VM that is nowhere cost least, one vCPU
// after the other, the busiest first. It returns nil when one has none.
func (s *state) cheapest(v *vm, cores []int) []int {
	order := make([]*vcpu, len(v.vcpus))
	for i := range order {
		order[i] = &v.vcpus[i]
	}
	slices.SortStableFunc(order, func(x, y *vcpu) int { return cmp.Compare(y.demand, x.demand) })
	if len(cores) == 0 {
		return nil
	}
	// Its other threads are there as well.
	v.now = binding{mode: pinned, part: s.node.besidePins(v.scope, cores)}
	s.spreadThreads(v, 1)
	pins := make([]int, 0, len(order)+1)
	defer func() {
		for _, c := range order[:len(pins)] {
			s.remove(c)
		}
		s.spreadThreads(v, -1)
		v.now = binding{}
	}()
	for _, c := range order {
		best, least := -1, math.Inf(1)
		llcs := s.countLLCs(pins)
		for _, core := range cores {
			if !s.mayShare(v, core) {
				continue
			}
			price, hot := s.probe(c, core)
			if hot {
				continue
			}
			price += (s.preference(v, core) + v.perCPU*remoteMemory*v.memoryAway[core]) * c.demand
			if c.start >= 0 && c.start != core {
				price += v.threshold / float64(len(v.vcpus))
			}
			if more := s.countLLCs(append(pins, core)); more > llcs && llcs > 0 {
				price += splitCache * v.perCPU * v.vcpuDemand / float64(llcs*more)
			}
			if price < least-eps {
				best, least = core, price
			}
		}
		if best < 0 {
			return nil
		}
		s.put(c, best)
		pins = append(pins, best)
	}
	found := make([]int, len(v.vcpus))
	for i := range v.vcpus {
		found[i] = v.vcpus[i].at
	}
	return found
}

// probe returns what a vCPU would add to the price of a core, and whether it breaks a limit.
func (s *state) probe(v *vcpu, core int) (price float64, hot bool) {
	c, n := &s.cores[core], &s.node.cores[core]
	pins, use := c.pins.with(v, core, n), c.use+v.demand
	price = s.node.prices.core(use, c.busy+v.busy, n.cpus, &pins) - c.price
	return price + s.wake(n, awakeness(use)-c.awake), pins.breaksLimit(use, n)
}

// movesARound is how many VMs lose their pins in a round for others that cost less: what a
// prediction is wrong about does no more harm, and shows.
const movesARound = 4

// improve binds VMs that have pins otherwise, where that saves enough. On settled nodes it
// does so only where cores are crowded.
func (s *state) improve(settled bool) {
	reluctance := 0.0
	if settled {
		reluctance = s.node.prices.crowd / 2
	}
	left := movesARound
	for _, v := range s.vms {
		if v.free || v.fixed || v.denied || left == 0 {
			continue
		}
		total, hot := s.total, s.hot
		was := v.now
		s.unbind(v)
		without := s.total
		s.insert(v)
		// A little use of a core by others decides how awake it is, and is known least of
		// all: what a change adds there counts twice.
		added := s.total - v.price - without
		if s.hot > hot || s.total > total-v.threshold-max(0, added)-reluctance {
			s.unbind(v)
			s.bind(v, was)
			continue
		}
		left--
	}
}
