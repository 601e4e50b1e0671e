package affinity

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
)

// bindCurrent puts all VMs where they are now. Those without pins that may stay run
// anywhere.
func (s *state) bindCurrent() {
	for _, v := range s.vms {
		if v.start.mode == pinned && !s.mayShareAll(v) {
			v.free = true
		}
		if v.free {
			s.bind(v, binding{mode: floating})
			v.free = !v.stays
			continue
		}
		s.bind(v, v.start)
	}
}

// mayShareAll tells whether siblings may be shared on all cores that a VM is pinned to.
func (s *state) mayShareAll(v *vm) bool {
	for _, core := range v.start.cores {
		if !s.mayShare(v, core) {
			return false
		}
	}
	return true
}

// mend moves single vCPUs away from cores on which a limit is broken, and takes the
// pins of those VMs that this does not help: they are placed anew.
func (s *state) mend() {
	for core := range s.cores {
		if s.cores[core].hot {
			s.relieveOfIO(core)
		}
		for s.cores[core].hot {
			if !s.relieve(core) {
				s.free(s.heaviestOn(core))
			}
		}
	}
	for v := s.hotPart(); v != nil; v = s.hotPart() {
		s.free(v)
	}
}

// free takes a VM's pins.
func (s *state) free(v *vm) {
	s.unbind(v)
	v.free, v.hot = !v.stays, true
	s.bind(v, binding{mode: floating})
}

// relieveOfIO takes IO threads and vhost workers elsewhere that make a core hot.
func (s *state) relieveOfIO(core int) {
	for _, v := range s.vms {
		if v.stays || !v.keepsIO() || v.now.mode != pinned || !v.currentIO.Contains(s.node.cores[core].first) {
			continue
		}
		hot := s.hot
		if s.setKeepsIO(v, false); s.hot < hot {
			return
		}
		s.setKeepsIO(v, true)
	}
}

// relieve moves one vCPU from a core, the busiest that can, and reports whether less
// is broken then.
func (s *state) relieve(core int) bool {
	on := slices.Clone(s.cores[core].on)
	slices.SortStableFunc(on, func(i, j int) int { return cmp.Compare(s.vcpus[j].demand, s.vcpus[i].demand) })
	hot := s.hot
	for _, i := range on {
		to, ok := s.target(i)
		if !ok {
			continue
		}
		s.move(i, to)
		if s.hot < hot {
			return true
		}
		s.move(i, core)
	}
	return false
}

// target returns the core on which a pinned vCPU would cost least, other than the one
// that it is on, of the class of its VM's cores.
func (s *state) target(i int) (int, bool) {
	from, v := s.vcpus[i].at, s.vms[s.vcpus[i].vm]
	best, least := -1, math.Inf(1)
	if v.stays {
		return best, false
	}
	s.take(i)
	for class, cores := range v.scope.byClass {
		if class != s.node.cores[from].class && v.count > 1 {
			continue
		}
		for _, core := range cores {
			if core == from {
				continue
			}
			if price, ok := s.probe(i, core); ok && price < least-eps {
				best, least = core, price
			}
		}
	}
	s.put(i, from)
	return best, best >= 0
}

// heaviestOn returns the VM that uses most of a core by its vCPUs, or one that may not
// share it.
func (s *state) heaviestOn(core int) *vm {
	if c := &s.cores[core]; c.waited > 0 && len(c.on) > int(s.node.cores[core].cpus) {
		at := slices.IndexFunc(c.on, func(i int) bool { return s.vms[s.vcpus[i].vm].waited })
		return s.vms[s.vcpus[c.on[at]].vm]
	}
	use := map[int]float64{}
	for _, i := range s.cores[core].on {
		use[s.vcpus[i].vm] += s.vcpus[i].demand
	}
	heaviest := s.vms[s.vcpus[s.cores[core].on[0]].vm]
	for _, i := range s.cores[core].on {
		if vm := s.vcpus[i].vm; use[vm] > use[heaviest.number] {
			heaviest = s.vms[vm]
		}
	}
	return heaviest
}

// movesARound is how many VMs lose their pins in a round for others that cost less:
// what a prediction is wrong about does no more harm, and shows.
const movesARound = 4

// improve changes the pins of VMs that have some, where that saves enough.
func (s *state) improve(settled bool) {
	left := movesARound
	if settled {
		s.reluctance = s.node.prices.crowd / 2
	}
	q := &search{state: s, random: rand.New(rand.NewPCG(2, 2))}
	for _, v := range s.vms {
		if v.free || v.stays || left == 0 {
			continue
		}
		if s.improveIO(v) || s.improveCores(v) || q.improveMode(v) {
			left--
		}
	}
}

// improveIO takes a VM's IO threads and vhost workers where they would be put anew.
func (s *state) improveIO(v *vm) bool {
	if v.now.mode != pinned || !v.keepsIO() {
		return false
	}
	before, hot := s.total, s.hot
	if added := s.setKeepsIO(v, false); s.hot > hot || s.total > before-s.margin(v, added) {
		s.setKeepsIO(v, true)
		return false
	}
	return true
}

// improveCores moves single vCPUs of a VM to cheaper cores.
func (s *state) improveCores(v *vm) bool {
	if v.now.mode != pinned {
		return false
	}
	moved := false
	for i := v.first; i < v.first+v.count; i++ {
		from := s.vcpus[i].at
		to, ok := s.target(i)
		if !ok {
			continue
		}
		before, hot := s.total, s.hot
		if added := s.move(i, to); s.hot > hot || s.total > before-s.margin(v, added) {
			s.move(i, from)
			continue
		}
		moved = true
	}
	return moved
}

// unsure is the part of what a change adds on other cores that counts again. A little
// use of a core by others decides how awake it is, and is known least of all: noise of
// 20 % there, and where it saves, is not to move anything.
const unsure = 1

// margin is what a change of a VM's pins must save that adds so much to the price of
// cores.
func (s *state) margin(v *vm, added float64) float64 {
	return v.threshold + unsure*max(0, added) + s.reluctance
}

// improveMode binds a VM otherwise, if that saves enough.
func (q *search) improveMode(v *vm) bool {
	before, hot, saved := q.total, q.hot, q.binding(v)
	q.unbind(v)
	without := q.total
	q.insert(v)
	added := q.total - v.price - without
	if q.hot > hot || q.total > before-q.margin(v, added) {
		q.unbind(v)
		q.bind(v, saved)
		return false
	}
	return true
}

// isBroken tells whether a limit is broken.
func (s *state) isBroken() bool { return s.hot > 0 || s.hotPart() != nil }

// hotPart returns a VM that is separated to a part with too much to do, or nil.
func (s *state) hotPart() *vm {
	for _, v := range s.vms {
		if v.now.mode == separated && v.scope.within.IsEmpty() && s.isPartHot(v, 0) {
			return v
		}
	}
	return nil
}

// cool lets go of a VM on a core, or in a part, where a limit is broken all the same,
// and reports whether there was one.
func (s *state) cool() bool {
	for core := range s.cores {
		if s.cores[core].hot {
			s.release(s.heaviestOn(core))
			return true
		}
	}
	v := s.hotPart()
	if v != nil {
		s.release(v)
	}
	return v != nil
}

func (s *state) release(v *vm) {
	v.denied, v.hot = true, true
	s.unbind(v)
	if v.stays {
		s.bind(v, binding{mode: floating})
		return
	}
	s.bind(v, s.last(v))
}
