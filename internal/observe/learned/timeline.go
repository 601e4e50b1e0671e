package learned

import (
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/power"
)

const (
	// timelineLength covers 15 minutes of pulls: intervals of Prometheus are 5
	// minutes at most, and some minutes old when they come.
	timelineLength = 64
	// longestGap between two pulls within which an end of an interval may lie: in
	// a longer one, where the load fell is a guess.
	longestGap = time.Minute
)

// timeline is an agent's totals over the last minutes, as a ring.
type timeline struct {
	points [timelineLength]point
	// next is where the next point goes, and count how many there are.
	next, count int
}

type point struct {
	at     time.Time
	totals model.Totals
}

// add takes the totals of a later moment. After a restart of the agent, what was
// before does not belong to what follows.
func (t *timeline) add(at time.Time, totals model.Totals) {
	if last := t.last(); last != nil {
		switch {
		case !last.totals.Since.Equal(totals.Since):
			t.next, t.count = 0, 0
		case !at.After(last.at):
			return
		}
	}
	t.points[t.next] = point{at, totals}
	t.next = (t.next + 1) % timelineLength
	t.count = min(t.count+1, timelineLength)
}

func (t *timeline) last() *point { return t.back(0) }

// back returns the point that is so many before the last, or nil.
func (t *timeline) back(n int) *point {
	if n >= t.count {
		return nil
	}
	return &t.points[(t.next-1-n+2*timelineLength)%timelineLength]
}

// verdict says whether the load over an interval can be told.
type verdict int

const (
	known verdict = iota
	// tooEarly: pulls have not yet come to its end.
	tooEarly
	// lost: it began before the first pull, or lies across a gap.
	lost
)

// load returns the mean load over an interval.
func (t *timeline) load(from, to time.Time) (power.Load, verdict) {
	last := t.last()
	if last == nil || to.After(last.at) {
		return power.Load{}, tooEarly
	}
	begin, found := t.totals(from)
	end, alsoFound := t.totals(to)
	if !found || !alsoFound {
		return power.Load{}, lost
	}
	load, _, ok := power.LoadBetween(&begin, &end)
	if !ok {
		return power.Load{}, lost
	}
	return load, known
}

// totals returns the totals of a moment between two pulls, as if the load was
// constant between them.
func (t *timeline) totals(at time.Time) (model.Totals, bool) {
	for n := 0; ; n++ {
		after, before := t.back(n), t.back(n+1)
		if after == nil {
			return model.Totals{}, false
		}
		if at.Equal(after.at) {
			return after.totals, true
		}
		if before == nil {
			return model.Totals{}, false
		}
		if before.at.After(at) {
			continue
		}
		gap := after.at.Sub(before.at)
		share := float64(at.Sub(before.at)) / float64(gap)
		return between(before.totals, after.totals, share), gap <= longestGap
	}
}

func between(from, to model.Totals, share float64) model.Totals {
	mix := func(x, y float64) float64 { return x + share*(y-x) }
	return model.Totals{
		Since:            from.Since,
		Seconds:          mix(from.Seconds, to.Seconds),
		BusyCoreSeconds:  mix(from.BusyCoreSeconds, to.BusyCoreSeconds),
		AwakeCoreSeconds: mix(from.AwakeCoreSeconds, to.AwakeCoreSeconds),
		WakeUps:          mix(from.WakeUps, to.WakeUps),
	}
}
