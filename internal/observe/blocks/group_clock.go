package blocks

import "time"

// groupClock is by how much a node's clock is ahead of the manager's.
type groupClock struct {
	known bool
	ahead time.Duration
	// last is the time of the rates that it was last compared by, by the node's clock.
	last time.Time
}

// byOurClock gives rates the time that they have by the manager's clock: it is the
// manager that switches groups. Where one of the clocks was set, they are compared anew: of
// the node's nothing depends then, and where it was the manager's the time between two rates
// is another than the agent counted, which excludes what is measured.
func (g *Groups) byOurClock(node string, sight Sight) Sight {
	if sight.Rates == nil {
		return sight
	}
	clock := g.clocks[node]
	if clock == nil {
		clock = &groupClock{}
		g.clocks[node] = clock
	}
	if !clock.last.Equal(sight.Rates.Time) {
		clock.compare(sight.Rates.Time.Sub(sight.Received))
		clock.last = sight.Rates.Time
	}
	rates := *sight.Rates
	rates.Time = rates.Time.Add(-clock.ahead)
	sight.Rates, sight.Meter = &rates, sight.Meter.By(clock.ahead)
	return sight
}

// compare takes in what rates say of the clock: those that were on their way for the
// shortest time are right.
func (c *groupClock) compare(ahead time.Duration) {
	switch {
	case !c.known || (ahead-c.ahead).Abs() > clocksAgree:
		c.known, c.ahead = true, ahead
	default:
		c.ahead = max(ahead, c.ahead-drift)
	}
}
