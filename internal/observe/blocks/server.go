package blocks

import (
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/observe/timeline"
	"github.com/joulevirt/joulevirt/internal/units"
)

const (
	// clocksAgree is how far a server's clock may be from the manager's, and a pull from
	// the round that it brings. Ends of a server's figures are taken to be off by as much.
	clocksAgree = 5 * time.Second
	// longestHold is how long a figure without an interval stands for the time since the
	// one before, and longestInterval the longest that is believed.
	longestHold     = 5 * time.Minute
	longestInterval = time.Hour
	// mostWaiting figures wait for the pulls of their interval.
	mostWaiting = 8
	// mostOverlap of an interval with the one before: it is cut by less, and left out with
	// more.
	mostOverlap = 0.1
	// mostUnseen is how long a time between two figures may be that neither is of: the
	// server is asked less often than some exporters count. The later one stands for it.
	mostUnseen = 30 * time.Second
)

// figure of a server, by the node's clock.
type figure struct {
	from, to time.Time
	watts    units.Watts
	of       origin
}

// server makes pieces of the figures of a Prometheus server.
type server struct {
	// line is nil until the first figure.
	line *timeline.Line
	// waiting are figures whose interval is not over in the line, the oldest first.
	waiting []figure
	// last is the time of the newest figure by the server's clock, and lastEnd the same by
	// the node's.
	last, lastEnd time.Time
	// done is the end of the newest figure that no longer waits, and taken that of what is
	// in pieces.
	done, taken time.Time
}

// take lets a new figure wait. offset is by how much the node's clock is ahead.
func (s *server) take(p *model.Power, now time.Time, offset time.Duration) {
	watts, interval := p.Watts, p.IntervalSeconds
	switch {
	case !p.Time.After(s.last) || p.Time.After(now.Add(clocksAgree)),
		!(watts >= 0 && watts < mostWatts), !(interval >= 0 && interval <= longestInterval.Seconds()):
		return
	}
	if s.line == nil {
		s.line = &timeline.Line{}
	}
	end, begin := p.Time.Add(offset), s.lastEnd
	if interval > 0 {
		begin = end.Add(-time.Duration(interval * float64(time.Second)))
	}
	s.last, s.lastEnd = p.Time, end
	if !end.After(begin) || interval == 0 && end.Sub(begin) > longestHold {
		return
	}
	if len(s.waiting) == mostWaiting {
		s.waiting = append(s.waiting[:0], s.waiting[1:]...)
	}
	s.waiting = append(s.waiting, figure{begin, end, watts, origin{p.Source, p.Scope}})
}

// pieces of the figures for which pulls have come.
func (s *server) pieces(each func(*piece)) {
	for len(s.waiting) > 0 {
		f := s.waiting[0]
		f.join(s.taken)
		begin, end, verdict := s.line.Between(f.from, f.to)
		if verdict == timeline.TooEarly {
			return
		}
		s.waiting = append(s.waiting[:0], s.waiting[1:]...)
		s.done = f.to
		if verdict == timeline.Lost || f.from.Before(s.taken) {
			continue
		}
		s.taken = f.to
		seconds := f.to.Sub(f.from).Seconds()
		each(&piece{
			from: f.from, to: f.to, seconds: seconds, of: f.of, unsure: clocksAgree,
			joules: units.Joules(float64(f.watts) * seconds), work: end.Bytes - begin.Bytes,
		})
	}
}

// join has a figure begin where the one before ends, if both are near.
func (f *figure) join(taken time.Time) {
	overlap := taken.Sub(f.from)
	if overlap <= time.Duration(mostOverlap*float64(f.to.Sub(f.from))) && overlap >= -mostUnseen {
		f.from = taken
	}
}

// isPast tells whether no figure is to come that lies before a time.
func (s *server) isPast(to time.Time) bool {
	return !s.done.Before(to) && (len(s.waiting) == 0 || !s.waiting[0].from.Before(to))
}

// restart forgets what is by a clock that the node has no more.
func (s *server) restart() { *s = server{last: s.last} }
