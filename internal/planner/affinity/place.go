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
// cores awake, so that to bind one alone lets none sleep. Then they start from nowhere.
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
	slices.SortStableFunc(free, func(x, y *vm) int { return cmp.Compare(y.busiest, x.busiest) })
	ranked, quietest := slices.Clone(free), slices.Clone(free)
	slices.SortStableFunc(ranked, func(x, y *vm) int { return cmp.Compare(rank(x), rank(y)) })
	slices.Reverse(quietest)
	for _, v := range ranked {
		s.unbind(v)
		s.bind(v, fallback(v))
	}
	s.tryEach(ranked)
	s.tryEach(ranked)
	s.startAnew([][]*vm{ranked, free, quietest})
}

// mostWork bounds how often free VMs are placed anew: so many VMs times cores, which takes
// less time than the first start does on a large node.
const mostWork = 4096

// startAnew places the free VMs anew from nowhere, in each order, then with one VM bound before
// all others in each way that it may be. The best result stays.
func (s *state) startAnew(orders [][]*vm) {
	left := mostWork / max(1, len(orders[0])*len(s.cores))
	s.thorough = left > 0
	start := func(order []*vm, first *vm, b binding) {
		if left--; left >= 0 {
			s.restart(order, first, b)
		}
	}
	for _, order := range orders {
		start(order, nil, binding{})
	}
	for _, order := range orders {
		for _, first := range order {
			if left <= 0 {
				return
			}
			was := s.release(order)
			options := s.options(first)
			s.restore(&was)
			for _, b := range options {
				start(order, first, b)
			}
		}
	}
}

// restart places VMs anew, the first of them in a given way and the others one after the other,
// if that is better.
func (s *state) restart(order []*vm, first *vm, b binding) {
	was := s.release(order)
	if first != nil {
		s.bind(first, b)
	}
	for _, v := range order {
		if v != first {
			s.insert(v)
		}
	}
	s.tryEach(order)
	if !s.isBetter(&was) {
		s.restore(&was)
	}
}

// tryEach places each VM anew beside all others, if that is better.
func (s *state) tryEach(vms []*vm) {
	for _, v := range vms {
		was := s.release([]*vm{v})
		s.insert(v)
		if !s.isBetter(&was) {
			s.restore(&was)
		}
	}
}

// snapshot is how some VMs are bound, and what that comes to.
type snapshot struct {
	total    float64
	broken   int
	vms      []*vm
	bindings []binding
}

// release takes VMs off all cores, and returns how they were bound.
func (s *state) release(vms []*vm) snapshot {
	was := snapshot{s.total, s.broken(), vms, make([]binding, len(vms))}
	for i, v := range vms {
		was.bindings[i] = v.now
		s.unbind(v)
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
// are preferred. Pins are those that cost least in each cache, and in several.
func (s *state) options(v *vm) []binding {
	if len(v.vcpus) == 0 || v.denied {
		return []binding{fallback(v)}
	}
	var options []binding
	for _, cores := range v.scope.pinnable {
		if !v.mayBe(pinned) {
			break
		}
		try := func(cores []int, apart bool) {
			if pins := s.cheapest(v, cores, apart); pins != nil {
				options = append(options, binding{mode: pinned, part: s.node.besidePins(v.scope, pins), pins: pins})
			}
		}
		if s.node.llcs < 2 || s.node.llcs > manyLLCs {
			try(cores, false)
			continue
		}
		for llc := range s.node.llcs {
			try(slices.DeleteFunc(slices.Clone(cores), func(core int) bool { return s.node.cores[core].llc != llc }), false)
		}
		if len(v.vcpus) > 1 {
			try(cores, true)
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
// after the other, the busiest first, and apart in as many caches as there are. It returns nil
// when one has none.
func (s *state) cheapest(v *vm, cores []int, apart bool) []int {
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
	defer func() {
		for _, c := range order {
			if c.at >= 0 {
				s.remove(c)
			}
		}
		s.spreadThreads(v, -1)
		v.now = binding{}
	}()
	passes := 1
	if s.thorough {
		passes = 2
	}
	for range passes {
		for _, c := range order {
			if c.at >= 0 {
				s.remove(c)
			}
			core := s.cheapestCore(c, cores, apart)
			if core < 0 {
				return nil
			}
			s.put(c, core)
		}
	}
	found := make([]int, len(v.vcpus))
	for i := range v.vcpus {
		found[i] = v.vcpus[i].at
	}
	return found
}

// cheapestCore finds the core on which a vCPU costs least beside those of its VM that have
// one, or -1.
func (s *state) cheapestCore(c *vcpu, cores []int, apart bool) int {
	v, best, least := c.vm, -1, math.Inf(1)
	pins := make([]int, 0, len(v.vcpus)+1)
	for i := range v.vcpus {
		if at := v.vcpus[i].at; at >= 0 {
			pins = append(pins, at)
		}
	}
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
			if apart {
				price -= s.node.prices.wish
			}
		}
		if price < least-eps {
			best, least = core, price
		}
	}
	return best
}

// probe returns what a vCPU would add to the price of a core, and whether it breaks a limit.
func (s *state) probe(v *vcpu, core int) (price float64, hot bool) {
	c, n := &s.cores[core], &s.node.cores[core]
	pins, use := c.pins.with(v, core, n), c.use+v.demand
	late := c.late
	if v.vm.yields {
		late += v.demand
	}
	price = s.node.prices.core(use, c.busy+v.busy, n.cpus, &pins) - c.price
	return price + s.wake(n, awakeness(use)-c.awake), pins.breaksLimit(use, late, n)
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
