package traffic

import (
	"cmp"
	"math"
	"slices"
)

// A sum of concave costs at a fixed total is least at a corner: all members but
// one get nothing, their least or their most, and that one what is left. Small
// groups are searched whole. In large ones each cost is replaced by its chord, the
// greatest convex function below it, whose optimum is to fill members in the order
// of their slopes; members are then added until enough are active, and what the
// chords do not show is found by searching small sets of members while the others
// stay as they are.

const (
	// searched is the number of members that are searched whole: up to 3 levels of
	// each, and any of them as the one that gets the rest.
	searched = 8
	// windows of that many members are searched in larger groups.
	windows = 12
	// ventured is the number of members of which all are searched first, as far as
	// the steps of a search go.
	ventured = 64
	// goodEnough is the distance from what chords say is possible, in parts of the
	// cost, at which no more windows are searched.
	goodEnough = 1e-4
)

// skew returns the rates that cost least, and false when none were found.
func (p *problem) skew() ([]float64, bool) {
	if len(p.members) <= searched {
		return p.searchAll()
	}
	rates, found := p.greedy()
	if !found {
		return nil, false
	}
	return p.improve(rates), true
}

// searchAll returns the optimum.
func (p *problem) searchAll() ([]float64, bool) {
	all := make([]int, 0, len(p.members))
	for i := range p.members {
		if p.members[i].usable() {
			all = append(all, i)
		}
	}
	rates := make([]float64, len(p.members))
	return rates, p.search(rates, all, math.Inf(1))
}

// greedy fills members in the order of the slopes of their chords, adds what lacks,
// and fills once more.
func (p *problem) greedy() ([]float64, bool) {
	var order []int
	c := p.newCrowd()
	active := make([]bool, len(p.members))
	left := p.total
	activate := func(i int) {
		active[i] = true
		c.add(&p.members[i])
	}
	for i := range p.members {
		m := &p.members[i]
		switch {
		case m.forced():
			activate(i)
			left -= m.floor
			order = append(order, i)
		case m.usable():
			order = append(order, i)
		}
	}
	slope := func(i int) float64 { return p.members[i].slope() }
	sortBy(order, slope)
	for _, i := range order {
		if left <= p.total*exact {
			break
		}
		m := &p.members[i]
		if !active[i] {
			activate(i)
		}
		left -= m.high - m.floor
	}
	if left > p.total*exact || !p.complete(c, active, activate) {
		return nil, false
	}
	return p.fill(active)
}

// slope of the chord from the least that the member has to have to its limit. A
// member whose least is its limit comes first: it has no other.
func (m *member) slope() float64 {
	switch {
	case m.high <= m.floor:
		return math.Inf(-1)
	case m.forced():
		return (m.most - m.least) / (m.high - m.floor)
	default:
		return (m.most - m.none) / m.high
	}
}

// sortBy sorts members by a key, and those of equal keys by name.
func sortBy(members []int, key func(int) float64) {
	type keyed struct {
		key    float64
		member int
	}
	sorted := make([]keyed, len(members))
	for at, i := range members {
		sorted[at] = keyed{key(i), i}
	}
	slices.SortFunc(sorted, func(a, b keyed) int {
		if a.key != b.key {
			return cmp.Compare(a.key, b.key)
		}
		return a.member - b.member
	})
	for at := range sorted {
		members[at] = sorted[at].member
	}
}

// complete activates members until enough are active, those first that cost
// least for it.
func (p *problem) complete(c *crowd, active []bool, activate func(int)) bool {
	var idle []int
	for i := range p.members {
		if !active[i] && p.members[i].usable() {
			idle = append(idle, i)
		}
	}
	entry := func(i int) float64 { return p.members[i].least - p.members[i].none }
	sortBy(idle, entry)
	for _, i := range idle {
		if c.domains >= p.minDomains {
			break
		}
		if c.perDomain[p.members[i].domain] == 0 {
			activate(i)
		}
	}
	for _, i := range idle {
		if c.count >= p.minActive {
			break
		}
		if !active[i] {
			activate(i)
		}
	}
	// Cheapest for what they can carry.
	sortBy(idle, func(i int) float64 { return entry(i) / p.members[i].high })
	for _, i := range idle {
		if p.spared(c.tally, 1) {
			break
		}
		if !active[i] {
			activate(i)
		}
	}
	return p.enough(c.tally, 1)
}

// fill gives active members their least, and what is left to those whose cost
// rises least up to their limit.
func (p *problem) fill(active []bool) ([]float64, bool) {
	rates := make([]float64, len(p.members))
	var order []int
	left := p.total
	for i := range p.members {
		if active[i] {
			rates[i] = p.members[i].low
			left -= rates[i]
			order = append(order, i)
		}
	}
	sortBy(order, func(i int) float64 {
		m := &p.members[i]
		return (m.most - m.least) / max(m.high-m.low, p.total*exact)
	})
	if left < -p.total*exact {
		return nil, false
	}
	for _, i := range order {
		m := &p.members[i]
		more := max(0, min(left, m.high-m.low))
		rates[i] += more
		left -= more
	}
	return rates, left <= p.total*exact
}

// improve searches windows of members, those first of which it is least sure.
func (p *problem) improve(rates []float64) []float64 {
	price := p.price()
	bound := p.total * price
	for i := range p.members {
		m := &p.members[i]
		bound += m.none + m.reduced(price)
	}
	order := p.doubtful(price)
	cost := p.cost(rates)
	if len(order) <= ventured && p.search(rates, order, p.costOf(rates, order)) {
		cost = p.cost(rates)
	}
	for at := range windows {
		if cost-bound <= goodEnough*math.Abs(cost) {
			break
		}
		window := p.window(order, rates, at)
		next := slices.Clone(rates)
		if p.search(next, window, p.costOf(rates, window)) {
			rates, cost = next, p.cost(next)
		}
	}
	return rates
}

// price is the slope at which the chords of the members carry the total: what one
// more bit/s costs.
func (p *problem) price() float64 {
	order := make([]int, len(p.members))
	for i := range order {
		order[i] = i
	}
	return p.priceOf(order, p.total)
}

func (p *problem) priceOf(members []int, total float64) float64 {
	var order []int
	for _, i := range members {
		if total -= p.members[i].floor; p.members[i].high > p.members[i].floor {
			order = append(order, i)
		}
	}
	slope := func(i int) float64 { return p.members[i].slope() }
	sortBy(order, slope)
	price := 0.0
	for _, i := range order {
		price = slope(i)
		if total -= p.members[i].high - p.members[i].floor; total <= 0 {
			break
		}
	}
	return price
}

// reduced is the least that the member costs more than without traffic, less a
// price for what it carries.
func (m *member) reduced(price float64) float64 {
	best, _ := m.choices(price)
	return best
}

// choices returns the least of that, and the next of another level.
func (m *member) choices(price float64) (best, next float64) {
	best, next = math.Inf(1), math.Inf(1)
	consider := func(cost float64) {
		if cost < best {
			best, cost = cost, best
		}
		next = min(next, cost)
	}
	if !m.forced() {
		consider(0)
	}
	if m.usable() {
		consider(m.least - m.none - price*m.low)
		consider(m.most - m.none - price*m.high)
	}
	return best, next
}

// doubtful returns the usable members in the order of how little their best level
// is better than the next.
func (p *problem) doubtful(price float64) []int {
	var order []int
	doubt := make([]float64, len(p.members))
	for i := range p.members {
		if m := &p.members[i]; m.usable() {
			best, next := m.choices(price)
			doubt[i] = next - best
			order = append(order, i)
		}
	}
	sortBy(order, func(i int) float64 { return doubt[i] })
	return order
}

// window returns members to search together.
func (p *problem) window(order []int, rates []float64, at int) []int {
	n := len(order)
	if n <= searched {
		return order
	}
	var chosen []int
	take := func(i int) {
		if len(chosen) < searched && !slices.Contains(chosen, i) {
			chosen = append(chosen, i)
		}
	}
	// Who gets the rest is in all of them.
	for _, i := range order {
		if m := &p.members[i]; rates[i] > m.low && rates[i] < m.high {
			take(i)
		}
	}
	const stride = searched / 2
	for j := range searched {
		take(order[(at*stride+j)%n])
	}
	return chosen
}

func (p *problem) costOf(rates []float64, members []int) float64 {
	sum := 0.0
	for _, i := range members {
		sum += p.costs.of(p.members[i].curve, rates[i]) - p.members[i].none
	}
	return sum
}
