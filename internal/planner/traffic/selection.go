package traffic

import (
	"cmp"
	"math"
	"slices"
)

// selection is a search for the number of members.
type selection struct {
	p *problem
	// order of the members by limit, those that have to be active first.
	order []int
	// must are those that have to be. Of the others, curves holds the members that
	// have each curve, in that order.
	must   []int
	curves [][]int
	// extra is what a member with each curve costs more than without traffic, at the
	// rate that is tried, and byExtra the curves in its order.
	extra   []float64
	byExtra []int
	// used curves are some member's, which costs idle without traffic.
	used []bool
	idle []float64

	best  float64
	found []int
	k     int
}

func (p *problem) newSelection() *selection {
	n := len(p.costs.curves)
	s := &selection{p: p, order: p.byLimit(), curves: make([][]int, n), extra: make([]float64, n), used: make([]bool, n), idle: make([]float64, n), best: math.Inf(1)}
	for _, i := range s.order {
		m := &p.members[i]
		s.used[m.curve], s.idle[m.curve] = true, m.none
		if m.forced() {
			s.must = append(s.must, i)
		} else {
			s.curves[m.curve] = append(s.curves[m.curve], i)
		}
	}
	return s
}

// fewest returns the least number of members whose limits allow it.
func (s *selection) fewest() int {
	p := s.p
	forced := 0
	limits := make([]float64, 0, len(s.order))
	for _, i := range s.order {
		if p.members[i].forced() {
			forced++
		}
		limits = append(limits, p.members[i].high)
	}
	slices.Sort(limits)
	slices.Reverse(limits)
	for k := max(p.minActive, forced, 1); k <= len(limits); k++ {
		if limits[k-1] >= p.total/float64(k)*(1-exact) {
			return k
		}
	}
	return len(limits)
}

// refine tries numbers between those around the best, closer and closer.
func (s *selection) refine(tried []int) {
	if s.found == nil {
		return
	}
	at, _ := slices.BinarySearch(tried, s.k)
	low, high := tried[max(0, at-1)], tried[min(at+1, len(tried)-1)]
	const points = 4
	for high-low > 2 && float64(high-low) > spread*float64(s.k) {
		step := max(1, (high-low)/points)
		for k := low + step; k < high; k += step {
			if k != s.k {
				s.try(k)
			}
		}
		if step == 1 {
			return
		}
		low, high = max(low, s.k-step), min(high, s.k+step)
	}
}

// swap exchanges an active member for another as long as that saves.
func (s *selection) swap() {
	p := s.p
	for again := true; again && s.found != nil; {
		again = false
		is := make([]bool, len(p.members))
		for _, i := range s.found {
			is[i] = true
		}
		for at, out := range s.found {
			for in := range p.members {
				less := p.extra(out, s.k) - p.extra(in, s.k)
				if is[in] || p.members[out].forced() || !(less > exact*s.best) {
					continue
				}
				s.found[at] = in
				if p.holdsStrictly(p.split(s.found)) {
					s.best -= less
					is[out], is[in], again = false, true, true
					out = in
					continue
				}
				s.found[at] = out
			}
		}
	}
}

// candidate is a member that may be one of k.
type candidate struct {
	member int
	// extra cost, and the same less what its limit is worth.
	extra, key float64
}

// try takes k members if that costs less than the best so far.
func (s *selection) try(k int) {
	p := s.p
	rate := p.total / float64(k)
	s.ask(rate)
	must := make([]candidate, 0, len(s.must))
	for _, i := range s.must {
		if !p.members[i].takes(rate) {
			return
		}
		extra := s.extra[p.members[i].curve]
		must = append(must, candidate{i, extra, extra})
	}
	s.attempt(k, must, nobody)
	if len(s.order) > detailed {
		return
	}
	// What is cheapest may be far from having enough domains and to spare. With one
	// member given, which may be the one that has it, the others are cheap again.
	for i := range p.members {
		if m := &p.members[i]; !m.forced() && m.takes(rate) {
			extra := s.extra[m.curve]
			s.attempt(k, append(must, candidate{i, extra, extra}), i)
		}
	}
}

// nobody is no member.
const nobody = -1

// attempt completes members that must be active to k of them. One of the members
// may be given among them that need not be.
func (s *selection) attempt(k int, must []candidate, given int) {
	rate := s.p.total / float64(k)
	free := k - len(must)
	if free < 0 || costOf(must)+s.cheapest(free, rate, given) >= s.best {
		return
	}
	may := s.candidates(rate, given)
	if chosen, ok := s.admit(must, may, free); ok {
		s.keep(k, must, chosen)
		return
	}
	if chosen, ok := s.spare(must, may, free); ok {
		s.keep(k, must, chosen)
	}
}

// ask asks the curves for what a rate costs.
func (s *selection) ask(rate float64) {
	costs := s.p.costs
	s.byExtra = s.byExtra[:0]
	for curve := range s.extra {
		if s.used[curve] {
			s.extra[curve] = costs.ask(curve, rate) - s.idle[curve]
			s.byExtra = append(s.byExtra, curve)
		}
	}
	sortBy(s.byExtra, func(curve int) float64 { return s.extra[curve] })
}

// cheapest is what the cheapest members but one cost that may be active, infinitely much
// when there are not so many.
func (s *selection) cheapest(count int, rate float64, without int) float64 {
	sum := 0.0
	for _, curve := range s.byExtra {
		for _, i := range s.curves[curve] {
			if count == 0 || !s.p.members[i].takes(rate) {
				break // the next have lower limits
			}
			if i == without {
				continue
			}
			sum += s.extra[curve]
			count--
		}
	}
	if count > 0 {
		return math.Inf(1)
	}
	return sum
}

// candidates returns the members but one that may be active at a rate, the cheapest
// first.
func (s *selection) candidates(rate float64, without int) []candidate {
	var may []candidate
	for _, curve := range s.byExtra {
		for _, i := range s.curves[curve] {
			if !s.p.members[i].takes(rate) {
				break
			}
			if i != without {
				may = append(may, candidate{i, s.extra[curve], s.extra[curve]})
			}
		}
	}
	return may
}

// arrange sorts candidates by key, and those of equal keys by name.
func arrange(candidates []candidate) {
	slices.SortFunc(candidates, func(a, b candidate) int {
		if a.key != b.key {
			return cmp.Compare(a.key, b.key)
		}
		return a.member - b.member
	})
}

func costOf(candidates []candidate) float64 {
	sum := 0.0
	for _, c := range candidates {
		sum += c.extra
	}
	return sum
}

func (s *selection) keep(k int, must, chosen []candidate) {
	if cost := costOf(must) + costOf(chosen); cost < s.best {
		s.best, s.k, s.found = cost, k, nil
		for _, c := range append(slices.Clone(must), chosen...) {
			s.found = append(s.found, c.member)
		}
	}
}

// admit takes the first of candidates, and changes as many of them as it takes for
// enough domains.
func (s *selection) admit(must, may []candidate, free int) ([]candidate, bool) {
	p := s.p
	c := p.newCrowd()
	chosen := slices.Clone(may[:free])
	for _, of := range [][]candidate{must, chosen} {
		for i := range of {
			c.add(&p.members[of[i].member])
		}
	}
	out := len(chosen) - 1
	for _, in := range may[free:] {
		if c.domains >= p.minDomains {
			break
		}
		if c.perDomain[p.members[in.member].domain] > 0 {
			continue
		}
		for out >= 0 && c.perDomain[p.members[chosen[out].member].domain] == 1 {
			out--
		}
		if out < 0 {
			break
		}
		c.perDomain[p.members[chosen[out].member].domain]--
		c.add(&p.members[in.member])
		chosen[out] = in
		out--
	}
	c = p.newCrowd()
	for _, of := range [][]candidate{must, chosen} {
		for i := range of {
			c.add(&p.members[of[i].member])
		}
	}
	return chosen, p.enough(c.tally, 1)
}

// spare prefers members with high limits, as little as gives enough to spare.
func (s *selection) spare(must, may []candidate, free int) ([]candidate, bool) {
	if !s.p.spare {
		return nil, false
	}
	highest := 0.0
	for _, c := range may {
		highest = max(highest, math.Abs(c.extra))
	}
	// A price at which limits alone decide.
	low, high := 0.0, highest/s.p.total*float64(len(s.order))/exact
	var best []candidate
	price := high
	for step := range bisections {
		for i := range may {
			may[i].key = may[i].extra - price*s.p.members[may[i].member].high
		}
		arrange(may)
		chosen, ok := s.admit(must, may, free)
		switch {
		case ok && (best == nil || costOf(chosen) < costOf(best)):
			best = chosen
		case !ok && step == 0:
			return nil, false
		}
		if ok {
			high = price
		} else {
			low = price
		}
		price = middle(low, high, highest/s.p.total)
	}
	return best, best != nil
}

// middle halves a range of prices on a scale of ratios.
func middle(low, high, unit float64) float64 {
	if low == 0 {
		low = unit * exact
	}
	return math.Sqrt(low * high)
}
