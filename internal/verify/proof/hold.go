package proof

import (
	"fmt"
	"math"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/verify"
)

const (
	// leastTogether is from how many strata of all units a class's hold-back is looked at.
	leastTogether = 8
	// moreOfUnit and moreOfClass are by which share more must have been seen before it is
	// looked at again, and enough how many strata of a unit suffice. Whoever looks after
	// each stratum sees what is not there.
	moreOfUnit, moreOfClass, enough = 0.25, 0.5, 16
	// workLost is the confidence with which work is inferior.
	workLost = 0.99
)

// hold is a schedule that holds back an adopted lever on one unit.
type hold struct {
	drawn          int
	start          time.Time
	block, washOut time.Duration
	// stratum is how many blocks there are of which one is off. 0: none is.
	stratum int
	// next is the first block that did not come yet.
	next int
	// schedule as it was drawn, made when it is needed.
	schedule *model.Schedule
}

// scheduleOf a unit's hold-back. Nil: it has none.
func (h *hold) scheduleOf(name string, lever v1alpha1.Lever) *model.Schedule {
	if h == nil || h.schedule != nil {
		if h == nil {
			return nil
		}
		return h.schedule
	}
	at := verify.Timing{
		Lever: lever, Seed: verify.Seed(name, lever, h.drawn), Start: h.start, Block: h.block, WashOut: h.washOut,
	}
	s, err := always(at), error(nil)
	if h.stratum > 0 {
		s, err = verify.DrawHoldBack(at, 1/float64(h.stratum))
	}
	if err != nil {
		return nil // The bounds were held when it was drawn, or loaded.
	}
	h.schedule = &s
	return h.schedule
}

// always is a schedule of blocks that all are on: nothing is held back, and joules are
// measured nevertheless.
func always(at verify.Timing) model.Schedule {
	s := model.Schedule{
		Lever: at.Lever, Seed: at.Seed, Start: at.Start, Block: at.Block, WashOut: at.WashOut,
		On: make([]bool, model.MostBlocks), Otherwise: true,
	}
	for i := range s.On {
		s.On[i] = true
	}
	return s
}

// takeHeld takes a block of a hold-back.
func (p *Proofs) takeHeld(u *unit, l *lot, c *Closed) {
	s := l.hold.scheduleOf(c.Unit, c.Lever)
	if s == nil || s.Seed != c.Seed || !s.Start.Equal(c.Start) || c.Block < l.hold.next || c.Block >= len(s.On) {
		return
	}
	t, strata, stratum := reportedOf(c, s.On[c.Block]), l.held.Strata(), l.hold.stratum
	if stratum > 0 && l.hold.next > 0 && (l.hold.next-1)/stratum != c.Block/stratum {
		l.endStratum()
	}
	l.hold.next = c.Block + 1
	from := s.Start.Add(time.Duration(c.Block) * s.Block)
	l.book(run{from: from, to: from.Add(s.Block), on: s.On[c.Block], told: t})
	if stratum > 0 {
		o, before := t.outcome(c.Unit, c.Block, s.On[c.Block]), l.held.Strata()
		l.held.Add(&o, s.On, stratum)
		l.shown = l.shown || l.held.Strata() > before
		if l.hold.next%stratum == 0 || l.hold.next == len(s.On) {
			l.endStratum()
		}
	}
	if l.held.Strata() > strata {
		delete(p.pools, poolKey{c.Lever, u.class})
		if f := p.fields[p.at(c.Unit, c.Lever)]; f != nil && f.seen.Before(from.Add(s.Block)) {
			f.seen = from.Add(s.Block)
		}
	}
}

// enter lets adopted levers act on units, and withdraws those that are no longer adopted.
func (p *Proofs) enter(now time.Time) {
	for _, name := range p.names() {
		u := p.units[name]
		for _, lever := range leversOf(name) {
			at := p.at(name, lever)
			f := p.stands(at)
			if u.approved && f.decision == verify.Rejected && at.alone != "" && !now.Before(f.until) {
				// There is no trial: it acts anew, and what is held back from now on shows.
				f.decision, f.effects = "", nil
				l := u.lot(lever)
				l.held, l.checked, l.shown = l.held.Anew(), 0, false
				delete(p.pools, poolKey{lever, u.class})
			}
			if u.approved && !p.isWithdrawn(at, f) {
				u.lot(lever).entry = entered
				continue
			}
			l := u.lots[lever]
			switch {
			case f.decision != verify.Adopted || !u.metered:
				if l != nil {
					p.closeHold(u, lever, l)
					l.entry = notEntered
				}
			case at.alone != "":
				u.lot(lever).entry = entered
			case l == nil || l.entry != entered:
				l = u.lot(lever)
				if l.entry = entered; p.isDoubtful(name, lever) {
					l.entry = untried
				}
			}
		}
	}
}

// isWithdrawn tells whether a lever that a person decided for was withdrawn on its unit.
func (p *Proofs) isWithdrawn(at place, f *field) bool {
	return at.alone != "" && f.decision == verify.Rejected
}

// watch looks at what hold-backs show.
func (p *Proofs) watch(now time.Time) []News {
	var news []News
	for _, name := range p.names() {
		u := p.units[name]
		for _, lever := range leversOf(name) {
			l := u.lots[lever]
			if l == nil || l.entry != entered || p.memberOf(name, lever) != nil {
				continue
			}
			if n := l.held.Strata(); n >= leastStrata && n > l.checked && float64(n-l.checked) >= min(moreOfUnit*float64(l.checked), enough) {
				l.checked = n
				if costs(p.Effect(name, lever)) {
					news = append(news, p.setApart(p.at(name, lever), []string{name}, now)...)
				}
			}
		}
	}
	for _, at := range p.places() {
		f := p.fields[at]
		if f.decision == verify.Adopted && f.trial == nil && !f.again {
			news = append(news, p.watchClass(at, f, now)...)
		}
	}
	return news
}

// watchClass looks at what hold-backs on all units of a class show together.
func (p *Proofs) watchClass(at place, f *field, now time.Time) []News {
	standing := verify.Standing{Decision: f.decision, Class: at.class, Effect: f.found, Seen: f.seen}
	if why, again := verify.Retrial(&standing, at.class, verify.Effect{}, now); again {
		return []News{f.retry(at, string(why))}
	}
	if at.alone != "" {
		return nil
	}
	held, strata := p.holdings(at)
	more := float64(strata - f.checked)
	if strata < leastTogether || more <= 0 || more < min(moreOfClass*float64(f.checked), enough*float64(len(held))) {
		return nil
	}
	energy, work := heldBack(held)
	f.checked = strata
	var news []News
	low, high := energy.Interval(plain)
	_, mostWork := work.Interval(workLost)
	plan := verify.DefaultPlan(time.Hour, 1)
	switch {
	case low > 0 || mostWork < math.Log1p(-plan.Margin):
		message := "the hold-back shows that it " + saved(energy.Log, low, high)
		if low <= 0 {
			message = "the hold-back shows that less work is done with it"
		}
		f.verdict = verdict{
			decision: verify.Rejected, from: f.from, seen: f.seen, decided: now, until: now.Add(verify.CoolDown(f.rejections)),
			rejections: f.rejections + 1, found: energy, log: energy.Log, low: low, high: high, units: energy.Units, message: message,
		}
		news = append(news, News{
			Kind: Rejected, Lever: at.lever, Class: at.class,
			Message: fmt.Sprintf("%s: %s; it is tried again after %s", at.lever, message, clock(f.until)),
		})
	case !p.contradicts(f, energy):
	case high < 0 && energy.Log < math.Log1p(-plan.Least):
		// It saves, but not as much, or more: what it saves is reckoned by both.
		f.found = energy
	default:
		news = append(news, f.retry(at, string(verify.AgainHeldBack)))
	}
	return news
}

// contradicts tells whether a hold-back shows another effect than the trial did, by more
// than chance, and by more than that it was on other units.
func (p *Proofs) contradicts(f *field, held verify.Effect) bool {
	var tried []verify.Effect
	for _, e := range f.effects {
		tried = append(tried, e.Effect)
	}
	pooled := verify.Pool(tried)
	if !pooled.Mean.IsKnown() {
		pooled = verify.KnownPool(f.found, 0)
	}
	return pooled.Contradicts(held)
}

// retry lets a verdict no longer stand. The lever goes on acting until the trial.
func (f *field) retry(at place, why string) News {
	f.again = true
	return News{
		Kind: Retrial, Lever: at.lever, Class: at.class,
		Message: fmt.Sprintf("%s is tried anew (%s): the verdict was: %s", at.lever, why, f.message),
	}
}

// holdings are those on units of a class that say something, in the order of their names,
// and how many strata they have.
func (p *Proofs) holdings(at place) (held []*verify.Holding, strata int) {
	for _, name := range p.names() {
		u := p.units[name]
		if l := u.lots[at.lever]; u.class == at.class && l != nil && l.held.Strata() >= leastStrata {
			held = append(held, &l.held)
			strata += l.held.Strata()
		}
	}
	return held, strata
}

// heldBack is what hold-backs show together, without trials.
func heldBack(held []*verify.Holding) (energy, work verify.Effect) {
	var energies, works []verify.Effect
	for _, h := range held {
		e, w := h.Effects()
		energies, works = append(energies, e), append(works, w)
	}
	if len(held) == 1 {
		return energies[0], works[0]
	}
	return verify.Pool(energies).Mean, verify.Pool(works).Mean
}

// holdBack draws schedules for what is held back of levers that act, also where another lever
// is on trial: what is held back is drawn apart from it, so that it is noise to the trial, and
// little; without it nothing could be said of what the lever saves for as long as trials last.
func (p *Proofs) holdBack(s Settings, now time.Time) {
	stratum := 0
	if s.HoldBack > 0 {
		stratum = verify.StratumBlocks(s.HoldBack)
	}
	for _, name := range p.names() {
		u := p.units[name]
		for _, lever := range leversOf(name) {
			l := u.lots[lever]
			switch {
			case l == nil:
			case l.entry != entered || !u.metered || p.memberOf(name, lever) != nil:
				p.closeHold(u, lever, l)
			case u.here != nil && u.here.Ready && u.isCandidate(lever) && l.needsHold(stratum, now):
				p.drawHold(u, lever, stratum, now)
			}
		}
	}
}

// closeHold ends what is held back of a lever on a unit.
func (p *Proofs) closeHold(u *unit, lever v1alpha1.Lever, l *lot) {
	if l.hold != nil {
		l.endStratum()
		l.hold = nil
		delete(p.pools, poolKey{lever, u.class})
	}
}

func (l *lot) needsHold(stratum int, now time.Time) bool {
	if l.hold == nil || l.hold.stratum != stratum || l.hold.isFarAhead(now) {
		return true
	}
	blocks := model.MostBlocks
	if stratum > 0 {
		blocks = blocks / stratum * stratum
	}
	// The last block is waited for.
	return !now.Before(l.hold.start.Add(time.Duration(blocks)*l.hold.block + late))
}

func (p *Proofs) drawHold(u *unit, lever v1alpha1.Lever, stratum int, now time.Time) {
	block, washOut, err := blocksOf(lever, u.here.Meter)
	if err != nil {
		return
	}
	l := u.lot(lever)
	p.closeHold(u, lever, l)
	l.drawn++
	l.hold = &hold{drawn: l.drawn, start: minuteAfter(now.Add(ahead)), block: block, washOut: washOut, stratum: stratum}
}
