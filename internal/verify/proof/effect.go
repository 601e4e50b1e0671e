package proof

import (
	"maps"
	"slices"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/verify"
)

const (
	// leastStrata is from how many strata a hold-back on one unit says something: the error
	// of fewer is hardly known, and one that happens to be small would weigh too much.
	leastStrata = 4
	// sure is the confidence of the interval that has to lie beyond 0 before a unit is taken
	// to be unlike its class: one unit in ten that the lever does nothing to is.
	sure = 0.8
	// doubtful is that of the interval of a unit which was not tried: when it reaches beyond
	// 0, one such unit in five loses.
	doubtful = 0.6
)

type poolKey struct {
	lever v1alpha1.Lever
	class verify.Class
}

// Effect of a lever on a unit as it is known now: its own, drawn to that of its class.
// A unit that nothing was measured on has that of its class.
func (p *Proofs) Effect(name string, lever v1alpha1.Lever) verify.Shrunk {
	u := p.units[name]
	if u == nil {
		return verify.Shrunk{}
	}
	return p.pool(poolKey{lever, u.class}).Unit(p.own(name, lever))
}

// own is what was measured on the unit itself: in a trial alone, or else in that of its
// class, and by hold-back since.
func (p *Proofs) own(name string, lever v1alpha1.Lever) verify.Effect {
	u := p.units[name]
	tried := p.stands(p.at(name, lever)).effectOf(name)
	if !tried.IsKnown() {
		tried = p.stands(place{lever: lever, class: u.class}).effectOf(name)
	}
	return tried.With(u.heldBack(lever))
}

// heldBack is what the unit's hold-back shows of the joules for the same work.
func (u *unit) heldBack(lever v1alpha1.Lever) verify.Effect {
	l := u.lots[lever]
	if l == nil || l.held.Strata() < leastStrata {
		return verify.Effect{}
	}
	energy, _ := l.held.Effects()
	return energy
}

// pool of what was measured here on a class: on all of its units, those too that are judged
// alone by now. Leaving out what looks bad would make the rest look better than it is.
func (p *Proofs) pool(key poolKey) verify.Pooled {
	if !isLoaded(key.class) {
		return verify.Pooled{}
	}
	if pooled, has := p.pools[key]; has {
		return pooled
	}
	found := map[string]verify.Effect{}
	// Units that are gone, or of another class by now, are those that are not found again.
	for _, e := range p.stands(place{lever: key.lever, class: key.class}).effects {
		found[e.Unit] = e.Effect
	}
	for name, u := range p.units {
		if u.class == key.class {
			found[name] = p.own(name, key.lever)
		}
	}
	// Sums are the same to the last digit only in the same order.
	effects := make([]verify.Effect, 0, len(found))
	for _, name := range slices.Sorted(maps.Keys(found)) {
		effects = append(effects, found[name])
	}
	pooled := verify.Pool(effects)
	p.pools[key] = pooled
	return pooled
}

// costs tells whether an effect is clearly one that costs energy.
func costs(s verify.Shrunk) bool {
	low, _ := s.Effect().Interval(sure)
	return s.IsKnown() && low > 0
}

// isDoubtful tells whether a lever that its class adopted may not act on a unit before a
// trial there: for what is known of the class, too many such units would lose. Of a class
// of one nothing is known of the next.
func (p *Proofs) isDoubtful(name string, lever v1alpha1.Lever) bool {
	if p.own(name, lever).IsKnown() {
		return false
	}
	effect := p.Effect(name, lever)
	_, high := effect.Effect().Interval(doubtful)
	return !effect.IsKnown() || high > 0
}

// unlike are the members of a trial whose effects say clearly that the lever costs energy
// there.
func (p *Proofs) unlike(t *trial) []string {
	var all []string
	for i := range t.members {
		m := &t.members[i]
		if u := p.units[m.unit]; !m.left && u != nil && u.class == t.at.class && p.own(m.unit, t.at.lever).IsKnown() &&
			costs(p.Effect(m.unit, t.at.lever)) {
			all = append(all, m.unit)
		}
	}
	return all
}

// savesElsewhere tells whether the lever seems to save on a trial's units but for some:
// enough for another trial of the others.
func savesElsewhere(v *verify.Verdict, but []string, least float64) bool {
	var rest []verify.Effect
	for _, e := range v.Units {
		if !slices.Contains(but, e.Unit) && e.IsKnown() {
			rest = append(rest, e.Effect)
		}
	}
	if len(rest) == 0 {
		return false
	}
	mean := rest[0]
	if len(rest) > 1 {
		mean = verify.Pool(rest).Mean
	}
	_, high := mean.Interval(sure)
	return high < 0 && mean.Log < -least
}
