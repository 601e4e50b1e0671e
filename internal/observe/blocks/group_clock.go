package blocks

import (
	"time"

	"github.com/joulevirt/joulevirt/internal/energy/stream"
)

// groupClock compares a node's clock with the manager's.
type groupClock struct {
	stream.Clock
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
		clock.Compare(sight.Rates.Time, sight.Received)
		clock.last = sight.Rates.Time
	}
	rates := *sight.Rates
	rates.Time = rates.Time.Add(-clock.Ahead())
	sight.Rates = &rates
	return sight
}
