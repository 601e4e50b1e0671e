package proof

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/joulevirt/joulevirt/internal/verify"
)

const (
	// paused is for how long no plan may have a trial before that is ended.
	paused = 15 * time.Minute
	// undecidedFor is after how long a lever is tried again that no verdict came of, unless
	// it may be for the hours that the trial saw.
	undecidedFor = 24 * time.Hour
	// plain is the confidence of what the hold-back of a class decides.
	plain = 0.95
)

// settle judges the trials that run, and ends them.
func (p *Proofs) settle(now time.Time) []News {
	var news []News
	for _, at := range p.places() {
		f := p.fields[at]
		t := f.trial
		if t == nil {
			continue
		}
		p.listen(t, now)
		t.pass(now)
		switch v := t.judge(); {
		case t.isDead():
			news = append(news, p.stop(f, now, "all of its units left"))
		case v.Decision != verify.Undecided || v.Final:
			news = append(news, p.decide(f, v, now)...)
		case t.isFarAhead(now):
			news = append(news, p.stop(f, now, "it was to begin at "+clock(t.start)+": the manager's clock was ahead"))
		case now.Sub(t.heard) > paused:
			news = append(news, p.stop(f, now, "no plan had it any more"))
		}
	}
	return news
}

// listen for whether plans have the trial.
func (p *Proofs) listen(t *trial, now time.Time) {
	t.heard = earlier(t.heard, now)
	for i := range t.members {
		m := &t.members[i]
		u := p.units[m.unit]
		if m.left || u == nil || u.here == nil {
			continue
		}
		if u.here.MeterLost {
			// Levers stay as they are without it. Who has lost no more than blocks goes on
			// when it is back.
			t.heard = now
			return
		}
		s := t.scheduleOf(m)
		for j := range u.here.Has {
			if has := &u.here.Has[j]; s != nil && has.Lever == s.Lever && has.Seed == s.Seed && has.Start.Equal(s.Start) {
				t.heard = now
				return
			}
		}
	}
}

// stop ends a trial that nobody follows. Another is drawn when it can be. Nothing of this
// one is judged: whoever paused may have done so for what they saw.
func (p *Proofs) stop(f *field, now time.Time, why string) News {
	t := f.trial
	p.end(f, now)
	return News{
		Kind: TrialEnded, Lever: t.at.lever, Class: t.at.class, Units: t.names(),
		Message: fmt.Sprintf("trial %d of %s was ended, for %s; it is drawn anew when its units are ready", t.number, t.at.lever, why),
	}
}

// end of a trial: its blocks can be booked.
func (p *Proofs) end(f *field, now time.Time) {
	p.ended = append(p.ended, f.trial)
	f.trial, f.ready = nil, time.Time{}
	f.seen = now
}

// decide by the verdict that ended a trial.
func (p *Proofs) decide(f *field, v *verify.Verdict, now time.Time) []News {
	t := f.trial
	p.end(f, now)
	if !t.rest {
		// What earlier trials saw was of another time.
		f.effects = nil
	}
	f.setEffects(v.Units)
	f.checked = 0
	delete(p.pools, poolKey{t.at.lever, t.at.class})
	if t.at.alone != "" {
		f.take(t, v, now)
		return []News{f.news(t, kindOf(v.Decision, true))}
	}
	bad := p.unlike(t)
	split := len(bad) > 0 && v.Decision != verify.Adopted && v.Why != verify.WhyWorkLess && v.Why != verify.WhyGuarded &&
		savesElsewhere(v, bad, t.plan().Least)
	switch {
	case t.rest:
		return p.decideRest(f, t, v, bad, now)
	case split:
		// Some lose and the others save. To judge the others by what they were chosen for
		// would prove nothing: they are tried anew, without those that lose.
		f.again, f.decision, f.decided = true, "", now
		f.message = fmt.Sprintf("trial %d of %s: %s; it costs energy on %s of %d and seems to save on the others, which are tried again",
			t.number, t.at.lever, v.Message, count(len(bad)), len(t.members))
		news := News{Kind: Retrial, Lever: t.at.lever, Class: t.at.class, Units: t.names(), Message: f.message}
		return append([]News{news}, p.setApart(t.at, bad, now)...)
	}
	f.take(t, v, now)
	news := []News{f.news(t, kindOf(v.Decision, false))}
	if v.Decision == verify.Adopted {
		news = append(news, p.setApart(t.at, bad, now)...)
	}
	return news
}

// decideRest is by a trial on units of a class that had adopted the lever before. What is
// known of all units decides about the class, and what was seen of each about that. Lost work
// and guards are seen of all its units together, whatever each of them saves: none of them
// keeps the lever, and those that adopted it before do.
func (p *Proofs) decideRest(f *field, t *trial, v *verify.Verdict, bad []string, now time.Time) []News {
	if v.Why == verify.WhyWorkLess || v.Why == verify.WhyGuarded {
		why := fmt.Sprintf("trial %d on %s that had not tried it: %s", t.number, count(len(t.members)), v.Message)
		return p.withdraw(t.at, t.names(), why, now)
	}
	_, high := p.pool(poolKey{t.at.lever, t.at.class}).Mean.Interval(plain)
	if v.Decision == verify.Rejected && high >= 0 && len(bad) == 0 {
		f.take(t, v, now)
		return []News{f.news(t, Rejected)}
	}
	return p.setApart(t.at, bad, now)
}

// take a verdict.
func (f *field) take(t *trial, v *verify.Verdict, now time.Time) {
	f.verdict = verdict{
		decision: v.Decision, from: t.start, seen: now, decided: now, rejections: f.rejections,
		found: v.Effect, log: v.Log, low: v.Low, high: v.High,
		units: len(t.members), pairs: v.Pairs, planned: t.pairs, message: v.Message,
	}
	f.again = false
	switch v.Decision {
	case verify.Rejected:
		f.rejections++
		f.until = now.Add(v.CoolDown)
	case verify.Undecided:
		f.until = now.Add(undecidedFor)
		if plan := t.plan(); v.Log < 0 && !plan.IsOfDay() {
			// What seems to save costs nothing to try, and the next trial sees all hours.
			f.until = now
		}
	case verify.Adopted:
		f.rejections = 0
	}
}

func kindOf(decision verify.Decision, alone bool) Kind {
	switch {
	case decision == verify.Adopted && alone:
		return AdoptedOnUnit
	case decision == verify.Rejected && alone:
		return RejectedOnUnit
	case decision == verify.Adopted:
		return Adopted
	case decision == verify.Rejected:
		return Rejected
	}
	return Undecided
}

// news of a verdict.
func (f *field) news(t *trial, kind Kind) News {
	message := fmt.Sprintf("trial %d of %s on %s: %s", t.number, t.at.lever, count(len(t.members)), f.message)
	if !f.until.IsZero() {
		message += "; it is tried again after " + clock(f.until)
	}
	return News{Kind: kind, Lever: t.at.lever, Class: t.at.class, Units: t.names(), Message: message}
}

// setApart withdraws a lever on units that are clearly unlike their class.
func (p *Proofs) setApart(at place, names []string, now time.Time) []News {
	return p.withdraw(at, names, "", now)
}

// withdraw a lever on units, each with a cool-down of its own, after which it is tried there
// alone. Without a word why it is for what it does to the joules of each: where that may be
// chance, it is tried there at once.
func (p *Proofs) withdraw(at place, names []string, why string, now time.Time) []News {
	var news []News
	for _, name := range names {
		u := p.units[name]
		if u == nil || u.class != at.class {
			continue
		}
		effect, own := p.Effect(name, at.lever).Effect(), p.stands(at).effectOf(name)
		l := u.lot(at.lever)
		p.closeHold(u, at.lever, l)
		l.apart, l.entry = true, notEntered
		alone := p.at(name, at.lever)
		f := p.field(alone)
		// Its class goes on reckoning with it when it has other trials.
		f.setEffects([]verify.UnitEffect{{Unit: name, Effect: own}})
		low, high := effect.Interval(plain)
		until, rejections := now.Add(verify.CoolDown(f.rejections)), f.rejections+1
		if why == "" && low <= 0 {
			until, rejections = now, f.rejections
		}
		f.verdict = verdict{
			decision: verify.Rejected, from: now, seen: now, decided: now, until: until,
			rejections: rejections, found: effect, log: effect.Log, low: low, high: high, units: 1,
			message: cmp.Or(why, "on this unit it "+saved(effect.Log, low, high)),
		}
		news = append(news, News{
			Kind: RejectedOnUnit, Lever: at.lever, Class: at.class, Units: []string{name},
			Message: fmt.Sprintf("%s: %s; it is tried there again after %s", at.lever, f.message, clock(f.until)),
		})
	}
	return news
}

// saved is an effect in words.
func saved(log, low, high float64) string {
	percent := func(x float64) float64 { return 100 * math.Abs(math.Expm1(x)) }
	if math.IsInf(low, 0) || math.IsInf(high, 0) {
		return "has no known effect"
	}
	verb, signed := "saves", func(x float64) float64 { return -100 * math.Expm1(x) }
	if log > 0 {
		verb, signed = "costs", func(x float64) float64 { return 100 * math.Expm1(x) }
	}
	ends := []float64{signed(low), signed(high)}
	slices.Sort(ends)
	return fmt.Sprintf("%s %.2f %% of the joules (%.2f to %.2f)", verb, percent(log), ends[0], ends[1])
}
