package traffic

import (
	"cmp"
	"math"
	"slices"
)

// With equal shares a group goes from one set of active members to another by
// first adding members, those with the highest limits first, and then removing
// others, those with the lowest limits first: so limits hold best on the way, and
// there are never fewer to carry a loss than at one of the ends.

// path is the way from one set to another.
type path struct {
	p         *problem
	from, to  []bool
	add, drop []int
	// Members of from, of to, and of both.
	before, after, common int
	// must is how many of the added have to be active.
	must int
	// floor is the highest floor, and lasting the lowest limit of members of both.
	floor, lasting float64
}

// change goes from rates in force towards a goal, in one round.
func (p *problem) change(now, goal []float64, maxStep float64) []float64 {
	w := p.newPath(now, goal)
	changes := len(w.add) + len(w.drop)
	if changes == 0 {
		return goal
	}
	feasible := w.feasible()
	broken := !p.holds(now, inForce)
	chosen := 0
	for t := 1; t <= changes; t++ {
		within := w.moved(t) <= maxStep*(1+exact)
		switch {
		case !feasible[t]:
		case chosen == 0, within, broken && w.moved(t) < w.moved(chosen):
			chosen = t
		}
	}
	return w.at(chosen)
}

func (p *problem) newPath(now, goal []float64) *path {
	w := &path{p: p, from: make([]bool, len(now)), to: make([]bool, len(now)), lasting: math.Inf(1)}
	for i := range p.members {
		m := &p.members[i]
		w.from[i], w.to[i] = now[i] > 0, goal[i] > 0
		w.floor = max(w.floor, m.floor)
		switch {
		case w.from[i] && w.to[i]:
			w.common++
			w.lasting = min(w.lasting, m.bound())
		case w.to[i]:
			w.add = append(w.add, i)
			if m.forced() {
				w.must++
			}
		case w.from[i]:
			w.drop = append(w.drop, i)
		}
	}
	w.before, w.after = w.common+len(w.drop), w.common+len(w.add)
	slices.SortStableFunc(w.add, func(i, j int) int {
		a, b := &p.members[i], &p.members[j]
		return cmp.Or(a.precedence(b), cmp.Compare(b.high, a.high))
	})
	slices.SortFunc(w.drop, func(i, j int) int {
		return cmp.Or(cmp.Compare(p.members[i].high, p.members[j].high), cmp.Compare(j, i))
	})
	return w
}

// bound is the member's limit on the way: one without a limit above 0 may carry
// what it does.
func (m *member) bound() float64 {
	if !m.usable() {
		return math.Inf(1)
	}
	return m.high
}

// split returns how many are added and dropped after a number of changes.
func (w *path) split(changes int) (added, dropped int) {
	added = min(changes, len(w.add))
	return added, changes - added
}

// moved is the part of the total that goes elsewhere by the first changes.
func (w *path) moved(changes int) float64 {
	added, dropped := w.split(changes)
	stay := w.before - dropped
	then := float64(stay + added)
	before := 1 / float64(w.before)
	return (float64(added)/then + float64(dropped)*before + float64(stay)*math.Abs(1/then-before)) / 2
}

// feasible tells for each number of changes whether what the group demands holds.
func (w *path) feasible() []bool {
	p := w.p
	changes := len(w.add) + len(w.drop)
	feasible := make([]bool, changes+1)
	c := p.newCrowd()
	highest := 0.0 // of those that stay until the end
	for i := range w.from {
		if w.from[i] {
			c.add(&p.members[i])
		}
		if w.to[i] {
			highest = max(highest, p.members[i].high)
		}
	}
	lowest := w.lasting
	// Those without a limit come first among the dropped, and bound nothing.
	boundless := 0
	for boundless < len(w.drop) && !p.members[w.drop[boundless]].usable() {
		boundless++
	}
	for t := 1; t <= changes; t++ {
		added, dropped := w.split(t)
		if dropped == 0 {
			m := &p.members[w.add[added-1]]
			c.add(m)
			lowest = min(lowest, m.bound())
		} else {
			c.remove(&p.members[w.drop[dropped-1]], highest)
			if dropped < len(w.drop) {
				c.highest = max(highest, p.members[w.drop[len(w.drop)-1]].high)
			}
		}
		each := p.total / float64(c.count)
		bound := lowest
		if next := max(dropped, boundless); next < len(w.drop) {
			bound = min(bound, p.members[w.drop[next]].high)
		}
		feasible[t] = added >= w.must && each <= bound*(1+exact) && each >= w.floor*(1-exact) && p.enough(c.tally, 1)
	}
	// The goal is, whatever rounding says.
	feasible[changes] = true
	return feasible
}

// remove takes a member out, of which the highest limit of the others is known.
func (c *crowd) remove(m *member, highest float64) {
	c.count--
	c.limits -= m.high
	c.highest = highest
	if c.perDomain[m.domain]--; c.perDomain[m.domain] == 0 {
		c.domains--
	}
}

// at returns the rates after a number of changes.
func (w *path) at(changes int) []float64 {
	added, dropped := w.split(changes)
	is := slices.Clone(w.from)
	for _, i := range w.add[:added] {
		is[i] = true
	}
	for _, i := range w.drop[:dropped] {
		is[i] = false
	}
	var active []int
	for i := range is {
		if is[i] {
			active = append(active, i)
		}
	}
	return w.p.split(active)
}
