package traffic

import (
	"cmp"
	"math"
	"slices"

	"github.com/joulevirt/joulevirt/internal/units"
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
	// inForce is by how much rates in force may exceed floors and limits, and the
	// total what is left after a loss, before they count as broken: totals
	// and limits are measured, and change a little from round to round.
	inForce = 0.05
	// straight is how far a curve may be from its chord, in parts of its rise, and
	// still be a straight line: well below what curves are known to.
	straight = 0.01
)

// problem is a group in plain numbers: rates are in bit/s, costs in watts. Rates of all
// members are in the order of the members.
type problem struct {
	*Group
	total                 float64
	members               []member
	minActive, minDomains int
	spare                 bool
	// byChord is the order in which active members are filled: the cheapest bit first.
	byChord []int
}

type member struct {
	domain string
	curve  int
	// floor, and the highest rate. A floor above the limit stands: it was promised,
	// and the limit is an estimate.
	floor, high float64
	// low is the least rate when the member is active.
	low float64
	// idle, least and most are what the member costs without traffic, and at low and high.
	idle, least, most float64
}

// takes returns whether a rate is between the member's floor and limit.
func (m *member) takes(rate float64) bool {
	return rate <= m.high*(1+exact) && rate >= m.floor*(1-exact)
}

func newProblem(g *Group) *problem {
	n := len(g.Members)
	p := &problem{
		Group: g, total: max(float64(g.Total), noTraffic), members: make([]member, n),
		minActive: min(max(1, g.MinActive), n), spare: g.SpareLargest,
	}
	domains := map[string]bool{}
	least := leastPart * p.total / float64(max(1, n))
	for i := range g.Members {
		m := &g.Members[i]
		domains[m.Domain] = true
		// No member carries more than the total, whatever it could.
		high := min(max(float64(m.Limit), float64(m.Floor)), p.total)
		p.members[i] = member{
			domain: m.Domain, curve: m.Curve, floor: float64(m.Floor), high: high, low: min(max(least, float64(m.Floor)), high),
		}
	}
	p.minDomains = min(g.MinDomains, len(domains))
	return p
}

// price computes what the members cost without traffic and at the ends of their ranges.
func (p *problem) price() {
	for i := range p.members {
		m := &p.members[i]
		m.idle, m.least, m.most = p.costOf(m.curve, 0), p.costOf(m.curve, m.low), p.costOf(m.curve, m.high)
	}
	p.byChord = p.sorted(func(m *member) float64 { return (m.most - m.least) / (m.high - m.low) })
}

func (p *problem) costOf(curve int, rate float64) float64 {
	return float64(p.Curves[curve](units.BitsPerSecond(rate)))
}

// cost returns what all members cost together.
func (p *problem) cost(rates []float64) float64 {
	sum := 0.0
	for i := range p.members {
		sum += p.costOf(p.members[i].curve, rates[i])
	}
	return sum
}

// sorted returns the members by a figure, the least first, and equal ones by name.
func (p *problem) sorted(by func(*member) float64) []int {
	figures, order := make([]float64, len(p.members)), make([]int, len(p.members))
	for i := range order {
		order[i], figures[i] = i, by(&p.members[i])
	}
	slices.SortFunc(order, func(i, j int) int { return cmp.Or(cmp.Compare(figures[i], figures[j]), i-j) })
	return order
}

// tally is what active members are together.
type tally struct {
	count   int
	domains map[string]bool
	// limits is the sum of their limits, highest the highest of these.
	limits, highest float64
}

func (t *tally) add(m *member) {
	t.count++
	t.domains[m.domain] = true
	t.limits += m.high
	t.highest = max(t.highest, m.high)
}

// active counts the members with a rate.
func (p *problem) active(rates []float64) *tally {
	t := &tally{domains: map[string]bool{}}
	for i := range p.members {
		if rates[i] > 0 {
			t.add(&p.members[i])
		}
	}
	return t
}

// lack is how far active members are from what the group demands of them. part of the
// total is what they have to carry after a loss.
func (p *problem) lack(t *tally, part float64) float64 {
	lack := float64(max(0, p.minActive-t.count) + max(0, p.minDomains-len(t.domains)))
	if left := t.limits - t.highest; p.spare && left < p.total*(part-exact) {
		lack += part - left/p.total
	}
	return lack
}

// holds returns whether rates are what the group demands, give or take a slack. Members
// without a limit may carry what they do: they are relieved step by step, as nothing
// shows that they fail.
func (p *problem) holds(rates []float64, slack float64) bool {
	for i := range p.members {
		m := &p.members[i]
		over := m.high > 0 && rates[i] > m.high*(1+slack)+p.total*exact
		if over || rates[i] < m.floor*(1-slack)-p.total*exact {
			return false
		}
	}
	return p.lack(p.active(rates), 1-slack) == 0
}

// curvesUnknown returns whether some member's cost is not known.
func (p *problem) curvesUnknown() bool {
	return slices.ContainsFunc(p.members, func(m member) bool { return len(p.Curves) == 0 || p.Curves[m.curve] == nil })
}

// curvesLinear returns whether no member's cost bends, up to its limit. Then nothing
// is gained by concentrating traffic. That one line is steeper than
// another is the least certain of what is learned, and moves nothing.
func (p *problem) curvesLinear() bool {
	highs := make([]float64, len(p.Curves))
	for i := range p.members {
		m := &p.members[i]
		highs[m.curve] = max(highs[m.curve], m.high)
	}
	for curve, high := range highs {
		if high == 0 {
			continue // nobody's
		}
		idle := p.costOf(curve, 0)
		rise := p.costOf(curve, high) - idle
		for _, part := range []float64{1.0 / 256, 1.0 / 64, 1.0 / 16, 1.0 / 4, 1.0 / 2, 3.0 / 4} {
			if math.Abs(p.costOf(curve, part*high)-idle-part*rise) > straight*math.Abs(rise) {
				return false
			}
		}
	}
	return true
}

// even returns equal rates.
func (p *problem) even() []float64 {
	return slices.Repeat([]float64{p.total / float64(max(1, len(p.members)))}, len(p.members))
}

// balanced returns the feasible rates that are most like equal ones, and false
// when nothing is feasible. They are what a saving is a saving against.
func (p *problem) balanced() ([]float64, bool) {
	if p.Granularity == Equal {
		return p.widest()
	}
	limits := 0.0
	for i := range p.members {
		limits += p.members[i].high
	}
	if limits < p.total*(1-exact) {
		return nil, false
	}
	rates := p.level()
	return rates, p.holds(rates, 0)
}

// level returns the rates that are as equal as floors and limits let them be: the
// same for all members, but for those whose floor is above it or whose limit is below.
func (p *problem) level() []float64 {
	rates := p.even()
	if !slices.ContainsFunc(p.members, func(m member) bool { return !m.takes(rates[0]) }) {
		return rates
	}
	low, high := 0.0, p.total
	for range 100 { // halvings: until the sum is exact
		middle, sum := (low+high)/2, 0.0
		for i := range p.members {
			sum += min(max(middle, p.members[i].floor), p.members[i].high)
		}
		if sum < p.total {
			low = middle
		} else {
			high = middle
		}
	}
	for i := range p.members {
		rates[i] = min(max(high, p.members[i].floor), p.members[i].high)
	}
	return rates
}

// widest returns equal shares of as many members as can have them: those with a floor,
// and those with the highest limits.
func (p *problem) widest() ([]float64, bool) {
	order := p.sorted(func(m *member) float64 {
		if m.floor > 0 {
			return math.Inf(-1)
		}
		return -m.high
	})
	for k := len(order); k > 0; k-- {
		each := p.total / float64(k)
		if last := &p.members[order[k-1]]; last.floor == 0 && !last.takes(each) {
			continue
		}
		rates := make([]float64, len(p.members))
		for _, i := range order[:k] {
			rates[i] = each
		}
		if p.holds(rates, 0) {
			return rates, true
		}
	}
	return nil, false
}
