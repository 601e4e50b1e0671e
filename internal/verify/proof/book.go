package proof

import (
	"slices"
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
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
}

// mostDue is how many runs wait for their effect to be known. Until four strata were
// compared there are two to each.
const mostDue = 10

// book a block. Where the effect is not known yet it waits. Blocks that are alike are booked
// as one, so that they take little while they wait.
func (l *lot) book(next run) {
	if last := len(l.due) - 1; last >= 0 {
		d := &l.due[last]
		if d.to.Equal(next.from) && d.on == next.on && d.cause == 0 && next.cause == 0 {
			d.to, d.seconds, d.joules, d.work = next.to, d.seconds+next.seconds, d.joules+next.joules, d.work+next.work
			return
		}
	}
	l.due = append(l.due, next)
}

// Bookings returns blocks for the ledger whose effect is known by now, each once: those of
// a trial when it has ended, whatever its verdict, for what exploring costs is booked too;
// those of a hold-back as they come. Store the proofs and the ledger together.
func (p *Proofs) Bookings() []ledger.Block {
	var all []ledger.Block
	for _, t := range p.ended {
		all = append(all, p.bookTrial(t)...)
	}
	p.ended = nil
	for _, name := range p.names() {
		u := p.units[name]
		for _, lever := range leversOf(name) {
			l := u.lots[lever]
			if l == nil || len(l.due) == 0 {
				continue
			}
			effect := p.Effect(name, lever)
			// Of more than can wait the oldest are told of, and nothing is claimed for them.
			over := len(l.due) - mostDue
			l.due = slices.DeleteFunc(l.due, func(r run) bool {
				over--
				if r.on && r.cause == 0 && !effect.IsKnown() && over < 0 {
					return false
				}
				all = append(all, blockOf(name, lever, u.class, effect, &r))
				return true
			})
		}
	}
	return all
}

func (p *Proofs) bookTrial(t *trial) []ledger.Block {
	var all []ledger.Block
	for i := range t.members {
		m := &t.members[i]
		s := t.scheduleOf(m)
		effect := p.Effect(m.unit, t.at.lever)
		if u := p.units[m.unit]; u == nil || u.class != t.at.class {
			effect = p.pool(poolKey{t.at.lever, t.at.class}).Unit(p.stands(t.at).effectOf(m.unit))
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

func blockOf(name string, lever model.Lever, class verify.Class, effect verify.Shrunk, r *run) ledger.Block {
	return ledger.Block{
		Node: name, Lever: lever, From: r.from, To: r.to, On: r.on, Class: class, Effect: effect,
		Measured: ledger.Measured{
			Seconds: float64(r.seconds), Joules: units.Joules(r.joules), Bytes: float64(r.work), Excluded: causes()[r.cause],
		},
	}
}
