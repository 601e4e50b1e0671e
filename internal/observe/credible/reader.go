package credible

import (
	"math"
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/observe/timeline"
	"github.com/joulevirt/joulevirt/internal/power"
	"github.com/joulevirt/joulevirt/internal/verify/ledger"
)

const (
	// shortest is what is too short to tell a power by, longestGap what nothing is told over.
	shortest, longestGap = 5 * time.Second, 10 * time.Minute
	// longestPull is the longest time between two pulls of which the mean is taken.
	longestPull = 5 * time.Minute
	// mostJitter is the share by which what a meter covers may differ from the time.
	mostJitter = 0.1
	// jump of the node's clock, seen from the manager's and from what the agent counts.
	jump = 10 * time.Second
	// mostWaiting figures wait for the pulls of their interval.
	mostWaiting = 8
)

// piece is what was metered over some time, by the node's clock.
type piece struct {
	from, to time.Time
	watts    float64
	// busy cores meanwhile.
	busy float64
	// other is what the node's own counters say, where the policy's meter is another. 0:
	// they say nothing.
	other float64
	// apart is true when both are of different parts of the node, and so by different
	// instruments.
	apart bool
}

func (p *piece) seconds() float64 { return p.to.Sub(p.from).Seconds() }

// origin is where joules are known from, and what part of the node they are of.
type origin struct {
	source model.PowerSource
	scope  model.PowerScope
}

// reader makes pieces of what is known of a node.
type reader struct {
	of   origin
	line timeline.Line
	// last rates that were read, and received when.
	last     *model.NodeRates
	received time.Time
	// mark up to which counters are in pieces. Nil: none.
	mark *model.NodeRates
	// figure is the time of a server's newest, by its clock.
	figure  time.Time
	waiting []waiting
	// jumped is true when the node's clock was set.
	jumped bool
}

type waiting struct {
	from, to time.Time
	watts    float64
}

// renewed tells whether what was known is of another meter, or by another clock.
func (r *reader) renewed(sight *Sight) bool {
	if r.last != nil && sight.Rates != nil && sight.Rates.Totals != nil && !sight.Rates.Time.Equal(r.last.Time) {
		theirs, ours := sight.Rates.Time.Sub(r.last.Time), sight.Received.Sub(r.received)
		counted := sight.Rates.Totals.Seconds - r.last.Totals.Seconds
		same := sight.Rates.Totals.Since.Equal(r.last.Totals.Since)
		if theirs < 0 || (theirs-ours).Abs() > jump && same && math.Abs(theirs.Seconds()-counted) > jump.Seconds() {
			*r = reader{of: r.of, jumped: true}
			return true
		}
	}
	if sight.Power == nil || !sight.Power.Source.Measures() {
		return false
	}
	of := origin{sight.Power.Source, sight.Power.Scope}
	renewed := r.of != (origin{}) && r.of != of
	if r.of != of {
		*r = reader{of: of, line: r.line, last: r.last, received: r.received}
	}
	return renewed
}

// read what is new.
func (r *reader) read(sight *Sight, now time.Time, each func(piece)) {
	if rates := sight.Rates; rates != nil && rates.Totals != nil && (r.last == nil || rates.Time.After(r.last.Time)) {
		r.last, r.received = rates, sight.Received
		r.line.Add(rates.Time, *rates.Totals)
		r.count(sight, each)
	}
	if r.of.source == model.SourcePrometheus && r.last != nil {
		r.take(sight.Power, now)
		r.serve(each)
	}
}

// count what the agent's own meter says, if the policy takes it.
func (r *reader) count(sight *Sight, each func(piece)) {
	own := sight.Rates.Power
	if sight.Power == nil || sight.Power.Source != model.SourceRAPL || own == nil || own.Source != model.SourceRAPL || r.of != (origin{own.Source, own.Scope}) {
		r.mark = nil
		return
	}
	mark := r.mark
	if mark == nil || !mark.Totals.Since.Equal(r.last.Totals.Since) || r.last.Time.Sub(mark.Time) > longestPull {
		r.mark = r.last
		return
	}
	if r.last.Time.Sub(mark.Time) < shortest {
		return
	}
	r.mark = r.last
	p := piece{from: mark.Time, to: r.last.Time}
	if watts, is := metered(mark.Totals, r.last.Totals, p.seconds()); is {
		if load, _, is := power.LoadBetween(mark.Totals, r.last.Totals); is {
			p.watts, p.busy = watts, float64(load.BusyCores)
			each(p)
		}
	}
}

// metered is the mean power between two totals.
func metered(from, to *model.Totals, seconds float64) (watts float64, is bool) {
	covered, joules := to.MeteredSeconds-from.MeteredSeconds, float64(to.Joules-from.Joules)
	watts = joules / covered
	return watts, math.Abs(covered-seconds) <= mostJitter*seconds && covered > 0 && canBe(watts)
}

// canBe tells whether a node may draw so much. What no node draws says nothing of a level, which
// is a mean.
func canBe(watts float64) bool { return watts > 0 && watts <= float64(ledger.MostNodeWatts) }

// take a server's newest figure.
func (r *reader) take(p *model.Power, now time.Time) {
	if p == nil || p.Source != model.SourcePrometheus || !p.Time.After(r.figure) || p.Time.After(now.Add(jump)) {
		return
	}
	since, interval := p.Time.Sub(r.figure), time.Duration(p.IntervalSeconds*float64(time.Second))
	first := r.figure.IsZero()
	r.figure = p.Time
	if interval <= 0 && !first {
		interval = since
	}
	if interval < shortest || interval > longestPull || !canBe(float64(p.Watts)) {
		return
	}
	to := p.Time.Add(r.last.Time.Sub(r.received))
	r.waiting = append(r.waiting, waiting{to.Add(-interval), to, float64(p.Watts)})
	r.waiting = r.waiting[max(0, len(r.waiting)-mostWaiting):]
}

// serve the figures for which pulls have come.
func (r *reader) serve(each func(piece)) {
	for len(r.waiting) > 0 {
		f := r.waiting[0]
		begin, end, verdict := r.line.Between(f.from, f.to)
		if verdict == timeline.TooEarly {
			return
		}
		r.waiting = append(r.waiting[:0], r.waiting[1:]...)
		load, _, is := power.LoadBetween(&begin, &end)
		if verdict == timeline.Lost || !is {
			continue
		}
		p := piece{from: f.from, to: f.to, watts: f.watts, busy: float64(load.BusyCores)}
		if own := r.last.Power; own != nil && own.Source == model.SourceRAPL {
			if watts, is := metered(&begin, &end, p.seconds()); is {
				p.other, p.apart = watts, own.Scope != r.of.scope
			}
		}
		each(p)
	}
}
