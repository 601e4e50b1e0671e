package proof

import (
	"bytes"
	"cmp"
	"maps"
	"slices"
)

// Rebase takes in what another manager stored meanwhile: outcomes of the same trials are
// put together, and of verdicts the later stands. Nothing changes when the stored bytes
// are wrong.
func (p *Proofs) Rebase(stored []byte) error {
	o, err := Load(stored)
	if err != nil {
		return err
	}
	clear(p.pools)
	for _, name := range o.names() {
		if p.units[name] == nil {
			p.units[name] = o.units[name]
			continue
		}
		p.units[name].rebase(o.units[name])
	}
	for _, at := range o.places() {
		if p.fields[at] == nil {
			p.fields[at] = o.fields[at]
			continue
		}
		p.fields[at].rebase(o.fields[at])
	}
	for _, t := range o.ended {
		if !slices.ContainsFunc(p.ended, t.isSame) {
			p.ended = append(p.ended, t)
		}
	}
	slices.SortStableFunc(p.ended, func(a, b *trial) int { return cmp.Or(comparePlaces(a.at, b.at), a.start.Compare(b.start)) })
	p.dropped = append(p.dropped, o.dropped...)
	slices.Sort(p.dropped)
	p.dropped = slices.Compact(p.dropped)
	p.Import(p.imported)
	return nil
}

// rebase a unit. What it is now is known here.
func (u *unit) rebase(o *unit) {
	if u.class != o.class {
		return
	}
	for _, lever := range slices.Sorted(maps.Keys(o.lots)) {
		l := o.lots[lever]
		if mine := u.lots[lever]; mine == nil || mine.isBehind(l) {
			u.lots[lever] = l
		}
	}
}

// isBehind tells whether another manager saw more of a lot: sums cannot be put together of
// which each has a part of the other's.
func (l *lot) isBehind(o *lot) bool {
	next := func(l *lot) int {
		if l.hold == nil {
			return 0
		}
		return l.hold.next
	}
	return cmp.Or(cmp.Compare(l.drawn, o.drawn), cmp.Compare(next(l), next(o)), cmp.Compare(l.held.Strata(), o.held.Strata())) < 0
}

// rebase how a lever stands.
func (f *field) rebase(o *field) {
	mine, theirs := f.trial, o.trial
	if mine != nil && theirs != nil && mine.isSame(theirs) {
		mine.rebase(theirs)
	} else if f.number < o.number || f.number == o.number && (mine != nil && theirs == nil || mine != nil && theirs.isBefore(mine)) {
		f.trial, f.number, f.ready = theirs, o.number, o.ready
	}
	if f.decided.Before(o.decided) {
		f.verdict, f.effects, f.checked, f.again = o.verdict, o.effects, o.checked, o.again
	}
}

// isSame tells whether both managers know of the same trial.
func (t *trial) isSame(o *trial) bool {
	if t.at != o.at || t.number != o.number || !t.start.Equal(o.start) || t.pairs != o.pairs || t.block != o.block {
		return false
	}
	return slices.EqualFunc(t.members, o.members, func(a, b member) bool { return a.unit == b.unit && a.drawn == b.drawn })
}

// isBefore tells which of two trials stands that two managers drew at once: the one that
// begins earlier, or else whose first member goes first.
func (t *trial) isBefore(o *trial) bool {
	return cmp.Or(t.start.Compare(o.start), cmp.Compare(t.members[0].unit, o.members[0].unit), cmp.Compare(t.members[0].drawn, o.members[0].drawn)) < 0
}

// rebase puts the outcomes of one trial together.
func (t *trial) rebase(o *trial) {
	for i := range t.members {
		m, other := &t.members[i], &o.members[i]
		m.left = m.left || other.left
		for b := range m.blocks {
			m.blocks[b] = m.blocks[b].with(other.blocks[b])
		}
		if bytes.Compare(beforeOf(m), beforeOf(other)) < 0 {
			m.before = other.before
		}
	}
	t.over, t.judged = max(t.over, o.over), nil
	if t.heard.Before(o.heard) {
		t.heard = o.heard
	}
}

// beforeOf is the stretch before as bytes, by which two managers choose the same.
func beforeOf(m *member) []byte {
	c := &coder{}
	c.finite(&m.before.Seconds)
	c.finite((*float64)(&m.before.Joules))
	return c.data
}
