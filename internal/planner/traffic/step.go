package traffic

import (
	"cmp"
	"math"
	"slices"
	"sort"
)

// now returns the rates that the members' shares make of the total. Shares of
// members that are gone went to the others already. When nobody has any, it is as if
// all had what they get without a plan.
func (p *problem) now(without []float64) []float64 {
	sum := 0.0
	for i := range p.Members {
		sum += p.Members[i].Share
	}
	if sum <= exact {
		return without
	}
	rates := make([]float64, len(p.members))
	for i := range p.Members {
		if share := p.Members[i].Share / sum; share > exact {
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

// Step returns the shares of this round, on the way from the shares in force to goals, all in the
// order of the members. It moves maxStep of the traffic, or as much more as it takes for
// the group's demands to hold, or to change the share of one member where shares are equal.
func Step(g Group, goals []float64, maxStep float64) []float64 {
	p := newProblem(&g)
	goal := make([]float64, len(goals))
	for i := range goals {
		goal[i] = goals[i] * p.total
	}
	now := p.now(p.even())
	if p.moved(now, goal) <= maxStep*(1+exact) {
		return goals
	}
	// Goals that no longer hold, since limits fell, are gone to all the same.
	demands := p.holds(goal, inForce)
	var next []float64
	if g.Granularity == Equal {
		next = p.stepEqual(now, goal, maxStep, demands)
	} else {
		next = p.stepWeighted(now, goal, maxStep, demands)
	}
	for i := range next {
		next[i] /= p.total
	}
	return next
}

// stepWeighted moves a part of all rates. Between two splits that hold all others hold
// as well: all those are active that are at one of the ends.
func (p *problem) stepWeighted(now, goal []float64, maxStep float64, demands bool) []float64 {
	all := p.moved(now, goal)
	for step := maxStep; step < all; step += maxStep {
		rates := slices.Clone(now)
		for i := range rates {
			rates[i] += step / all * (goal[i] - now[i])
		}
		if !demands || p.holds(rates, inForce) {
			return rates
		}
	}
	return goal
}

// stepEqual goes from one set of active members with equal shares to another: it first adds
// members, those with the highest limits first, and then removes others, those with the lowest
// limits first. So limits hold best on the way, and there are never fewer to carry a loss
// than at one of the ends.
func (p *problem) stepEqual(now, goal []float64, maxStep float64, demands bool) []float64 {
	var changes, drop []int
	for i := range now {
		switch {
		case now[i] <= 0 && goal[i] > 0:
			changes = append(changes, i)
		case now[i] > 0 && goal[i] <= 0:
			drop = append(drop, i)
		}
	}
	slices.SortStableFunc(changes, func(i, j int) int { return cmp.Compare(p.members[j].high, p.members[i].high) })
	slices.SortFunc(drop, func(i, j int) int { return cmp.Or(cmp.Compare(p.members[i].high, p.members[j].high), j-i) })
	changes = append(changes, drop...)
	after := func(count int) []float64 {
		rates, active := slices.Clone(now), 0
		for _, i := range changes[:count] {
			rates[i] = goal[i]
		}
		for _, rate := range rates {
			if rate > 0 {
				active++
			}
		}
		for i := range rates {
			if rates[i] > 0 {
				rates[i] = p.total / float64(active)
			}
		}
		return rates
	}
	// within is how many changes the step allows: with each more moves.
	within := sort.Search(len(changes), func(i int) bool { return p.moved(now, after(i+1)) > maxStep*(1+exact) })
	for count := within; count > 0; count-- {
		if rates := after(count); !demands || p.holds(rates, 0) {
			return rates
		}
	}
	for count := within + 1; count < len(changes); count++ {
		if rates := after(count); !demands || p.holds(rates, 0) {
			return rates
		}
	}
	return goal
}
