package proof

import (
	"slices"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/units"
	"github.com/joulevirt/joulevirt/internal/verify"
	"github.com/joulevirt/joulevirt/internal/verify/ledger"
)

// run is one block of a hold-back, or several that follow one another and are alike, that
// is to be booked.
type run struct {
	from, to time.Time
	on       bool
	told
	basis basis
	// log is the difference that its stratum showed, with its precision, and share the part of
	// the joules of the stratum's on blocks that the run has.
	log, precision, share float32
}

const (
	// mostDue is how many runs wait to be booked, and mostOpen for their stratum's end.
	mostDue, mostOpen = 16, 32
	// longestRun is how long blocks are booked as one.
	longestRun = 12 * time.Hour
)

// book a block. One that is on waits for the end of its stratum.
func (l *lot) book(next run) {
	if next.on && next.cause == 0 && l.hold.stratum > 0 {
		if l.open = joined(l.open, next); len(l.open) > mostOpen {
			l.due, l.open = append(l.due, l.open[0]), l.open[1:]
			l.due[len(l.due)-1].basis = byNothing
		}
		return
	}
	l.due = joined(l.due, next)
}

// joined runs. Blocks that are alike are booked as one, so that they take little while they
// wait.
func joined(runs []run, next run) []run {
	if last := len(runs) - 1; last >= 0 {
		d := &runs[last]
		if d.to.Equal(next.from) && d.on == next.on && d.cause == 0 && next.cause == 0 && d.basis == byUnit &&
			next.to.Sub(d.from) <= longestRun {
			d.to, d.seconds, d.joules, d.work = next.to, d.seconds+next.seconds, d.joules+next.joules, d.work+next.work
			return runs
		}
	}
	return append(runs, next)
}

// Bookings returns blocks for the ledger whose effect is known by now, each once: those of
// a trial when it has ended, whatever its verdict, for what exploring costs is booked too;
// those of a hold-back when their stratum has. Store the proofs and the ledger together.
func (p *Proofs) Bookings() []ledger.Block {
	var all []ledger.Block
	for _, t := range p.ended {
		all = append(all, p.bookTrial(t)...)
	}
	p.ended = nil
	chances := map[poolKey]chance{}
	for _, name := range p.names() {
		u := p.units[name]
		for _, lever := range leversOf(name) {
			if l := u.lots[lever]; l != nil && len(l.due) > 0 {
				all = append(all, p.bookHeld(name, lever, l, chances)...)
			}
		}
	}
	return all
}

// bookHeld books what is due of a hold-back. chances are those of classes that were reckoned
// before.
func (p *Proofs) bookHeld(name string, lever v1alpha1.Lever, l *lot, chances map[poolKey]chance) []ledger.Block {
	u := p.units[name]
	key := poolKey{lever, u.class}
	of, has := chances[key]
	if !has || !isLoaded(u.class) {
		of = p.chanceOf(name, lever)
		chances[key] = of
	}
	effect := p.Effect(name, lever)
	var all []ledger.Block
	// Of more than can wait the oldest are told of, and nothing is claimed for them.
	over := len(l.due) - mostDue
	l.due = slices.DeleteFunc(l.due, func(r run) bool {
		over--
		b := blockOf(name, lever, u.class, verify.Shrunk{}, &r)
		known := true
		switch {
		case !r.on || r.cause != 0 || r.basis == byNothing:
		case r.basis == byStratum && of.isKnown():
			of.show(&b, &r)
		case r.basis == byUnit && effect.IsKnown():
			b.Effect = effect
		default:
			known = false
		}
		if !known && over < 0 {
			return false
		}
		all = append(all, b)
		return true
	})
	return all
}

// bookTrial books the blocks of a trial by what it found itself, which is of just its hours.
func (p *Proofs) bookTrial(t *trial) []ledger.Block {
	found := &field{}
	found.setEffects(t.judge().Units)
	var effects []verify.Effect
	for _, e := range found.effects {
		effects = append(effects, e.Effect)
	}
	pooled := verify.Pool(effects)
	var all []ledger.Block
	for i := range t.members {
		m := &t.members[i]
		s := t.scheduleOf(m)
		effect := pooled.Unit(found.effectOf(m.unit))
		if u := p.units[m.unit]; !effect.IsKnown() && u != nil && u.class == t.at.class {
			effect = p.Effect(m.unit, t.at.lever)
		}
		for b := range m.blocks {
			if s == nil || !m.blocks[b].came {
				continue
			}
			from := s.Start.Add(time.Duration(b) * s.Block)
			all = append(all, blockOf(m.unit, t.at.lever, t.at.class, effect, &run{from: from, to: from.Add(s.Block), on: s.On[b], told: m.blocks[b]}))
		}
	}
	return all
}

func blockOf(name string, lever v1alpha1.Lever, class verify.Class, effect verify.Shrunk, r *run) ledger.Block {
	return ledger.Block{
		Node: name, Lever: lever, From: r.from, To: r.to, On: r.on, Class: class, Effect: effect,
		Measured: ledger.Measured{
			Seconds: float64(r.seconds), Joules: units.Joules(r.joules), Bytes: float64(r.work), Excluded: causes()[r.cause],
		},
	}
}
