package traffic

import (
	"fmt"
)

// highest is the highest rate that makes sense, in bit/s: a thousand times what
// the API takes.
const highest = 1e18

// check returns an error that names the field when a group makes no sense.
func (g *Group) check() error {
	switch {
	case !sensible(float64(g.Total), highest):
		return fmt.Errorf("group: Total of %v bit/s must be from 0 to %g", float64(g.Total), float64(highest))
	case g.Granularity != Weighted && g.Granularity != Equal:
		return fmt.Errorf("group: Granularity %d is neither Weighted nor Equal", g.Granularity)
	case g.MinActive < 0:
		return fmt.Errorf("group: MinActive %d must not be negative", g.MinActive)
	case g.MinDomains < 0:
		return fmt.Errorf("group: MinDomains %d must not be negative", g.MinDomains)
	case !(g.MaxStep > 0 && g.MaxStep <= 1):
		return fmt.Errorf("group: MaxStep %v must be above 0 and up to 1", g.MaxStep)
	case !(g.MinSaving >= 0 && g.MinSaving < 1):
		return fmt.Errorf("group: MinSaving %v must be from 0 to below 1", g.MinSaving)
	}
	for i := range g.Members {
		if err := g.Members[i].check(len(g.Curves)); err != nil {
			return err
		}
	}
	return nil
}

// checkNames returns an error when two members have one name.
func (p *problem) checkNames() error {
	for i := range p.members {
		if i > 0 && p.members[i].name == p.members[i-1].name {
			return fmt.Errorf("group: two members have the Name %q: names must be unique", p.members[i].name)
		}
	}
	return nil
}

func (m *Member) check(curves int) error {
	for _, field := range []struct {
		name       string
		value, top float64
		unit       string
	}{
		{"Share", m.Share, 1, ""},
		{"Rate", float64(m.Rate), highest, " bit/s"},
		{"Floor", float64(m.Floor), highest, " bit/s"},
		{"Limit", float64(m.Limit), highest, " bit/s"},
	} {
		if !sensible(field.value, field.top) {
			return fmt.Errorf("member %q: %s of %v%s must be from 0 to %g", m.Name, field.name, field.value, field.unit, field.top)
		}
	}
	// A group without any curves has none for its members to name.
	if m.Curve < 0 || curves > 0 && m.Curve >= curves {
		return fmt.Errorf("member %q: Curve %d is none of the group's %d", m.Name, m.Curve, curves)
	}
	return nil
}

func sensible(value, top float64) bool { return value >= 0 && value <= top }

// check returns an error when a curve gave something that is no cost.
func (c *costs) check(p *problem) error {
	if !c.broken {
		return nil
	}
	for i := range p.members {
		m := &p.members[i]
		if m.curve == c.brokenCurve {
			return fmt.Errorf("member %q: Curve %d is %v W at %v bit/s: it must be finite", m.name, c.brokenCurve, c.brokenCost, c.brokenRate)
		}
	}
	return nil
}

// costs asks the curves, each of them once for each rate.
type costs struct {
	curves []Curve
	known  map[point]float64

	broken                 bool
	brokenCurve            int
	brokenRate, brokenCost float64
}

type point struct {
	curve int
	rate  float64
}

// of returns what a member with a curve costs at a rate. What is not finite is 0,
// and remembered for check.
func (c *costs) of(curve int, rate float64) float64 {
	at := point{curve, rate}
	if cost, known := c.known[at]; known {
		return cost
	}
	cost := c.ask(curve, rate)
	c.known[at] = cost
	return cost
}
