package traffictest

import (
	"math"

	"github.com/joulevirt/joulevirt/internal/planner/traffic"
	"github.com/joulevirt/joulevirt/internal/units"
)

// Optimum returns the least cost of a group by trying everything, and false when
// nothing is feasible. Weighted groups take 3^members times members, equal ones
// 2^members steps.
func Optimum(g traffic.Group) (float64, bool) {
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
		t.take(Cost(t.g, t.rates))
	}
}

func (t *trial) take(cost float64) {
	if cost < t.best && Check(t.g, t.rates, 0) == nil {
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
