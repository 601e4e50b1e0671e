package traffictest

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/joulevirt/joulevirt/internal/planner/traffic"
	"github.com/joulevirt/joulevirt/internal/units"
)

// Mbit is a million bits per second.
const Mbit units.BitsPerSecond = 1e6

// Concave returns the cost curve of a VM that costs idle watts without traffic, at
// most bent watts for waking up, half of that at a rate, and perGbit watts for
// moving data.
func Concave(idle, bent units.Watts, half units.BitsPerSecond, perGbit units.Watts) traffic.Curve {
	return func(rate units.BitsPerSecond) units.Watts {
		return idle + bent*units.Watts(rate/(rate+half)) + perGbit*units.Watts(rate/(1000*Mbit))
	}
}

// Random returns a group of VMs of some classes, in which something feasible is
// likely. Equal generators give equal groups.
func Random(r *rand.Rand, members, classes int, granularity traffic.Granularity) traffic.Group {
	g := traffic.Group{
		Total: units.BitsPerSecond(members) * 180 * Mbit, Granularity: granularity, MinActive: 1 + r.IntN(3), MinDomains: r.IntN(3),
		SpareLargest: r.IntN(2) == 0, MaxStep: 1,
	}
	for range classes {
		g.Curves = append(g.Curves, Concave(
			units.Watts(r.Float64()), units.Watts(0.2+4*r.Float64()), Mbit*units.BitsPerSecond(1+200*r.Float64()*r.Float64()), units.Watts(4*r.Float64())))
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

// Cost returns what the members cost at rates, in their order.
func Cost(g traffic.Group, rates []float64) float64 {
	sum := 0.0
	for i := range g.Members {
		sum += float64(g.Curves[g.Members[i].Curve](units.BitsPerSecond(rates[i])))
	}
	return sum
}

// Goals returns the rates that an allocation leads to.
func Goals(g traffic.Group, a traffic.Allocation) []float64 {
	rates := make([]float64, len(a.Shares))
	for i := range rates {
		rates[i] = float64(g.Total) * a.Shares[i].Goal
	}
	return rates
}

// Shares returns the rates of an allocation's next step.
func Shares(g traffic.Group, a traffic.Allocation) []float64 {
	rates := make([]float64, len(a.Shares))
	for i := range rates {
		rates[i] = float64(g.Total) * a.Shares[i].Share
	}
	return rates
}

// Check returns an error when rates break what a group demands by more than a
// slack, in parts.
func Check(g traffic.Group, rates []float64, slack float64) error {
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
