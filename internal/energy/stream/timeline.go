package stream

import (
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

const (
	// pulls that a timeline holds, 15 minutes of them: intervals of Prometheus are 10 minutes
	// at most, and some minutes old when they come.
	pulls = 64
	// LongestGap between two pulls within which an end of an interval may lie: in a
	// longer one, when the load fell is a guess.
	LongestGap = time.Minute
)

// timeline is an agent's totals over the last minutes, as a ring. The zero value is ready.
type timeline struct {
	points [pulls]point
	// next is where the next point goes, and count how many there are.
	next, count int
}

type point struct {
	at     time.Time
	totals model.Totals
}

// add records the totals of a later moment. After a restart of the agent, what was
// before does not belong to what follows.
func (l *timeline) add(at time.Time, totals model.Totals) {
	if last := l.back(0); last != nil {
		switch {
		case !last.totals.Since.Equal(totals.Since):
			l.next, l.count = 0, 0
		case !at.After(last.at):
			return
		}
	}
	l.points[l.next] = point{at, totals}
	l.next = (l.next + 1) % pulls
	l.count = min(l.count+1, pulls)
}

// back returns the point that is so many before the last, or nil.
func (l *timeline) back(n int) *point {
	if n >= l.count {
		return nil
	}
	return &l.points[(l.next-1-n+2*pulls)%pulls]
}

// knowledge is whether the totals at the ends of an interval are known.
type knowledge int

const (
	isKnown knowledge = iota
	// tooEarly: pulls have not yet come to its end.
	tooEarly
	// isLost: it began before the first pull, or an end lies in a gap.
	isLost
)

// between returns the totals at the ends of an interval.
func (l *timeline) between(from, to time.Time) (begin, end model.Totals, known knowledge) {
	last := l.back(0)
	if last == nil || to.After(last.at) {
		return begin, end, tooEarly
	}
	begin, found := l.totals(from)
	end, alsoFound := l.totals(to)
	if !found || !alsoFound {
		return begin, end, isLost
	}
	return begin, end, isKnown
}

// totals returns the totals of a moment between two pulls, as if the load was
// constant between them.
func (l *timeline) totals(at time.Time) (model.Totals, bool) {
	for n := 0; ; n++ {
		after, before := l.back(n), l.back(n+1)
		if after == nil {
			return model.Totals{}, false
		}
		if at.Equal(after.at) {
			return after.totals, true
		}
		if before == nil {
			return model.Totals{}, false
		}
		if !before.at.Before(at) {
			continue
		}
		gap := after.at.Sub(before.at)
		share := float64(at.Sub(before.at)) / float64(gap)
		return mixed(&before.totals, &after.totals, share), gap <= LongestGap
	}
}

func mixed(from, to *model.Totals, share float64) model.Totals {
	mix := func(x, y float64) float64 { return x + share*(y-x) }
	return model.Totals{
		Since:            from.Since,
		Seconds:          mix(from.Seconds, to.Seconds),
		BusyCoreSeconds:  mix(from.BusyCoreSeconds, to.BusyCoreSeconds),
		AwakeCoreSeconds: mix(from.AwakeCoreSeconds, to.AwakeCoreSeconds),
		WakeUps:          mix(from.WakeUps, to.WakeUps),
		Joules:           units.Joules(mix(float64(from.Joules), float64(to.Joules))),
		MeteredSeconds:   mix(from.MeteredSeconds, to.MeteredSeconds),
		Bytes:            mix(from.Bytes, to.Bytes),
		SentBytes:        mix(from.SentBytes, to.SentBytes),
		SentPackets:      mix(from.SentPackets, to.SentPackets),
		AgentSeconds:     mix(from.AgentSeconds, to.AgentSeconds),
	}
}
