package traffic

import (
	"cmp"
	"math"
	"slices"
)

// With equal shares the rate of the active members follows from their number, so
// that the choice is of the number and of the members. In small groups all sets are
// compared. In large ones the cheapest members are taken for each of some numbers,
// and as little is changed as gives enough domains and enough to spare.

const (
	// enumerated is the number of members of which all sets are compared.
	enumerated = 12
	// nearby numbers of members above the least possible are all tried: with concave
	// costs fewer are nearly always better.
	nearby = 12
	// wider is the ratio of the numbers that are tried beyond.
	wider = 1.3
	// bisections of the price of a limit.
	bisections = 12
)

// choose returns the equal rates that cost least, and false when none were found.
func (p *problem) choose() ([]float64, bool) {
	if len(p.members) <= enumerated {
		return p.chooseAll()
	}
	return p.chooseSome()
}

// chooseAll compares all sets of members.
func (p *problem) chooseAll() ([]float64, bool) {
	n := len(p.members)
	best, cost := 0, math.Inf(1)
	extra := make([]float64, (n+1)*n)
	for k := 1; k <= n; k++ {
		for i := range p.members {
			extra[k*n+i] = p.extra(i, k)
		}
	}
	for set := 1; set < 1<<n; set++ {
		if sum, possible := p.setCost(set, extra); possible && sum < cost-exact*math.Abs(cost) || possible && math.IsInf(cost, 1) {
			best, cost = set, sum
		}
	}
	return p.split(membersOf(best, n)), best != 0
}

func membersOf(set, n int) []int {
	var members []int
	for i := range n {
		if set&(1<<i) != 0 {
			members = append(members, i)
		}
	}
	return members
}

// setCost returns what a set costs, and false when it may not be the active one.
func (p *problem) setCost(set int, extra []float64) (float64, bool) {
	n := len(p.members)
	members := membersOf(set, n)
	k, sum := len(members), 0.0
	c := p.newCrowd()
	for _, i := range members {
		sum += extra[k*n+i]
		c.add(&p.members[i])
	}
	for i := range p.members {
		if p.members[i].forced() && set&(1<<i) == 0 {
			return 0, false
		}
	}
	return sum, !math.IsInf(sum, 1) && p.enough(c.tally, 1)
}

// extra is what a member costs more as one of k active ones than without traffic:
// infinitely much when it cannot be.
func (p *problem) extra(i, k int) float64 {
	m := &p.members[i]
	rate := p.total / float64(k)
	if rate > m.high*(1+exact) || rate < m.floor*(1-exact) {
		return math.Inf(1)
	}
	return p.costs.of(m.curve, rate) - p.costs.of(m.curve, 0)
}

// chooseSome tries some numbers of members, and more around the best of them.
func (p *problem) chooseSome() ([]float64, bool) {
	s := &selection{p: p, order: p.byLimit(), best: math.Inf(1)}
	n := len(s.order)
	fewest := s.fewest()
	var tried []int
	for k := fewest; k <= n; k = max(k+1, int(float64(k)*ratio(k-fewest))) {
		tried = append(tried, k)
	}
	if len(tried) == 0 || tried[len(tried)-1] != n {
		tried = append(tried, n)
	}
	for _, k := range tried {
		s.try(k)
	}
	s.refine(tried)
	return p.split(s.found), s.found != nil
}

func ratio(beyond int) float64 {
	if beyond < nearby {
		return 1
	}
	return wider
}

// selection is a search for the number of members.
type selection struct {
	p *problem
	// order of the members by limit.
	order []int
	best  float64
	found []int
	k     int
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
	for high-low > 2 {
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

// candidate is a member that may be one of k.
type candidate struct {
	member int
	// extra cost, and the same less what its limit is worth.
	extra, key float64
}

// try takes k members if that costs less than the best so far.
func (s *selection) try(k int) {
	p := s.p
	if k < 1 || k > len(s.order) {
		return
	}
	var must, may []candidate
	for _, i := range s.order {
		extra := p.extra(i, k)
		c := candidate{member: i, extra: extra, key: extra}
		switch {
		case p.members[i].forced() && math.IsInf(extra, 1):
			return
		case p.members[i].forced():
			must = append(must, c)
		case !math.IsInf(extra, 1):
			may = append(may, c)
		}
	}
	free := k - len(must)
	if free < 0 || free > len(may) {
		return
	}
	arrange(may)
	if costOf(must)+costOf(may[:free]) >= s.best {
		return
	}
	if chosen, ok := s.admit(must, may, free); ok {
		s.keep(k, must, chosen)
		return
	}
	if chosen, ok := s.spare(must, may, free); ok {
		s.keep(k, must, chosen)
	}
}

// arrange sorts candidates by key, and those of equal keys as they came.
func arrange(candidates []candidate) {
	slices.SortStableFunc(candidates, func(a, b candidate) int { return cmp.Compare(a.key, b.key) })
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
