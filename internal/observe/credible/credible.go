// Package credible tells when the meter of a node cannot be believed: when what it says
// steps to another level by itself, while neither the node's load nor a lever changed, or
// away from what another meter of the node says. Which levers are on decides only about what
// a figure is compared with, never about whether it counts: each setting of the levers has a
// level of its own. It is pure but for its memory, and time is given.
// docs/design/lying-meters.md tells the rule, and what it does not see.
package credible

import (
	"math"
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/power"
)

const (
	// accepted is how long a step lasts that is taken for the node's new normal: the node,
	// or its meter, was changed.
	accepted = 2 * time.Hour
	// mostSpans that are remembered.
	mostSpans = 8
)

// Sight is what is known of a node at one moment.
type Sight struct {
	// Rates are the agent's newest, Received when they came by the manager's clock. Nil:
	// none are fresh.
	Rates    *model.NodeRates
	Received time.Time
	// Power by the first of the policy's sources that knows. Nil: none does.
	Power *model.Power
	// Schedules of the plan that the node has.
	Schedules []model.Schedule
	// BusyCore is what one more busy core of the node draws. The zero value: not known.
	BusyCore power.Estimate
}

// Span is a time by the node's clock.
type Span struct {
	From time.Time
	// To is zero while it goes on.
	To time.Time
}

// Overlaps tells whether a time has something of the span.
func (s Span) Overlaps(from, to time.Time) bool {
	return s.From.Before(to) && (s.To.IsZero() || s.To.After(from))
}

// Verdict is what is known of a node's meter. Times are by the node's clock.
type Verdict struct {
	// Sure is up to when it is decided whether the meter is to be believed. Zero: nothing
	// was judged.
	Sure time.Time
	// Suspect are the times in which it is not, the oldest first.
	Suspect []Span
	// Factor is what the meter says now over what was to be expected. 0: it is believed.
	Factor float64
	// Noise is the standard deviation of a server's figure, as a share of it, in the steps of
	// verify.RoundNoise. 0: little, or not known, or the meter counts: what is between two
	// counts has no noise.
	Noise float64
}

// Since is when the meter ceased to be believed. Zero: it is believed.
func (v *Verdict) Since() time.Time {
	if n := len(v.Suspect); n > 0 && v.Suspect[n-1].To.IsZero() {
		return v.Suspect[n-1].From
	}
	return time.Time{}
}

// Doubts tells whether something of a time is not to be believed.
func (v *Verdict) Doubts(from, to time.Time) bool {
	for _, span := range v.Suspect {
		if span.Overlaps(from, to) {
			return true
		}
	}
	return false
}

// Awaits tells whether a time is still to be judged.
func (v *Verdict) Awaits(to time.Time) bool { return !v.Sure.IsZero() && v.Sure.Before(to) }

// By returns the same by a clock that the node's is ahead of.
func (v *Verdict) By(ahead time.Duration) Verdict {
	by := Verdict{Factor: v.Factor, Noise: v.Noise}
	if !v.Sure.IsZero() {
		by.Sure = v.Sure.Add(-ahead)
	}
	for _, span := range v.Suspect {
		span.From = span.From.Add(-ahead)
		if !span.To.IsZero() {
			span.To = span.To.Add(-ahead)
		}
		by.Suspect = append(by.Suspect, span)
	}
	return by
}

// Watch judges the meter of one node. The zero value is ready. It is not for concurrent use.
type Watch struct {
	reader  reader
	history history
	levels  levels
	// busyCore is as it was last known.
	busyCore power.Estimate
	window   window
	noise    noise
	verdict  Verdict
}

// Look takes in what is known of the node now, by the manager's clock, and returns what is
// known of its meter. What was seen already counts once.
func (w *Watch) Look(sight Sight, now time.Time) Verdict {
	if sight.BusyCore != (power.Estimate{}) {
		w.busyCore = sight.BusyCore
	}
	w.history.hear(&sight)
	if w.reader.renewed(&sight) {
		w.restart()
	}
	w.reader.read(&sight, now, w.take)
	// What is told is not changed any more.
	w.verdict.Noise = w.noise.share()
	told := w.verdict
	told.Suspect = append([]Span(nil), told.Suspect...)
	return told
}

// restart forgets what figures were compared with: there is another meter, or another clock.
func (w *Watch) restart() {
	w.end(w.window.newest())
	w.levels, w.window, w.noise, w.verdict.Sure = levels{}, window{}, noise{}, time.Time{}
	if w.reader.jumped {
		w.verdict, w.history, w.reader.jumped = Verdict{}, history{}, false
	}
}

// take in what was metered over some time.
func (w *Watch) take(p piece) {
	setting, settled := w.history.at(p.from, p.to)
	if !settled {
		return
	}
	if setting != w.window.setting || p.from.Sub(w.window.newest()) > longestGap {
		w.leave()
		w.window = window{setting: setting}
		w.noise.forget()
	}
	if w.reader.of.source == model.SourcePrometheus && w.verdict.Since().IsZero() {
		w.noise.add(&p, &w.busyCore)
	}
	if setting.fresh && w.levels.at(setting.on) != nil && w.levels.at(setting.on).setting != setting {
		w.levels.drop(setting.on)
	}
	if past, out := w.window.push(p); out {
		w.learn(&past)
	}
	if w.window.isFull() {
		w.judge()
	}
}

// leave a setting: what its window has, and was not judged to be off, is of its level.
func (w *Watch) leave() {
	if !w.window.isFull() {
		return
	}
	for i := range w.window.pieces {
		w.learn(&w.window.pieces[i])
	}
}

// learn from what is past. Nothing is learned from what is not believed.
func (w *Watch) learn(p *piece) {
	level := w.levels.at(w.window.setting.on)
	if level == nil || !w.verdict.Since().IsZero() || w.levels.isOff(p, level, &w.busyCore) {
		return
	}
	w.levels.add(p, level, &w.busyCore)
}

// judge the window.
func (w *Watch) judge() {
	level := w.levels.fresh(w.window.setting.on, w.window.newest(), !w.verdict.Since().IsZero())
	suspected := w.verdict.Since()
	switch {
	case !suspected.IsZero() && w.window.newest().Sub(suspected) >= accepted:
		w.end(w.window.newest())
		w.levels.forget()
	case level == nil && suspected.IsZero():
		w.levels.begin(&w.window)
	case level == nil:
	case !suspected.IsZero():
		w.goesOn(level)
	case level.proven || w.levels.lasts(level):
		w.compare(level)
	}
}

// compare with a level that is known to be right.
func (w *Watch) compare(level *level) {
	off, sure := 0, w.verdict.Sure
	for i := range w.window.pieces {
		p := &w.window.pieces[i]
		if w.levels.isOff(p, level, &w.busyCore) {
			off++
		} else if off == 0 && p.from.After(sure) {
			sure = p.from
		}
	}
	switch {
	case 2*off > len(w.window.pieces):
		w.verdict.Factor = w.levels.factor(&w.window, level, &w.busyCore)
		w.verdict.Suspect = append(w.verdict.Suspect, Span{From: w.doubtedFrom()})
		if len(w.verdict.Suspect) > mostSpans {
			w.verdict.Suspect = w.verdict.Suspect[1:]
		}
		w.levels.dropUnproven()
	case mostSpikes*off <= len(w.window.pieces):
		w.verdict.Sure = sure
		w.levels.prove()
	}
}

// doubtedFrom is since when the meter is off at the latest: what was sure before stays.
func (w *Watch) doubtedFrom() time.Time {
	if w.verdict.Sure.IsZero() {
		return w.window.pieces[0].from
	}
	return w.verdict.Sure
}

// goesOn looks whether the meter is back at its level: all of the window is, and it is nearer
// to it than to what was doubted, for a load that changed explains much.
func (w *Watch) goesOn(level *level) {
	factor := w.levels.factor(&w.window, level, &w.busyCore)
	for i := range w.window.pieces {
		if w.levels.isOff(&w.window.pieces[i], level, &w.busyCore) {
			w.verdict.Factor = factor
			return
		}
	}
	if math.Abs(factor-1) > math.Abs(w.verdict.Factor-1)/2 {
		return
	}
	w.levels.pause(w.window.newest().Sub(w.verdict.Since()))
	w.end(w.window.pieces[0].to)
}

// end the suspicion, if there is one.
func (w *Watch) end(at time.Time) {
	if since := w.verdict.Since(); !since.IsZero() {
		if at.Before(since) {
			at = since
		}
		w.verdict.Suspect[len(w.verdict.Suspect)-1].To = at
		w.verdict.Sure, w.verdict.Factor = at, 0
	}
}
