package traffic

import (
	"math"

	"github.com/joulevirt/joulevirt/internal/units"
)

// ask returns what a curve says.
func (c *costs) ask(curve int, rate float64) float64 {
	cost := float64(c.curves[curve](units.BitsPerSecond(rate)))
	if math.IsNaN(cost) || math.IsInf(cost, 0) {
		if !c.broken {
			c.broken, c.brokenCurve, c.brokenRate, c.brokenCost = true, curve, rate, cost
		}
		return 0
	}
	return cost
}

// unknownCurves tells whether some member's cost is not known.
func (p *problem) unknownCurves() bool {
	for i := range p.members {
		if len(p.costs.curves) == 0 || p.costs.curves[p.members[i].curve] == nil {
			return true
		}
	}
	return false
}

// straight is how far a curve may be from its chord, in parts of its rise, and
// still be a straight line: well below what curves are known to.
const straight = 0.01

// linearCurves tells whether no member's cost bends, up to its limit. Then there
// is nothing to gain by bringing traffic together. That one line is steeper than
// another is the least certain of what is learned, and moves nothing.
func (p *problem) linearCurves() bool {
	highs := make([]float64, len(p.costs.curves))
	for i := range p.members {
		m := &p.members[i]
		highs[m.curve] = max(highs[m.curve], m.high)
	}
	for curve, high := range highs {
		if high == 0 {
			continue // nobody's
		}
		none := p.costs.ask(curve, 0)
		rise := p.costs.ask(curve, high) - none
		for _, part := range []float64{1.0 / 256, 1.0 / 64, 1.0 / 16, 1.0 / 4, 1.0 / 2, 3.0 / 4} {
			if math.Abs(p.costs.ask(curve, part*high)-none-part*rise) > straight*math.Abs(rise) {
				return false
			}
		}
	}
	return true
}
