package traffic

import (
	"math"
	"slices"
)

const (
	// detailed is the number of members up to which single ones are exchanged at last.
	detailed = 32
	// finer is the part of a number of equal shares by which the next one that is tried is
	// higher, but for 1 at least.
	finer = 4
)

// solve returns the rates that cost least, and false when it finds none: the cheapest
// members are activated, more of them until the group's demands hold, and in groups that
// are not large single ones are exchanged as long as that pays.
func (p *problem) solve() ([]float64, bool) {
	best, most := choice{lack: math.Inf(1)}, 1
	if p.Granularity == Equal {
		most = len(p.members)
	}
	for k := 1; k <= most; k += max(1, k/finer) {
		start := p.cheapest(k)
		c := p.split(p.complete(slices.Clone(start)))
		if len(p.members) <= detailed {
			c = p.exchange(c).orBetter(p.exchange(p.split(start)))
		}
		best = best.orBetter(c)
	}
	return best.rates, best.lack == 0
}

// choice is which members are active, what each gets, what all members cost then
// together, and how far it is from what the group demands.
type choice struct {
	active     []bool
	rates      []float64
	cost, lack float64
}

// orBetter returns what lacks less, or else costs less.
func (c choice) orBetter(other choice) choice {
	if other.lack < c.lack-exact || other.lack <= c.lack+exact && other.cost < c.cost-exact*math.Abs(c.cost) {
		return other
	}
	return c
}

// extra is what a member costs more as one of k active ones than without traffic: infinitely
// much when it cannot be.
func (p *problem) extra(m *member, k int) float64 {
	rate := p.total / float64(k)
	switch {
	case m.high <= 0 || p.Granularity == Equal && !m.takes(rate):
		return math.Inf(1)
	case p.Granularity == Equal:
		return p.costOf(m.curve, rate) - m.idle
	}
	return m.least - m.idle
}

// cheapest activates members with a floor, and those that cost least: k with equal
// shares or, by what a bit costs at their limits, as many as carry the total.
func (p *problem) cheapest(k int) []bool {
	active, room := make([]bool, len(p.members)), 0.0
	for at, i := range p.sorted(func(m *member) float64 {
		switch {
		case m.floor > 0:
			return math.Inf(-1)
		case p.Granularity == Equal:
			return p.extra(m, k)
		}
		return (m.most - m.idle) / m.high
	}) {
		m := &p.members[i]
		more := at < k
		if p.Granularity == Weighted {
			more = m.high > 0 && room < p.total*(1-exact)
		}
		if m.floor > 0 || more {
			active[i] = true
			room += m.high
		}
	}
	return active
}

// complete activates more members until enough are active, in enough domains and with
// enough to spare: those first that give what lacks for the least cost.
func (p *problem) complete(active []bool) []bool {
	t := &tally{domains: map[string]bool{}}
	for i, is := range active {
		if is {
			t.add(&p.members[i])
		}
	}
	for p.lack(t, 1) > 0 {
		best, least := -1, math.Inf(1)
		for i := range p.members {
			m := &p.members[i]
			if active[i] || len(t.domains) < p.minDomains && t.domains[m.domain] {
				continue
			}
			if cost := p.extra(m, t.count+1) / m.high; cost < least {
				best, least = i, cost
			}
		}
		if best < 0 {
			return active
		}
		active[best] = true
		t.add(&p.members[best])
	}
	return active
}

// split gives active members the total: equal shares, or each its least and then to those
// whose cost rises least as much as they take. In groups that are not large each is tried
// to be the one that takes what is left.
func (p *problem) split(active []bool) choice {
	if p.Granularity == Equal {
		return p.splitEqually(active)
	}
	best := p.fill(active, -1, -1)
	for i, is := range active {
		if is && len(active) <= detailed {
			best = best.orBetter(p.fill(active, i, -1)).orBetter(p.fill(active, -1, i))
		}
	}
	return best
}

// fill gives each active member its least, and what is left to the others in their
// order, and to the last.
func (p *problem) fill(active []bool, first, last int) choice {
	rates, left := make([]float64, len(active)), p.total
	for i, is := range active {
		if is {
			rates[i] = p.members[i].low
			left -= rates[i]
		}
	}
	give := func(i int) {
		more := min(max(0, left), p.members[i].high-rates[i])
		rates[i] += more
		left -= more
	}
	if first >= 0 {
		give(first)
	}
	for _, i := range p.byChord {
		if active[i] && i != last {
			give(i)
		}
	}
	if last >= 0 {
		give(last)
	}
	return p.choice(active, rates, math.Abs(left)/p.total)
}

func (p *problem) splitEqually(active []bool) choice {
	count := 0
	for _, is := range active {
		if is {
			count++
		}
	}
	rates, lack := make([]float64, len(active)), 0.0
	for i, is := range active {
		if is {
			rates[i] = p.total / float64(count)
			if !p.members[i].takes(rates[i]) {
				lack++
			}
		}
	}
	return p.choice(active, rates, lack)
}

func (p *problem) choice(active []bool, rates []float64, lack float64) choice {
	if lack <= exact {
		lack = 0
	}
	return choice{active: active, rates: rates, cost: p.cost(rates), lack: lack + p.lack(p.active(rates), 1)}
}

// exchange activates, removes or swaps single members as long as that pays: swaps first.
func (p *problem) exchange(best choice) choice {
	n := len(p.members)
	try := func(off, on int) bool {
		if off < n && (!best.active[off] || p.members[off].floor > 0) || on < n && (best.active[on] || p.members[on].high <= 0) {
			return false
		}
		active := slices.Clone(best.active)
		if off < n {
			active[off] = false
		}
		if on < n {
			active[on] = true
		}
		was := best
		best = best.orBetter(p.split(active))
		return best.lack != was.lack || best.cost != was.cost
	}
	for better := true; better; {
		better = false
		for off := range n {
			for on := range n {
				better = try(off, on) || better
			}
		}
		for i := 0; i < n && !better; i++ {
			better = try(n, i) || try(i, n)
		}
	}
	return best
}
