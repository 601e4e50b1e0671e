package traffic

import (
	"cmp"
	"math"
	"slices"
)

// now returns the rates that the members' shares make of the total. Shares of
// members that are gone went to the others already. Nobody has any: it is as if
// all had what they get without a plan.
func (p *problem) now(without []float64) []float64 {
	sum := 0.0
	for i := range p.members {
		sum += p.members[i].share
	}
	if sum <= exact {
		return without
	}
	rates := make([]float64, len(p.members))
	for i := range p.members {
		if share := p.members[i].share / sum; share > exact {
			rates[i] = share * p.total
		}
	}
	return rates
}

// moved is the part of the total that is steered elsewhere.
func (p *problem) moved(from, to []float64) float64 {
	sum := 0.0
	for i := range from {
		sum += math.Abs(to[i] - from[i])
	}
	return sum / (2 * p.total)
}

// approach goes from rates in force towards a goal, in one round. What the group
// demands holds all the way: it does at both ends, floors and limits are the same
// for all, and between the ends all those are active that are at one of them.
func (p *problem) approach(now, goal []float64, maxStep float64) []float64 {
	from := now
	if !p.holds(now, inForce) {
		from = p.repair(now, goal)
		maxStep -= p.moved(now, from)
	}
	if maxStep <= 0 {
		return from
	}
	return p.towards(from, goal, maxStep)
}

func (p *problem) towards(from, goal []float64, maxStep float64) []float64 {
	all := p.moved(from, goal)
	if all <= maxStep*(1+exact) {
		return goal
	}
	part := maxStep / all
	next := make([]float64, len(from))
	for i := range next {
		next[i] = from[i] + part*(goal[i]-from[i])
	}
	return next
}

// repair moves as little as it takes for rates to keep what the group demands, and
// that towards the goal.
func (p *problem) repair(now, goal []float64) []float64 {
	rates := slices.Clone(now)
	for i := range p.members {
		m := &p.members[i]
		if m.usable() {
			rates[i] = min(rates[i], m.high)
		}
		rates[i] = max(rates[i], m.floor)
	}
	p.enlist(rates, goal)
	left := p.total
	for i := range rates {
		left -= rates[i]
	}
	// All that is beyond the goal on one side is at least what is left on it.
	side := math.Copysign(1, left)
	room := 0.0
	for i := range rates {
		room += max(0, side*(goal[i]-rates[i]))
	}
	if room <= 0 {
		return rates
	}
	part := min(1, math.Abs(left)/room)
	for i := range rates {
		if side*(goal[i]-rates[i]) > 0 {
			rates[i] += part * (goal[i] - rates[i])
		}
	}
	return rates
}

// enlist activates members of the goal, those first that it gives most, until enough
// are active.
func (p *problem) enlist(rates, goal []float64) {
	var wanted []int
	for i := range rates {
		if rates[i] == 0 && goal[i] > 0 {
			wanted = append(wanted, i)
		}
	}
	slices.SortStableFunc(wanted, func(i, j int) int { return cmp.Compare(goal[j], goal[i]) })
	c := p.crowdOf(rates)
	for _, i := range wanted {
		if p.enough(c.tally, 1) {
			return
		}
		rates[i] = min(p.members[i].low, goal[i])
		c.add(&p.members[i])
	}
}
