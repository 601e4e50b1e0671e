package proof

import (
	"fmt"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/verify"
)

// Was is what a unit was taken to be in the last round that had it.
type Was struct {
	Class verify.Class
	// Metered is true when it had a meter.
	Metered bool
}

// Was tells what a unit was in the last round that had it, which may be one of an earlier
// manager. Nil: none had it.
func (p *Proofs) Was(name string) *Was {
	u := p.units[name]
	if u == nil {
		return nil
	}
	return &Was{Class: u.class, Metered: u.metered}
}

// Placed is a unit with what a figure of it is of.
type Placed struct {
	Name  string
	Class verify.Class
	// Nodes that its levers can affect, as of the last round. Of a group that this did not have
	// they are not known, and its own name stands for them.
	Nodes []string
}

// Units that are remembered, in the order of their names.
func (p *Proofs) Units() []Placed {
	units := make([]Placed, 0, len(p.units))
	for _, name := range p.names() {
		u := p.units[name]
		units = append(units, Placed{Name: name, Class: u.class, Nodes: u.nodes(name)})
	}
	return units
}

// Of tells how each lever stands on a unit as of the last round, in the order of levers'
// names, whether it has something to do there now or not. None: no round had the unit, and
// nothing new should be done there.
func (p *Proofs) Of(name string) []model.Proof {
	u := p.units[name]
	if u == nil {
		return nil
	}
	levers := leversOf(name)
	proofs := make([]model.Proof, 0, len(levers))
	for _, lever := range levers {
		proofs = append(proofs, p.proofOf(name, u, lever))
	}
	return proofs
}

func (p *Proofs) proofOf(name string, u *unit, lever v1alpha1.Lever) model.Proof {
	at := p.at(name, lever)
	f := p.stands(at)
	proof := model.Proof{Lever: lever, Message: f.message}
	if m := p.memberOf(name, lever); m != nil {
		t := f.trial
		proof.Stance, proof.Use, proof.Schedule = model.StanceOnTrial, true, t.scheduleOf(m)
		proof.Message = fmt.Sprintf("trial %d, together with %d other units of its class, from %s to %s at the latest",
			t.number, len(t.members)-1, clock(t.start), clock(t.end().Add(late)))
		return proof
	}
	l := u.lots[lever]
	if l == nil {
		l = &lot{}
	}
	switch {
	case u.approved && !p.isWithdrawn(at, f):
		p.approvedProof(&proof, name, l)
	case f.decision == verify.Rejected:
		proof.Stance, proof.Until = model.StanceRejected, f.until
	case !u.metered:
		proof.Stance, proof.Use = model.StanceUnproven, true
		proof.Message = "no meter tells what it saves here"
	case f.decision == verify.Adopted && l.entry == entered:
		proof.Stance, proof.Use, proof.Schedule = model.StanceAdopted, true, l.hold.scheduleOf(name, lever)
		if l.held.IsLopsided() {
			proof.Message += lopsided
		}
	case f.decision == verify.Undecided:
		proof.Stance, proof.Until = model.StanceUndecided, f.until
	case f.decision == verify.Adopted && l.entry == untried:
		proof.Stance = model.StanceAwaiting
		proof.Message = "it saves on its class, whose units differ so much that it is tried here first"
	default:
		proof.Stance, proof.Message = model.StanceAwaiting, p.waiting(u, lever, f)
	}
	return proof
}

// lopsided says why a hold-back shows nothing.
const lopsided = "; blocks with it on are missing more often since than those with it off, so that it may be the lever that ends them: " +
	"nothing is booked of it here until that is over, look at what the agent logs"

// approvedProof is how a lever stands that a person decided for.
func (p *Proofs) approvedProof(proof *model.Proof, name string, l *lot) {
	proof.Stance, proof.Use, proof.Schedule = model.StanceUnproven, true, l.hold.scheduleOf(name, proof.Lever)
	proof.Message = "it acts without a trial; what is held back shows what it saves"
	if _, high := p.own(name, proof.Lever).Interval(plain); high < 0 {
		proof.Stance = model.StanceAdopted
		proof.Message = "what was held back shows that it saves"
	}
	if l.held.IsLopsided() {
		proof.Message += lopsided
	}
}

// waiting says what a lever waits for.
func (p *Proofs) waiting(u *unit, lever v1alpha1.Lever, f *field) string {
	if u.here != nil {
		if err := u.cannot(lever); err != nil {
			return "cannot be tried: " + err.Error()
		}
	}
	if f.again && f.message != "" {
		return f.message
	}
	return "waits for its trial"
}

// Standings tell how each lever stands on each class, in the order of levers and classes.
func (p *Proofs) Standings() []Standing {
	var all []Standing
	for _, at := range p.places() {
		f := p.fields[at]
		s := Standing{
			Lever: at.lever, Class: at.class, Unit: at.alone, Stance: stanceOf(f.decision),
			Units: f.units, Pairs: f.pairs, Planned: f.planned, Log: f.log, Low: f.low, High: f.high, Known: f.found.IsKnown(),
			Decided: f.decided, Until: f.until, Message: f.message,
		}
		if mean := p.meanOf(at); f.decision == verify.Adopted && mean.IsKnown() {
			// Hold-backs go on measuring.
			s.Log, s.Known = mean.Log, true
			s.Low, s.High = mean.Interval(p.confidence)
		}
		if entered := p.entered(at); f.decision == "" && entered > 0 {
			// A person decided, and what is held back measures.
			s.Stance, s.Units, s.Message = model.StanceUnproven, entered, "acts without a trial where it was approved"
			s.Log, s.Known = p.meanOf(at).Log, p.meanOf(at).IsKnown()
			s.Low, s.High = p.meanOf(at).Interval(p.confidence)
		}
		if t := f.trial; t != nil {
			v := t.judge()
			s.Stance, s.Units, s.Pairs, s.Planned = model.StanceOnTrial, len(t.members), t.over, t.pairs
			s.Log, s.Low, s.High, s.Known = v.Log, v.Low, v.High, v.Effect.IsKnown()
			s.Until, s.Message = t.end().Add(late), v.Message
		}
		if s.Message == "" {
			s.Message = "waits for its trial"
		}
		s.Message = cut(s.Message)
		all = append(all, s)
	}
	return all
}

// entered counts the units of a place on which the lever acts.
func (p *Proofs) entered(at place) int {
	all := p.units
	if at.alone != "" {
		all = map[string]*unit{}
		if u := p.units[at.alone]; u != nil {
			all[at.alone] = u
		}
	}
	n := 0
	for name, u := range all {
		if l := u.lots[at.lever]; u.class == at.class && l != nil && l.entry == entered && p.at(name, at.lever) == at {
			n++
		}
	}
	return n
}

// meanOf is what is known of a place by trials and hold-backs.
func (p *Proofs) meanOf(at place) verify.Effect {
	if at.alone != "" {
		return p.own(at.alone, at.lever)
	}
	return p.pool(poolKey{at.lever, at.class}).Mean
}

func stanceOf(decision verify.Decision) model.Stance {
	switch decision {
	case verify.Adopted:
		return model.StanceAdopted
	case verify.Rejected:
		return model.StanceRejected
	case verify.Undecided:
		return model.StanceUndecided
	}
	return model.StanceAwaiting
}

// mostMessage is how many bytes a message has at most.
const mostMessage = 512

// cut a message that is too long to be told.
func cut(message string) string {
	if len(message) <= mostMessage {
		return message
	}
	return message[:mostMessage-3] + "..."
}

// instant is a time as it is stored: in whole seconds.
func instant(t time.Time) time.Time { return t.UTC().Truncate(time.Second) }
