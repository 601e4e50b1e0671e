package traffic

import (
	"math"
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
	// spread of numbers that are not told apart, in parts of them.
	spread = 0.005
	// detailed is the number of members up to which each of them is given once, and
	// single ones are swapped at last.
	detailed = 64
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
	if rate := p.total / float64(k); m.takes(rate) {
		return p.costs.of(m.curve, rate) - p.costs.of(m.curve, 0)
	}
	return math.Inf(1)
}

// takes tells whether a rate is between the member's floor and limit.
func (m *member) takes(rate float64) bool {
	return rate <= m.high*(1+exact) && rate >= m.floor*(1-exact)
}

// chooseSome tries some numbers of members, and more around the best of them.
func (p *problem) chooseSome() ([]float64, bool) {
	s := p.newSelection()
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
	if n <= detailed {
		s.swap()
	}
	return p.split(s.found), s.found != nil
}

func ratio(beyond int) float64 {
	if beyond < nearby {
		return 1
	}
	return wider
}
