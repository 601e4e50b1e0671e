package blocks

import (
	"time"

	"github.com/joulevirt/joulevirt/internal/energy/stream"
	"github.com/joulevirt/joulevirt/internal/units"
)

// leastCovered is the share of what is judged of a block that has to be covered.
const leastCovered = 0.8

// block that is measured. Its times are by the node's clock.
type block struct {
	// number in the schedule. -1: the time before the first, see follower.
	number int
	on     bool
	// start of the whole block; what is judged is from and to.
	start, from, to time.Time
	// watched seconds are those that pulls lie around.
	watched float64
	// what was counted of what is judged.
	seconds float64
	joules  units.Joules
	work    float64
	of      stream.Origin
	guarded bool
	// cause for which it is excluded, the first that was found.
	cause string
}

func (b *block) exclude(cause string) {
	if b.cause == "" {
		b.cause = cause
	}
}

// share of an interval that is judged. One that reaches beyond the block is a mean over
// both settings: it is left out, not cut. One that begins in the wash-out is cut: both
// parts are of the same setting, and the wash-out allows for the meter's interval.
func (b *block) share(p *stream.Interval) float64 {
	start, from, to := b.start.Add(p.Uncertainty), b.from.Add(p.Uncertainty), b.to.Add(-p.Uncertainty)
	switch {
	case p.From.Before(start) || p.To.After(to) || !p.To.After(from):
		return 0
	case p.From.Before(from):
		return float64(p.To.Sub(from)) / float64(p.To.Sub(p.From))
	}
	return 1
}

// watch notes that nothing is missing between two pulls.
func (b *block) watch(from, to time.Time) {
	b.watched += b.share(&stream.Interval{From: from, To: to}) * to.Sub(from).Seconds()
}

// count adds what is judged of an interval. Joules of two meters do not add up.
func (b *block) count(p *stream.Interval) {
	share := b.share(p)
	if share == 0 {
		return
	}
	if b.of == (stream.Origin{}) {
		b.of = p.Origin
	}
	if b.of != p.Origin {
		b.exclude(MeterChanged)
		return
	}
	b.seconds += share * p.Seconds
	b.joules += units.Joules(share) * p.Joules
	b.work += share * p.Work()
}

// finish excludes a block of which too little is known.
func (b *block) finish() {
	least := leastCovered * b.to.Sub(b.from).Seconds()
	switch {
	case b.watched < least:
		b.exclude(NotWatched)
	case b.seconds < least:
		b.exclude(MeterFailed)
	}
}
