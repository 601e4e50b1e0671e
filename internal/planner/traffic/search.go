package traffic

import (
	"cmp"
	"math"
	"slices"
)

// level of a member in a corner. Their order breaks ties between alike members.
type level int

const (
	nothing level = iota
	least
	rest
	most
)

// tree is a search by branch and bound.
type tree struct {
	p *problem
	// who is decided, one after the other.
	who []int
	// alike tells whether a member is in all like the one before it.
	alike []bool
	price float64
	// From each place on: the least sum of reduced costs, and the range of what can
	// be carried.
	reduced, low, high []float64
	crowd              *crowd
	slackCost          float64

	levels []level
	// steps that may still be taken.
	steps int
	best  float64
	found []float64 // rates of who, nil as long as nothing better was found
}

// mostSteps of a search, some milliseconds: more than what the members of a small
// group can take. Of a search that ends by it the best that was found counts.
const mostSteps = 100_000

// search gives members the rates that cost least while all others keep theirs, if
// that costs less than a bound, without traffic not counted. It returns whether it
// did.
func (p *problem) search(rates []float64, members []int, bound float64) bool {
	t := &tree{p: p, who: slices.Clone(members), steps: mostSteps, best: bound, crowd: p.newCrowd()}
	carry := p.total
	searched := make([]bool, len(rates))
	for _, i := range members {
		searched[i] = true
	}
	for i := range p.members {
		if !searched[i] && rates[i] > 0 {
			t.crowd.add(&p.members[i])
			carry -= rates[i]
		}
	}
	t.prepare(carry)
	t.descend(0, branch{left: carry, tally: t.crowd.tally, chosen: -1})
	if t.found == nil {
		return false
	}
	for j, i := range t.who {
		rates[i] = t.found[j]
	}
	return true
}

func (t *tree) prepare(carry float64) {
	p := t.p
	t.price = p.priceOf(t.who, carry)
	slices.SortFunc(t.who, func(i, j int) int {
		a, b := &p.members[i], &p.members[j]
		return cmp.Or(
			cmp.Compare(b.high, a.high), cmp.Compare(a.curve, b.curve), cmp.Compare(a.floor, b.floor),
			cmp.Compare(a.domain, b.domain), cmp.Compare(i, j))
	})
	n := len(t.who)
	t.alike, t.levels = make([]bool, n), make([]level, n)
	t.reduced, t.low, t.high = make([]float64, n+1), make([]float64, n+1), make([]float64, n+1)
	for j := n - 1; j >= 0; j-- {
		m := &p.members[t.who[j]]
		t.reduced[j] = t.reduced[j+1] + m.reduced(t.price)
		t.low[j], t.high[j] = t.low[j+1]+m.floor, t.high[j+1]+m.high
		if j > 0 {
			o := &p.members[t.who[j-1]]
			t.alike[j] = m.high == o.high && m.curve == o.curve && m.floor == o.floor && m.domain == o.domain
		}
		t.slackCost = max(t.slackCost, math.Abs(m.most-m.none))
	}
	// Differences that only rounding makes decide nothing.
	t.slackCost *= exact
}

// branch is what was decided so far.
type branch struct {
	// left to carry, and cost of the others.
	left, cost float64
	tally      tally
	// chosen is the place of the member that gets the rest, -1 while there is none.
	chosen int
}

func (t *tree) descend(at int, b branch) {
	low, high, bound := t.low[at], t.high[at], b.cost+t.reduced[at]+t.price*b.left
	if b.chosen >= 0 {
		m := &t.p.members[t.who[b.chosen]]
		low, high, bound = low+m.low, high+m.high, bound+m.reduced(t.price)
	}
	slack := t.p.total * exact
	if t.steps--; t.steps < 0 || b.left < low-slack || b.left > high+slack || bound >= t.best-t.slackCost {
		return
	}
	if at == len(t.who) {
		t.finish(b)
		return
	}
	m := &t.p.members[t.who[at]]
	highest := most
	if at > 0 && t.alike[at] {
		highest = t.levels[at-1]
	}
	for l := highest; l >= nothing; l-- {
		if l == nothing && m.forced() || l == rest && b.chosen >= 0 {
			continue
		}
		t.levels[at] = l
		next := b
		if l == nothing {
			t.descend(at+1, next)
			continue
		}
		next.take(m, l, at)
		if t.crowd.perDomain[m.domain]++; t.crowd.perDomain[m.domain] == 1 {
			next.tally.domains++
		}
		t.descend(at+1, next)
		t.crowd.perDomain[m.domain]--
	}
}

func (b *branch) take(m *member, l level, at int) {
	switch l {
	case most:
		b.left, b.cost = b.left-m.high, b.cost+m.most-m.none
	case least:
		b.left, b.cost = b.left-m.low, b.cost+m.least-m.none
	default:
		b.chosen = at
	}
	b.tally.count++
	b.tally.limits += m.high
	b.tally.highest = max(b.tally.highest, m.high)
}

// finish compares a corner with the best one.
func (t *tree) finish(b branch) {
	if b.chosen < 0 || !t.p.enough(b.tally, 1) {
		return
	}
	m := &t.p.members[t.who[b.chosen]]
	rate := min(max(b.left, m.low), m.high)
	cost := b.cost + t.p.costs.ask(m.curve, rate) - m.none
	if cost >= t.best-t.slackCost {
		return
	}
	t.best, t.found = cost, make([]float64, len(t.who))
	for j, l := range t.levels {
		switch m := &t.p.members[t.who[j]]; l {
		case most:
			t.found[j] = m.high
		case least:
			t.found[j] = m.low
		case rest:
			t.found[j] = rate
		}
	}
}
