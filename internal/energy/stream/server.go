package stream

import (
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

const (
	// longestHold is how long a figure without an interval stands for the time since the
	// one before.
	longestHold = 5 * time.Minute
	// mostWaiting figures wait for the pulls of their interval.
	mostWaiting = 8
	// mostOverlap of an interval with the one before: it is cut by less, and left out with
	// more.
	mostOverlap = 0.1
	// mostUnseen is how long a time between two figures may be that neither is of: the
	// server is queried less often than some exporters count. The later one stands for it.
	mostUnseen = 30 * time.Second
)

// figure of a Prometheus server, by the node's clock.
type figure struct {
	Origin
	from, to time.Time
	watts    units.Watts
}

// server makes intervals of the figures of a Prometheus server. They come late, and have
// intervals of their own.
type server struct {
	// line is nil until the first figure: most nodes have a meter of their own.
	line *timeline
	// waiting are figures whose interval is not over in the line, the oldest first.
	waiting []figure
	// last is the time of the newest figure by the server's clock, and lastEnd the same by
	// the node's.
	last, lastEnd time.Time
	// done is the end of the newest figure that no longer waits, and used that of the newest
	// that became an interval.
	done, used time.Time
}

// add lets a new figure wait.
func (s *server) add(p *model.Power, now time.Time, ahead time.Duration) {
	if !p.Time.After(s.last) || p.Time.After(now.Add(clocksAgree)) {
		return
	}
	end, begin := p.Time.Add(ahead), s.lastEnd
	if p.IntervalSeconds > 0 {
		begin = end.Add(-time.Duration(p.IntervalSeconds * float64(time.Second)))
	}
	s.last, s.lastEnd = p.Time, end
	if !end.After(begin) || p.IntervalSeconds == 0 && end.Sub(begin) > longestHold {
		return
	}
	s.waiting = append(s.waiting, figure{Origin{p.Source, p.Scope}, begin, end, p.Watts})
}

// complete adds the intervals of the figures for which pulls have come, or of all.
func (s *server) complete(step *Step, all bool) {
	for len(s.waiting) > 0 {
		f := s.waiting[0]
		f.join(s.used)
		begin, end, known := s.line.between(f.from, f.to)
		if known == tooEarly && !all && len(s.waiting) <= mostWaiting {
			return
		}
		s.waiting = append(s.waiting[:0], s.waiting[1:]...)
		s.done = f.to
		if f.from.Before(s.used) {
			continue
		}
		s.used = f.to
		seconds := f.to.Sub(f.from).Seconds()
		step.Intervals = append(step.Intervals, Interval{
			Origin: f.Origin, From: f.from, To: f.to, Seconds: seconds, Joules: units.Joules(float64(f.watts) * seconds),
			Begin: begin, End: end, HasTotals: known == isKnown, Uncertainty: clocksAgree,
		})
	}
}

// join has a figure begin where the one before ends, if both are near.
func (f *figure) join(used time.Time) {
	overlap := used.Sub(f.from)
	if overlap <= time.Duration(mostOverlap*float64(f.to.Sub(f.from))) && overlap >= -mostUnseen {
		f.from = used
	}
}

// isPast is true if no figure is to come that lies before a time.
func (s *server) isPast(at time.Time) bool {
	return !s.done.Before(at) && (len(s.waiting) == 0 || !s.waiting[0].from.Before(at))
}

// restart forgets what is by a clock or a count that ended. What the figures that wait for
// totals are of was drawn nevertheless.
func (s *server) restart(step *Step) {
	s.complete(step, true)
	last, had := s.last, s.line != nil
	*s = server{last: last}
	if had {
		s.line = &timeline{}
	}
}
