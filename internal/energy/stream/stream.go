// Package stream integrates what meters and agents report of a node into intervals: from when
// to when, how many joules, how much work, and by which meter. What learns, tries and books
// reads the same intervals. The package is pure: clocks are given.
package stream

import (
	"math"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

const (
	// mostJitter is the share by which the time that a meter covers may differ from that
	// of its interval.
	mostJitter = 0.1
	// longestSilence of an agent's meter after which its next reading may be of that time.
	longestSilence = 2 * time.Minute
	// mostWatts and mostBytes per second are above every machine. A counter that started over
	// within an agent and returns to its old value makes some seconds of more.
	mostWatts = 20_000
	mostBytes = 1e15 / 8
	// mostMissed is how many seconds of rounds an agent may miss between two pulls whose
	// clocks disagree.
	mostMissed = 2
)

// Sample is what is known of a node at one moment.
type Sample struct {
	// Rates are the agent's newest, Received when they came by the manager's clock. Nil:
	// none are fresh.
	Rates    *model.NodeRates
	Received time.Time
	// Power by the first of the policy's sources that has it. Nil: none has.
	Power *model.Power
	// Now by the manager's clock.
	Now time.Time
}

// Origin is the meter of some joules, and what part of the node it covers.
type Origin struct {
	Source v1alpha1.PowerSource
	Scope  v1alpha1.PowerScope
}

// Interval is what a node drew and did in some time, by the node's clock.
type Interval struct {
	Origin
	From, To time.Time
	// Seconds that a meter covered: it may have missed some.
	Seconds float64
	Joules  units.Joules
	// Begin and End are the agent's totals at the ends, if HasTotals.
	Begin, End model.Totals
	HasTotals  bool
	// Uncertainty is by how much the ends may be off: a server has another clock.
	Uncertainty time.Duration
}

// IsWhole is true if the meter covered all of the interval and the agent's totals are known.
func (i *Interval) IsWhole() bool {
	length := i.To.Sub(i.From).Seconds()
	return i.HasTotals && math.Abs(i.Seconds-length) <= mostJitter*length
}

// Traffic returns the bytes that VMs received and sent in the time that the meter covered.
func (i *Interval) Traffic() (received, sent float64) {
	covered := min(1, i.Seconds/i.To.Sub(i.From).Seconds())
	sent = covered * (i.End.SentBytes - i.Begin.SentBytes)
	return covered*(i.End.Bytes-i.Begin.Bytes) - sent, sent
}

// headers is what Ethernet, IPv4 and TCP with time stamps add to each packet, in bytes.
const headers = 66

// Payload returns the bytes that VMs sent in the time that the meter covered without those of packets'
// headers, so that acknowledgements are nothing.
func (i *Interval) Payload() float64 {
	_, sent := i.Traffic()
	covered := min(1, i.Seconds/i.To.Sub(i.From).Seconds())
	return max(0, sent-headers*covered*(i.End.SentPackets-i.Begin.SentPackets))
}

// Break is why a round of an agent does not continue the one before. Empty: it does.
type Break string

// The breaks.
const (
	// ClockJumped: the clock of the node was set, or, with figures of a server, the manager's.
	ClockJumped Break = "ClockJumped"
	// AgentRestarted: the agent's counts started over.
	AgentRestarted Break = "AgentRestarted"
	// MeterChanged: the agent reads another meter, and counts anew.
	MeterChanged Break = "MeterChanged"
	// Contradictory: the totals cannot follow those before.
	Contradictory Break = "Contradictory"
)

// Step is what one sample added.
type Step struct {
	// IsNew is true if the rates are of a new round with totals. At is when it ended, and
	// Previous the round before; zero: there was none. Both are by the node's clock.
	IsNew        bool
	Previous, At time.Time
	Break        Break
	// Intervals that are complete now, each reported once.
	Intervals []Interval
}

// pull is one round of an agent.
type pull struct {
	// at is by the node's clock, received by the manager's.
	at, received time.Time
	totals       model.Totals
	// meter is what the agent reads. of is the same if the policy uses it, else zero.
	meter, of Origin
}

// Stream follows one node. The zero value is ready. It is not for concurrent use.
type Stream struct {
	clock Clock
	// pulled is the last round. Its time is zero before the first.
	pulled pull
	// counted is the round up to which all is in an interval, or lost.
	counted pull
	server  server
	// byServer is true while the policy reads the power from a server.
	byServer bool
}

// Observe returns what a sample adds. It is called at least as often as rates and figures
// come; what was observed before counts once.
func (s *Stream) Observe(sample Sample) Step {
	var step Step
	if sample.Power != nil {
		s.byServer = sample.Power.Source == v1alpha1.PowerPrometheus
		if s.byServer && s.server.line == nil {
			s.server.line = &timeline{}
		}
	}
	if sample.Rates != nil && sample.Rates.Totals != nil {
		s.observeRates(&sample, &step)
	}
	if sample.Power != nil && s.byServer {
		s.server.add(sample.Power, sample.Now, s.clock.Ahead())
	}
	// Rates that are not fresh leave a gap in which no end of an interval is known.
	s.server.complete(&step, sample.Rates == nil)
	return step
}

// Ahead is by how much the node's clock is ahead of the manager's.
func (s *Stream) Ahead() time.Duration { return s.clock.Ahead() }

// IsPast is true if all intervals before a time, by the node's clock, were reported.
func (s *Stream) IsPast(at time.Time) bool {
	return !s.pulled.at.IsZero() && !s.pulled.at.Before(at) && (!s.byServer || s.server.isPast(at))
}

func (s *Stream) observeRates(sample *Sample, step *Step) {
	next, last := pullOf(sample), s.pulled
	if !last.at.IsZero() {
		if next.isOlder(&last) {
			return
		}
		step.Break = next.breakFrom(&last)
	}
	jumped := s.clock.Compare(next.at, next.received)
	if step.Break == "" && jumped && !last.at.IsZero() && s.byServer {
		// What agents count is by the node's clock alone.
		step.Break = ClockJumped
	}
	if step.Break != "" || jumped {
		s.server.restart(step)
	}
	if step.Break != "" {
		s.clock, s.counted = Clock{}, pull{}
		s.clock.Compare(next.at, next.received)
	}
	step.IsNew, step.Previous, step.At = true, last.at, next.at
	s.pulled = next
	if step.Break == Contradictory {
		return // Either of the two is wrong: nothing is counted from this one on.
	}
	s.count(&next, step)
	if s.server.line != nil {
		s.server.line.add(next.at, next.totals)
	}
}

func pullOf(sample *Sample) pull {
	r := sample.Rates
	p := pull{at: r.Time, received: sample.Received, totals: *r.Totals}
	if r.Power != nil {
		p.meter = Origin{r.Power.Source, r.Power.Scope}
	}
	if used := sample.Power; used != nil && p.meter == (Origin{used.Source, used.Scope}) {
		p.of = p.meter
	}
	return p
}

// isOlder is true if a pull is of the same round as another, or of one before.
func (p *pull) isOlder(than *pull) bool {
	return p.totals.Since.Equal(than.totals.Since) &&
		(p.at.Equal(than.at) || p.at.Before(than.at) && p.totals.Seconds < than.totals.Seconds)
}

// breakFrom returns why a pull does not continue another.
func (p *pull) breakFrom(last *pull) Break {
	if !p.totals.Since.Equal(last.totals.Since) {
		if last.meter != (Origin{}) && p.meter != (Origin{}) && p.meter != last.meter {
			return MeterChanged
		}
		return AgentRestarted
	}
	elapsed, passed := p.at.Sub(last.at), p.received.Sub(last.received)
	seconds := p.totals.Seconds - last.totals.Seconds
	joules, bytes, sent := p.totals.Joules-last.totals.Joules, p.totals.Bytes-last.totals.Bytes, p.totals.SentBytes-last.totals.SentBytes
	metered := p.totals.MeteredSeconds - last.totals.MeteredSeconds
	switch {
	case seconds < 0 || joules < 0 || sent < 0 || bytes < sent*(1-1e-9) || metered < 0:
		return Contradictory
	case elapsed <= 0, (elapsed-passed).Abs() > clocksAgree && math.Abs(elapsed.Seconds()-seconds) > mostMissed:
		// What an agent counts is by a clock that nobody sets. It may miss rounds, and a
		// pull may be late: only both together show a jump.
		return ClockJumped
	case joules > units.Joules(mostWatts*max(elapsed.Seconds(), metered)) || bytes > mostBytes*elapsed.Seconds():
		return Contradictory
	}
	return ""
}

// count adds the interval that an agent counted up to a pull. There is none while the meter is
// behind: its next reading is of all the time since.
func (s *Stream) count(next *pull, step *Step) {
	from := s.counted
	if next.of == (Origin{}) || from.of != next.of {
		s.counted = *next
		return
	}
	elapsed, metered := next.at.Sub(from.at), next.totals.MeteredSeconds-from.totals.MeteredSeconds
	if metered < (1-mostJitter)*elapsed.Seconds() && elapsed <= longestSilence {
		return
	}
	s.counted = *next
	if metered > 0 {
		step.Intervals = append(step.Intervals, Interval{
			Origin: next.of, From: from.at, To: next.at, Seconds: metered, Joules: next.totals.Joules - from.totals.Joules,
			Begin: from.totals, End: next.totals, HasTotals: true,
		})
	}
}

const (
	// clocksAgree is how far two clocks may be apart: a round is some seconds old at most when
	// it is pulled. Ends of a server's figures are taken to be off by as much.
	clocksAgree = 5 * time.Second
	// drift is by how much a node's clock may fall behind from pull to pull, as seen from the
	// manager's: more than any does that is not set.
	drift = 100 * time.Millisecond
)

// Clock estimates by how much a node's clock is ahead of the manager's, by the pulls that
// were on their way for the shortest time. The zero value is ready.
type Clock struct {
	known bool
	ahead time.Duration
}

// Compare adds a moment by both clocks. It returns true if one of them was set, or if this is
// the first comparison.
func (c *Clock) Compare(node, manager time.Time) bool {
	ahead := node.Sub(manager)
	if !c.known || (ahead-c.ahead).Abs() > clocksAgree {
		c.known, c.ahead = true, ahead
		return true
	}
	c.ahead = max(ahead, c.ahead-drift)
	return false
}

// Ahead is 0 before the first comparison.
func (c *Clock) Ahead() time.Duration { return c.ahead }
