package traffic

import (
	"cmp"
	"math"
	"slices"
)

// equal returns equal rates.
func (p *problem) equal() []float64 {
	rates := make([]float64, len(p.members))
	for i := range rates {
		rates[i] = p.total / float64(len(rates))
	}
	return rates
}

// level returns the rates that are as equal as floors and limits let them be: the
// same for all members, but for those whose floor is above it or whose limit is
// below. Where the limits have no room, only floors count. The floors must not add
// up to more than the total.
func (p *problem) level() []float64 {
	rates := p.equal()
	fits := func(m *member, rate float64) bool { return rate >= m.floor && rate <= m.high }
	if !slices.ContainsFunc(p.members, func(m member) bool { return !fits(&m, rates[0]) }) {
		return rates
	}
	limited := p.haveLimits >= p.total*(1-exact)
	// The sum of clamp(level, floor, limit) over the members grows with the level, and
	// bends where a member leaves its floor or reaches its limit.
	type bend struct{ level, members float64 }
	var bends []bend
	for i := range p.members {
		m := &p.members[i]
		bends = append(bends, bend{m.floor, 1})
		if limited {
			bends = append(bends, bend{max(m.high, m.floor), -1})
		}
	}
	slices.SortFunc(bends, func(a, b bend) int {
		return cmp.Or(cmp.Compare(a.level, b.level), cmp.Compare(b.members, a.members))
	})
	at, sum, rising := 0.0, p.haveFloors, 0.0
	for _, b := range bends {
		next := sum + rising*(b.level-at)
		if next >= p.total {
			break
		}
		sum, at = next, b.level
		rising += b.members
	}
	if rising > 0 {
		at += (p.total - sum) / rising
	}
	for i := range p.members {
		m := &p.members[i]
		rates[i] = max(at, m.floor)
		if limited {
			rates[i] = max(min(at, m.high), m.floor)
		}
	}
	return rates
}

// balanced returns the feasible rates that are most like equal ones, and false
// when nothing is feasible. They are what a saving is a saving against.
func (p *problem) balanced(granularity Granularity) ([]float64, bool) {
	if p.haveFloors > p.total*(1+exact) || p.haveLimits < p.total*(1-exact) {
		return nil, false
	}
	if granularity == Equal {
		return p.widest()
	}
	rates := p.level()
	return rates, p.holdsStrictly(rates)
}

// holdsStrictly is holds for what is planned.
func (p *problem) holdsStrictly(rates []float64) bool {
	for i := range p.members {
		if rates[i] > 0 && !p.members[i].usable() {
			return false
		}
	}
	return p.holds(rates, 0)
}

// widest returns equal shares of as many members as can have them.
func (p *problem) widest() ([]float64, bool) {
	order := p.byLimit()
	forced, floor := 0, 0.0
	lowest := make([]float64, len(order)) // limit of the members up to each
	for at, i := range order {
		m := &p.members[i]
		floor = max(floor, m.floor)
		if m.forced() {
			forced++
		}
		lowest[at] = m.high
		if at > 0 {
			lowest[at] = min(lowest[at-1], m.high)
		}
	}
	for k := len(order); k >= max(1, forced); k-- {
		if each := p.total / float64(k); lowest[k-1] >= each*(1-exact) && floor <= each*(1+exact) {
			// With fewer there are no more domains, and no more to spare.
			rates := p.split(order[:k])
			return rates, p.holdsStrictly(rates)
		}
	}
	return nil, false
}

// byLimit returns the members, those that have to be active first and then those
// with the highest limits. It is not to be changed.
func (p *problem) byLimit() []int {
	if p.sorted != nil {
		return p.sorted
	}
	order := make([]int, len(p.members))
	for i := range order {
		order[i] = i
	}
	sortBy(order, func(i int) float64 {
		if m := &p.members[i]; !m.forced() {
			return -m.high
		}
		return math.Inf(-1)
	})
	p.sorted = order
	return order
}

// precedence compares members: those first that have to be active.
func (m *member) precedence(o *member) int {
	switch {
	case m.forced() && !o.forced():
		return -1
	case o.forced() && !m.forced():
		return 1
	}
	return 0
}

// split returns equal rates of some members.
func (p *problem) split(active []int) []float64 {
	rates := make([]float64, len(p.members))
	for _, i := range active {
		rates[i] = p.total / float64(len(active))
	}
	return rates
}
