package learned

import (
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/observe/timeline"
	"github.com/joulevirt/joulevirt/internal/power"
	"github.com/joulevirt/joulevirt/internal/units"
)

const (
	// longestHold is how long a figure stands for the time since the one before:
	// over more, what the node drew is not known and not counted.
	longestHold = 5 * time.Minute
	// mostWaiting figures wait for the totals of their interval.
	mostWaiting = 8
	// clocksAgree is how far the agent's clock may be from the manager's to be
	// believed: a round is at most some seconds old when it is pulled.
	clocksAgree = 5 * time.Second
	// leastMetered is the share of an interval that a meter must cover for its
	// mean to be that of the interval.
	leastMetered = 0.9
	// instant stands for the interval of a figure that has none. Between two pulls
	// the load counts as constant anyway.
	instant = time.Second
)

// lesson is a metered power with the load that it was drawn by.
type lesson struct {
	scope model.PowerScope
	load  power.Load
	watts units.Watts
	// seconds that no lesson before was about.
	seconds float64
}

// account follows one node. The zero value is ready.
type account struct {
	timeline timeline.Line
	// pulled are the rates that were looked at last.
	pulled *model.NodeRates
	// counted is the end of what was counted of a Prometheus server's figures,
	// and taught the end of what lessons were about.
	counted, taught time.Time
	// waiting are figures whose interval is not over in the timeline, the oldest
	// first.
	waiting []model.Power
}

// look takes in what is known now: the power that the policy's sources give, and
// the newest rates with when they came. Both may be nil. It returns the energy
// drawn since the last look as far as it was metered or modelled, and what can
// be learned.
func (a *account) look(figure *model.Power, rates *model.NodeRates, received time.Time) (units.Joules, []lesson) {
	before := a.pulled
	if rates != nil && (before == nil || !rates.Time.Equal(before.Time)) {
		a.pulled = rates
		if rates.Totals != nil {
			a.timeline.Add(momentOf(rates, received), *rates.Totals)
		}
	}
	switch {
	case figure == nil:
		return 0, nil
	case figure.Source == model.SourcePrometheus:
		return a.ofServer(*figure)
	default:
		return ofAgent(figure.Source, before, a.pulled)
	}
}

// momentOf is when a round ended, by the manager's clock. The agent's own time is
// exact to less than a round, where its clock is right.
func momentOf(rates *model.NodeRates, received time.Time) time.Time {
	if received.Sub(rates.Time).Abs() <= clocksAgree {
		return rates.Time
	}
	return received
}

// ofAgent takes an agent's own figures from what it counted between two pulls.
// Modelled figures teach nothing: they are a model's.
func ofAgent(source model.PowerSource, before, now *model.NodeRates) (units.Joules, []lesson) {
	if before == nil || now == nil || before == now || !sameMeter(source, before, now) {
		return 0, nil
	}
	load, seconds, ok := power.LoadBetween(before.Totals, now.Totals)
	if !ok {
		return 0, nil
	}
	joules := now.Totals.Joules - before.Totals.Joules
	metered := now.Totals.MeteredSeconds - before.Totals.MeteredSeconds
	if joules < 0 || !(metered > 0) {
		return 0, nil
	}
	if !source.Measures() || metered < leastMetered*seconds {
		return joules, nil
	}
	watts := units.Watts(float64(joules) / metered)
	return joules, []lesson{{scope: now.Power.Scope, load: load, watts: watts, seconds: seconds}}
}

func sameMeter(source model.PowerSource, before, now *model.NodeRates) bool {
	return before.Power != nil && now.Power != nil && before.Power.Source == source &&
		now.Power.Source == source && before.Power.Scope == now.Power.Scope
}

// ofServer takes the figures of a Prometheus server, which come late, and over
// intervals that overlap.
func (a *account) ofServer(figure model.Power) (units.Joules, []lesson) {
	joules := a.count(figure)
	var lessons []lesson
	rest := a.waiting[:0]
	for _, waiting := range a.waiting {
		from, to := intervalOf(waiting)
		begin, end, verdict := a.timeline.Between(from, to)
		if verdict == timeline.TooEarly {
			rest = append(rest, waiting)
			continue
		}
		load, _, sane := power.LoadBetween(&begin, &end)
		if seconds := min(to.Sub(from), to.Sub(a.taught)).Seconds(); verdict == timeline.Known && sane && seconds > 0 {
			a.taught = to
			lessons = append(lessons, lesson{scope: waiting.Scope, load: load, watts: waiting.Watts, seconds: seconds})
		}
	}
	a.waiting = rest
	return joules, lessons
}

// count returns the energy since the figure before, and lets a new figure wait
// for its load.
func (a *account) count(figure model.Power) units.Joules {
	if !figure.Time.After(a.counted) {
		return 0
	}
	since := figure.Time.Sub(a.counted)
	a.counted = figure.Time
	if len(a.waiting) == mostWaiting {
		a.waiting = append(a.waiting[:0], a.waiting[1:]...)
	}
	a.waiting = append(a.waiting, figure)
	if since > longestHold {
		since = seconds(figure.IntervalSeconds)
	}
	return units.Joules(float64(figure.Watts) * since.Seconds())
}

func intervalOf(figure model.Power) (from, to time.Time) {
	return figure.Time.Add(-max(instant, seconds(figure.IntervalSeconds))), figure.Time
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
