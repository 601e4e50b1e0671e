package blocks

import (
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// leastCovered is the share of what is judged of a block that has to be covered.
const leastCovered = 0.8

// origin is where joules are known from, and what part of the node they are of.
type origin struct {
	source model.PowerSource
	scope  model.PowerScope
}

// piece is what was counted over some time, by the node's clock.
type piece struct {
	from, to time.Time
	// seconds that the joules and the work are of: a meter may have missed some.
	seconds float64
	joules  units.Joules
	work    float64
	of      origin
	// unsure is by how much the ends may be off: those of a server's figures are by
	// another clock.
	unsure time.Duration
}

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
	of      origin
	guarded bool
	// cause for which it is excluded, the first that was found.
	cause string
}

func (b *block) exclude(cause string) {
	if b.cause == "" {
		b.cause = cause
	}
}

// share of a piece that is judged. A piece that reaches beyond the block is a mean over
// both settings: it is left out, not cut. One that begins in the wash-out is cut: both
// parts are of the same setting, and the wash-out allows for the meter's interval.
func (b *block) share(p *piece) float64 {
	start, from, to := b.start.Add(p.unsure), b.from.Add(p.unsure), b.to.Add(-p.unsure)
	switch {
	case p.from.Before(start) || p.to.After(to) || !p.to.After(from):
		return 0
	case p.from.Before(from):
		return float64(p.to.Sub(from)) / float64(p.to.Sub(p.from))
	}
	return 1
}

// watch notes that nothing is missing between two pulls.
func (b *block) watch(from, to time.Time) {
	b.watched += b.share(&piece{from: from, to: to}) * to.Sub(from).Seconds()
}

// count adds what is judged of a piece. Joules of two meters do not add up.
func (b *block) count(p *piece) {
	share := b.share(p)
	if share == 0 {
		return
	}
	if b.of == (origin{}) {
		b.of = p.of
	}
	if b.of != p.of {
		b.exclude(MeterChanged)
		return
	}
	b.seconds += share * p.seconds
	b.joules += units.Joules(share) * p.joules
	b.work += share * p.work
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
