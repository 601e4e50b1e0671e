package traffic_test

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/joulevirt/joulevirt/internal/planner/traffic"
	"github.com/joulevirt/joulevirt/internal/units"
)

// mbit is a million bits per second.
const mbit units.BitsPerSecond = 1e6

// concave returns the cost curve of a VM that costs idle watts without traffic, at
// most bent watts for waking up, half of that at a rate, and perGbit watts for
// moving data.
func concave(idle, bent units.Watts, half units.BitsPerSecond, perGbit units.Watts) traffic.Curve {
	return func(rate units.BitsPerSecond) units.Watts {
		return idle + bent*units.Watts(rate/(rate+half)) + perGbit*units.Watts(rate/(1000*mbit))
	}
}

// randomGroup returns a group of VMs of some classes, in which something feasible is
// likely. Equal generators give equal groups.
func randomGroup(r *rand.Rand, members, classes int, granularity traffic.Granularity) traffic.Group {
	g := traffic.Group{
		Total: units.BitsPerSecond(members) * 180 * mbit, Granularity: granularity, MinActive: 1 + r.IntN(3), MinDomains: r.IntN(3),
		SpareLargest: r.IntN(2) == 0,
	}
	for range classes {
		g.Curves = append(g.Curves, concave(
			units.Watts(r.Float64()), units.Watts(0.2+4*r.Float64()), mbit*units.BitsPerSecond(1+200*r.Float64()*r.Float64()), units.Watts(4*r.Float64())))
	}
	// How much more than the total the members can carry.
	room := 1.3 + 4*r.Float64()
	each := room * float64(g.Total) / float64(members)
	withFloors, domains := r.IntN(3) == 0, 1+r.IntN(4)
	for i := range members {
		m := traffic.Member{
			Name: fmt.Sprintf("vm-%d", i), Domain: fmt.Sprintf("zone-%d", r.IntN(domains)),
			Limit: units.BitsPerSecond(each * (0.3 + 1.4*r.Float64())), Curve: r.IntN(classes),
		}
		if withFloors && r.IntN(3) == 0 {
			m.Floor = m.Limit * units.BitsPerSecond(0.2*r.Float64())
		}
		g.Members = append(g.Members, m)
	}
	return g
}

// costOf returns what the members cost at rates, in their order.
func costOf(g traffic.Group, rates []float64) float64 {
	sum := 0.0
	for i := range g.Members {
		sum += float64(g.Curves[g.Members[i].Curve](units.BitsPerSecond(rates[i])))
	}
	return sum
}

// checkRates returns an error when rates break what a group demands by more than a
// slack, in parts.
func checkRates(g traffic.Group, rates []float64, slack float64) error {
	const rounding = 1e-6
	total := float64(g.Total)
	sum, limits, highest, active := 0.0, 0.0, 0.0, 0
	domains, all := map[string]bool{}, map[string]bool{}
	for i := range g.Members {
		m := &g.Members[i]
		all[m.Domain] = true
		limit := max(float64(m.Limit), float64(m.Floor))
		switch rate := rates[i]; {
		case rate < float64(m.Floor)*(1-slack)-rounding*total:
			return fmt.Errorf("%s has %v bit/s, its floor is %v", m.Name, rate, m.Floor)
		case rate > limit*(1+slack)+rounding*total:
			return fmt.Errorf("%s has %v bit/s, its limit is %v", m.Name, rate, limit)
		case rate > 0:
			active++
			domains[m.Domain] = true
			limits, highest = limits+limit, max(highest, limit)
		}
		sum += rates[i]
	}
	switch {
	case math.Abs(sum-total) > rounding*total:
		return fmt.Errorf("rates add up to %v bit/s of %v", sum, total)
	case active < min(max(1, g.MinActive), len(g.Members)):
		return fmt.Errorf("%d members are active, at least %d have to be", active, g.MinActive)
	case len(domains) < min(g.MinDomains, len(all)):
		return fmt.Errorf("%d failure domains serve, at least %d of %d have to", len(domains), g.MinDomains, len(all))
	case g.SpareLargest && limits-highest < total*(1-slack-rounding):
		return fmt.Errorf("the active members carry %v bit/s without the largest, the total is %v", limits-highest, total)
	}
	return nil
}

// optimum returns the least cost of a group by trying everything, and false when
// nothing is feasible. Weighted groups take 3^members times members, equal ones
// 2^members steps.
func optimum(g traffic.Group) (float64, bool) {
	t := &trial{g: g, best: math.Inf(1), rates: make([]float64, len(g.Members))}
	if g.Granularity == traffic.Equal {
		t.sets()
	} else {
		for rest := range g.Members {
			t.rest = rest
			t.corners(0, float64(g.Total), 0)
		}
	}
	return t.best, !math.IsInf(t.best, 1)
}

type trial struct {
	g     traffic.Group
	rest  int
	rates []float64
	best  float64
}

// sets tries each set of members with equal shares.
func (t *trial) sets() {
	n := len(t.g.Members)
	for set := 1; set < 1<<n; set++ {
		k := 0
		for i := range n {
			k += set >> i & 1
		}
		for i := range n {
			t.rates[i] = float64(set>>i&1) * float64(t.g.Total) / float64(k)
		}
		t.take(costOf(t.g, t.rates))
	}
}

func (t *trial) take(cost float64) {
	if cost < t.best && checkRates(t.g, t.rates, 0) == nil {
		t.best = cost
	}
}

// least is what an active member gets: its floor, or a hundredth of an equal share.
func (t *trial) least(i int) float64 {
	m := &t.g.Members[i]
	share := 0.01 * float64(t.g.Total) / float64(len(t.g.Members))
	return min(max(share, float64(m.Floor)), t.limit(i))
}

func (t *trial) limit(i int) float64 {
	m := &t.g.Members[i]
	return min(max(float64(m.Limit), float64(m.Floor)), float64(t.g.Total))
}

// corners tries nothing, the least and the most for all members from one on, but
// for the one that gets the rest.
func (t *trial) corners(from int, left, cost float64) {
	if left < -1e-6*float64(t.g.Total) {
		return
	}
	of := func(i int, rate float64) float64 {
		return float64(t.g.Curves[t.g.Members[i].Curve](units.BitsPerSecond(rate)))
	}
	switch {
	case from == len(t.rates):
		if left < t.least(t.rest)*(1-1e-9) || left > t.limit(t.rest)*(1+1e-9) {
			return
		}
		t.rates[t.rest] = left
		t.take(cost + of(t.rest, left))
	case from == t.rest:
		t.corners(from+1, left, cost)
	default:
		for _, rate := range []float64{0, t.least(from), t.limit(from)} {
			if rate < float64(t.g.Members[from].Floor) {
				continue
			}
			t.rates[from] = rate
			t.corners(from+1, left-rate, cost+of(from, rate))
		}
	}
}
