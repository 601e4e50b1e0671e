package blocks

import (
	"math"
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
	"github.com/joulevirt/joulevirt/internal/verify/ledger"
)

const (
	// mostJitter is the share by which the time that a meter covers may differ from that
	// between two pulls.
	mostJitter = 0.1
	// longestSilence of a meter after which what it counts at last may be of that time.
	longestSilence = 2 * time.Minute
	// mostWatts and mostBytes per second are above every machine. A counter that started over
	// within an agent and goes back to what it said makes some seconds of more.
	mostWatts = ledger.MostNodeWatts
	mostBytes = 1e15 / 8
)

// pull is what one round of an agent told.
type pull struct {
	// at is by the node's clock, received by the manager's.
	at, received time.Time
	totals       model.Totals
	// of is where the joules of the totals are from, and what the policy takes them from.
	of origin
	// told is where the agent knows its power from, whatever the policy takes.
	told origin
}

// isReal is false for totals that no agent counts.
func isReal(t *model.Totals) bool {
	for _, total := range []float64{t.Seconds, float64(t.Joules), t.MeteredSeconds, t.Bytes} {
		if !(total >= 0) || math.IsInf(total, 0) {
			return false
		}
	}
	return true
}

// pullOf reads what came. False: nothing that can be counted.
func pullOf(sight *Sight) (pull, bool) {
	r := sight.Rates
	if r.Totals == nil || !isReal(r.Totals) {
		return pull{}, false
	}
	p := pull{at: r.Time, received: sight.Received, totals: *r.Totals}
	if r.Power != nil {
		p.told = origin{r.Power.Source, r.Power.Scope}
	}
	if chosen := sight.Power; chosen != nil && chosen.Source == model.SourceRAPL && p.told == (origin{chosen.Source, chosen.Scope}) {
		p.of = p.told
	}
	return p, true
}

// counter makes pieces of what agents count.
type counter struct {
	// mark is the pull up to which all is in a piece, or lost. Its of is empty while there
	// is none.
	mark pull
}

// to returns what was counted up to a pull. Nothing is told while the meter is behind: what
// it reads at last is of all the time since.
func (c *counter) to(next *pull) (piece, bool) {
	mark := c.mark
	if next.of == (origin{}) || mark.of != next.of {
		c.mark = *next
		return piece{}, false
	}
	elapsed, metered := next.at.Sub(mark.at), next.totals.MeteredSeconds-mark.totals.MeteredSeconds
	if elapsed <= 0 || metered < (1-mostJitter)*elapsed.Seconds() && elapsed <= longestSilence {
		return piece{}, false
	}
	c.mark = *next
	if math.Abs(metered-elapsed.Seconds()) > mostJitter*elapsed.Seconds() {
		return piece{}, false // Lost: of a longer time, or of who knows which part.
	}
	work := next.totals.Bytes - mark.totals.Bytes
	return piece{
		from: mark.at, to: next.at, of: next.of,
		seconds: metered, joules: next.totals.Joules - mark.totals.Joules,
		work: work * min(1, metered/elapsed.Seconds()),
	}, true
}

// follows says what is wrong with a pull after another. Empty: nothing.
func (p *pull) follows(last *pull) string {
	if !p.totals.Since.Equal(last.totals.Since) {
		if last.told != (origin{}) && p.told != (origin{}) && p.told != last.told {
			return MeterChanged // Agents then count anew.
		}
		return AgentRestarted
	}
	elapsed, passed := p.at.Sub(last.at), p.received.Sub(last.received)
	counted := p.totals.Seconds - last.totals.Seconds
	joules, bytes := p.totals.Joules-last.totals.Joules, p.totals.Bytes-last.totals.Bytes
	metered := p.totals.MeteredSeconds - last.totals.MeteredSeconds
	switch {
	case counted < 0 || joules < 0 || bytes < 0 || metered < 0:
		return Contradictory
	case elapsed <= 0, (elapsed-passed).Abs() > clocksAgree && math.Abs(elapsed.Seconds()-counted) > late.Seconds():
		// What an agent counts is by a clock that nobody sets. It may miss rounds, and a
		// pull may be late: only both together tell of a jump.
		return ClockJumped
	case joules > units.Joules(float64(mostWatts)*max(elapsed.Seconds(), metered)) || bytes > mostBytes*elapsed.Seconds():
		return Contradictory
	}
	return ""
}

// isOlder tells whether a pull is of the same round as another, or of one before.
func (p *pull) isOlder(than *pull) bool {
	return p.totals.Since.Equal(than.totals.Since) &&
		(p.at.Equal(than.at) || p.at.Before(than.at) && p.totals.Seconds < than.totals.Seconds)
}
