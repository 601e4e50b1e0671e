package proof

import (
	"time"

	"github.com/joulevirt/joulevirt/internal/verify"
)

// Proofs of one policy. Make them with New, or by json.Unmarshal. They are not safe for concurrent use.
type Proofs struct {
	units  map[string]*unit
	fields map[place]*field
	// ended are trials whose blocks were not booked yet.
	ended []*trial
	// confidence of the last round.
	confidence float64
	// resumed is when rounds began again after nobody called them. Zero: they went on.
	resumed time.Time
	// pools that were reckoned since something changed.
	pools map[poolKey]verify.Pooled
}

// usual is the confidence where none is given.
const usual = 0.95

// New returns proofs of a policy that nothing is known of.
func New() *Proofs {
	return &Proofs{
		units: map[string]*unit{}, fields: map[place]*field{}, pools: map[poolKey]verify.Pooled{}, confidence: usual,
	}
}

// Resume tells that rounds begin again after some time in which there were none, as when a
// manager takes over: units that are not in the first rounds were not missing meanwhile,
// and plans that were not seen may have their trials.
func (p *Proofs) Resume(now time.Time) {
	p.resumed = instant(now)
	for _, f := range p.fields {
		if f.trial != nil && f.trial.heard.Before(p.resumed) {
			f.trial.heard = p.resumed
		}
	}
}

// Take takes in a closed block. What comes twice, late, or of a schedule that is not known
// changes nothing.
func (p *Proofs) Take(c Closed) {
	u := p.units[c.Unit]
	if u == nil {
		return
	}
	if f := p.fields[p.at(c.Unit, c.Lever)]; f != nil && f.trial != nil && f.trial.take(&c) {
		return
	}
	if l := u.lots[c.Lever]; l != nil && l.hold != nil {
		p.takeHeld(u, l, &c)
	}
}

// Round decides: it judges trials, ends and starts them, and draws what is held back, for
// the units that the policy has now. Equal inputs decide equally. Call it each 15 to 60 s
// with all units of the policy, those that are not ready too: a unit that is missing for
// some minutes has left the policy.
func (p *Proofs) Round(units []Unit, s Settings, now time.Time) []News {
	now, s = instant(now), s.inBounds()
	p.confidence = s.Confidence
	p.rewind(now)
	p.see(units, now)
	news := p.settle(now)
	p.enter(now)
	news = append(news, p.watch(now)...)
	news = append(news, p.start(s, now)...)
	// What was set apart, or is on trial, is not held back.
	p.enter(now)
	p.holdBack(s, now)
	return news
}

// inBounds are settings that trials can be judged by.
func (s Settings) inBounds() Settings {
	if !(s.Confidence >= 0.5 && s.Confidence <= 0.999) {
		s.Confidence = usual
	}
	if !(s.HoldBack > 0) {
		s.HoldBack = 0
	}
	s.HoldBack = min(s.HoldBack, 0.5)
	return s
}
