package traffic

import (
	"cmp"
	"maps"
	"math"
	"slices"
)

const (
	// leastPart of an equal share is what a member gets at least that must be
	// active and needs nothing: enough that its health shows and its caches and
	// connections are alive when it has to take over, and too little to cost much.
	leastPart = 0.01
	// exact is how far sums of rates may be off, in parts of the total.
	exact = 1e-9
	// noTraffic is a total below which nothing is worth steering, in bit/s.
	noTraffic = 1
)

// problem is a group in the order of its members' names, so that what comes of
// it does not depend on their order. Rates are in bit/s, costs in watts.
type problem struct {
	total      float64
	members    []member
	domains    int
	minActive  int
	minDomains int
	spare      bool
	costs      *costs
	// haveFloors and haveLimits are the sums over the members.
	haveFloors, haveLimits float64
	// sorted is what byLimit returned.
	sorted []int
}

type member struct {
	name string
	// at is the member's place in the group.
	at     int
	domain int
	curve  int
	// share of the traffic that is steered to the member now.
	share float64
	// floor, and the highest rate. A floor above the limit is kept: it was promised,
	// and the limit is an estimate.
	floor, high float64
	// low is the least rate when the member is active.
	low float64
	// none, least and most are what the member costs without traffic, and at low and
	// high.
	none, least, most float64
}

// forced tells whether the member has to be active.
func (m *member) forced() bool { return m.floor > 0 }

// usable tells whether traffic may be steered to the member.
func (m *member) usable() bool { return m.high > 0 }

func newProblem(g *Group) *problem {
	n := len(g.Members)
	p := &problem{
		total: float64(g.Total), members: make([]member, n), spare: g.SpareLargest,
		minActive: min(max(1, g.MinActive), n),
		costs:     &costs{curves: g.Curves, known: map[point]float64{}},
	}
	domains := map[string]int{}
	for i := range g.Members {
		domains[g.Members[i].Domain] = 0
	}
	for number, name := range slices.Sorted(maps.Keys(domains)) {
		domains[name] = number
	}
	p.domains = len(domains)
	p.minDomains = min(g.MinDomains, p.domains)
	least := leastPart * p.total / float64(max(1, n))
	for i := range g.Members {
		m := &g.Members[i]
		// No member carries more than the total, whatever it could.
		high := min(max(float64(m.Limit), float64(m.Floor)), p.total)
		p.members[i] = member{
			name: m.Name, at: i, domain: domains[m.Domain], curve: m.Curve, share: m.Share,
			floor: float64(m.Floor), high: high, low: min(max(least, float64(m.Floor)), high),
		}
	}
	slices.SortFunc(p.members, func(a, b member) int { return cmp.Compare(a.name, b.name) })
	for i := range p.members {
		p.haveFloors += p.members[i].floor
		p.haveLimits += p.members[i].high
	}
	return p
}

// weigh asks what the members cost without traffic, and at the ends of their ranges
// when what they get may be there.
func (p *problem) weigh(granularity Granularity) {
	for i := range p.members {
		m := &p.members[i]
		m.none = p.costs.of(m.curve, 0)
		if granularity == Weighted {
			m.least, m.most = p.costs.of(m.curve, m.low), p.costs.of(m.curve, m.high)
		}
	}
}

// cost returns what all members cost together.
func (p *problem) cost(rates []float64) float64 {
	sum := 0.0
	for i := range p.members {
		sum += p.costs.of(p.members[i].curve, rates[i])
	}
	return sum
}

// tally is what active members are together.
type tally struct {
	count, domains int
	// limits is the sum of their limits, highest the highest of these.
	limits, highest float64
}

// enough tells whether members with a tally may be the active ones, with a part of
// the total to carry after a loss.
func (p *problem) enough(t tally, part float64) bool {
	return t.count >= p.minActive && t.domains >= p.minDomains && p.spared(t, part)
}

// spared tells whether they carry the total without the largest of them.
func (p *problem) spared(t tally, part float64) bool {
	return !p.spare || t.limits-t.highest >= p.total*(part-exact)
}

// crowd counts active members.
type crowd struct {
	tally
	perDomain []int
}

func (p *problem) newCrowd() *crowd { return &crowd{perDomain: make([]int, p.domains)} }

func (c *crowd) add(m *member) {
	c.count++
	c.limits += m.high
	c.highest = max(c.highest, m.high)
	if c.perDomain[m.domain]++; c.perDomain[m.domain] == 1 {
		c.domains++
	}
}

// crowdOf counts the members with a rate.
func (p *problem) crowdOf(rates []float64) *crowd {
	c := p.newCrowd()
	for i := range p.members {
		if rates[i] > 0 {
			c.add(&p.members[i])
		}
	}
	return c
}

// inForce is by how much rates in force may be beyond floors and limits, and the
// total beyond what is left after a loss, before they are taken for broken: totals
// and limits are measured, and change a little from round to round.
const inForce = 0.05

// holds tells whether rates keep what the group demands, give or take a slack.
// Members without a limit above 0 may carry what they do: they are relieved step
// by step, as nothing says that they fail.
func (p *problem) holds(rates []float64, slack float64) bool {
	sum := 0.0
	for i := range p.members {
		m := &p.members[i]
		sum += rates[i]
		over := m.usable() && rates[i] > m.high*(1+slack)+p.total*exact
		if over || rates[i] < m.floor*(1-slack)-p.total*exact {
			return false
		}
	}
	return math.Abs(sum-p.total) <= p.total*exact*float64(1+len(rates)) && p.enough(p.crowdOf(rates).tally, 1-slack)
}
