package energy

import (
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
)

// Candidate is what one source knows of a node's power.
type Candidate struct {
	// Reading is the newest that was good, whatever its age. Nil: none yet.
	Reading *model.Power
	// Refused says why there is no newer reading. Nil: there is no reason to tell.
	Refused *Refusal
	// Since is when the source was first asked about the node. Zero: not yet.
	Since time.Time
	// Certain is true when it is the source itself that says that it does not
	// know: time will not tell.
	Certain bool
	// Reported is true when the node's agent wrote into its report that it reads
	// this source, while its figures are not at hand.
	Reported bool
}

// Attempt is a source that does not give a node's power, with the reason.
type Attempt struct {
	Type    v1alpha1.PowerSource
	Reason  Reason
	Message string
}

// Choice is what is known of a node's power, and which of a policy's sources
// knows it.
type Choice struct {
	// Source that was chosen. Empty: none knows.
	Source v1alpha1.PowerSource
	// Power by that source. Nil when none knows, and when the source is only
	// reported.
	Power *model.Power
	// Metered is true when the source chosen is a meter.
	Metered bool
	// Unknown is true when no meter knows, and it is too early to say that there is
	// none, as after a change of leader: what is in force stays, nothing new is
	// done.
	Unknown bool
	// Doubt says why the source chosen gave nothing newer than Power. Nil: no
	// doubt.
	Doubt *Attempt
	// LostSince is when the power was measured last, where no meter knows it any more, and
	// one did within a day. Zero: one knows, or there is none, or see Unknown.
	LostSince time.Time
	// Attempts are the sources before the one chosen, in the policy's order.
	Attempts []Attempt
}

// Choose takes the first of a policy's sources that knows the power of a node
// well enough: by a good reading that is not older than the source's freshness.
//
// A meter that gave no good reading for longer than its freshness counts as
// unknown, rather than missing, for patience times its freshness: what is
// scraped each minute, and asked for in between, is often a little older than a
// minute, and pins would come and go with it. A meter that never gave a reading
// has the same time from when it was first asked.
func Choose(settings []Setting, know func(Setting) Candidate, now time.Time) Choice {
	var choice Choice
	for _, setting := range settings {
		candidate := know(setting)
		if fresh(setting, candidate.Reading, now) || candidate.Reported {
			choice.take(setting, candidate, now)
			return choice
		}
		choice.Attempts = append(choice.Attempts, inVain(setting, candidate))
		if setting.Type.Measures() && candidate.pending(setting, now) {
			choice.Unknown = true
		}
	}
	return choice
}

// patience is how many times its freshness a meter may be silent before it counts
// as missing.
const patience = 3

func (c *Choice) take(setting Setting, candidate Candidate, now time.Time) {
	c.Source, c.Metered = setting.Type, setting.Type.Measures()
	if fresh(setting, candidate.Reading, now) {
		c.Power = candidate.Reading
	}
	if candidate.Refused != nil {
		c.Doubt = &Attempt{Type: setting.Type, Reason: candidate.Refused.Reason, Message: candidate.Refused.Message}
	}
	if c.Metered {
		c.Unknown = false
	}
}

func fresh(setting Setting, reading *model.Power, now time.Time) bool {
	return reading != nil && reading.Source == setting.Type && Age(*reading, now) <= setting.Freshness
}

// pending reports whether it is too early to say that the source does not know.
func (c Candidate) pending(setting Setting, now time.Time) bool {
	last := c.Since
	if c.Reading != nil {
		last = c.Reading.Time
	}
	return !c.Certain && (last.IsZero() || now.Sub(last) <= patience*setting.Freshness)
}

// inVain says why a source does not give the power. The message holds no age: it
// is constant while nothing changes.
func inVain(setting Setting, candidate Candidate) Attempt {
	refused := candidate.Refused
	switch {
	case refused != nil:
	case candidate.Reading == nil:
		refused = Refuse(ReasonAwaiting, "the source was not heard yet: wait a moment")
	default:
		refused = Refuse(ReasonStale, "the last figure is of %s, and freshness is %v: look whether the meter still runs, "+
			"or raise freshness above the time between two figures", candidate.Reading.Time.UTC().Format(time.RFC3339), setting.Freshness)
	}
	return Attempt{Type: setting.Type, Reason: refused.Reason, Message: refused.Message}
}
