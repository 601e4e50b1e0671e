package proof

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
	"github.com/joulevirt/joulevirt/internal/verify"
)

// magic begins what is stored, with the version of its form. Schedules are not stored but
// drawn again: a version that draws otherwise has another.
const magic = "joulevirt-proofs-4\n"

// Forms that are read too, as long as the last: the third is of before holdings counted blocks
// that are missing, which have none then, and the second of before classes told of clocks, which
// are not known then.
const (
	third  = "joulevirt-proofs-3\n"
	second = "joulevirt-proofs-2\n"
)

// Save returns the proofs as bytes to be stored, the same for the same content.
func (p *Proofs) Save() []byte { return p.save(magic) }

// save in a form.
func (p *Proofs) save(form string) []byte {
	c := &coder{data: []byte(form), second: form == second, words: p.words()}
	list(c, &c.words, c.text)
	p.code(c)
	return binary.LittleEndian.AppendUint32(c.data, crc32.ChecksumIEEE(c.data))
}

// Load returns proofs from what was stored. The error says what is wrong with it.
func Load(stored []byte) (*Proofs, error) {
	if len(stored) < len(magic)+4 || !slices.Contains([]string{magic, third, second}, string(stored[:len(magic)])) {
		return nil, errors.New("stored proofs: are none, or of another version: run that version, or remove them to begin anew")
	}
	body, sum := stored[:len(stored)-4], stored[len(stored)-4:]
	if crc32.ChecksumIEEE(body) != binary.LittleEndian.Uint32(sum) {
		return nil, errors.New("stored proofs: their checksum is wrong, so they were changed or cut: put back what the manager stored, or remove them to begin anew")
	}
	form := string(stored[:len(magic)])
	c := &coder{reading: true, second: form == second, data: body[len(form):]}
	list(c, &c.words, c.text)
	p := New()
	p.code(c)
	// What is read is refused unless it is just what would be written.
	if c.failed || len(c.data) > 0 || !p.isSound() || !bytes.Equal(p.save(form), stored) {
		return nil, errors.New("stored proofs: cannot be read though their checksum is right: remove them to begin anew")
	}
	return p, nil
}

// words are all names in order.
func (p *Proofs) words() []string {
	seen := map[string]bool{"": true}
	class := func(class verify.Class) {
		for _, word := range []string{class.CPUModel, class.Kernel, class.Idle, class.Clocks, class.Workload} {
			seen[word] = true
		}
	}
	trial := func(t *trial) {
		for i := range t.members {
			seen[t.members[i].unit] = true
			for _, node := range t.members[i].nodes {
				seen[node] = true
			}
		}
	}
	for name, u := range p.units {
		seen[name] = true
		class(u.class)
		for lever := range u.lots {
			seen[string(lever)] = true
		}
	}
	place := func(at place) {
		seen[string(at.lever)], seen[at.alone] = true, true
		class(at.class)
	}
	for at, f := range p.fields {
		place(at)
		for _, e := range f.effects {
			seen[e.Unit] = true
		}
		if f.trial != nil {
			trial(f.trial)
		}
	}
	for _, t := range p.ended {
		place(t.at)
		trial(t)
	}
	return slices.Sorted(maps.Keys(seen))
}

func (p *Proofs) code(c *coder) {
	c.finite(&p.confidence)
	names := p.names()
	list(c, &names, func(name *string) {
		c.word(name)
		u := p.units[*name]
		if u == nil {
			u = &unit{lots: map[model.Lever]*lot{}}
			p.units[*name] = u
		}
		u.code(c)
	})
	places := p.places()
	list(c, &places, func(at *place) {
		at.code(c)
		p.field(*at).code(c, *at)
	})
	list(c, &p.ended, func(t **trial) {
		if *t == nil {
			*t = &trial{}
		}
		(*t).at.code(c)
		(*t).code(c)
	})
	list(c, &p.dropped, func(id *uint64) {
		low, high := int(*id&math.MaxUint32), int(*id>>32)
		c.count(&low, math.MaxUint32)
		c.count(&high, math.MaxUint32)
		*id = uint64(high)<<32 | uint64(low)
	})
}

func codeClass(c *coder, class *verify.Class) {
	words := []*string{&class.CPUModel, &class.Kernel, &class.Idle, &class.Clocks, &class.Workload}
	for _, word := range words {
		if word != &class.Clocks || !c.second {
			c.word(word)
		}
	}
}

func (at *place) code(c *coder) {
	c.word((*string)(&at.lever))
	codeClass(c, &at.class)
	c.word(&at.alone)
}

func (u *unit) code(c *coder) {
	codeClass(c, &u.class)
	c.flag(&u.metered)
	c.flag(&u.approved)
	c.instant(&u.seen)
	levers := slices.Sorted(maps.Keys(u.lots))
	list(c, &levers, func(lever *model.Lever) {
		c.word((*string)(lever))
		u.lot(*lever).code(c)
	})
}

const mostCount = math.MaxInt32

func (l *lot) code(c *coder) {
	c.count(&l.drawn, mostCount)
	c.flag(&l.apart)
	c.octet((*uint8)(&l.entry), uint8(untried))
	c.count(&l.checked, mostCount)
	// Most figures are 0 where little was held back.
	mask, figures := 0, l.held.Figures()
	for i, f := range figures {
		if *f != 0 {
			mask |= 1 << i
		}
	}
	c.count(&mask, 1<<verify.HeldFigures-1)
	for i, f := range figures {
		if mask&(1<<i) != 0 {
			c.short(f)
		}
	}
	has := l.hold != nil
	if c.flag(&has); has {
		if l.hold == nil {
			l.hold = &hold{}
		}
		l.hold.code(c)
	}
	c.flag(&l.shown)
	list(c, &l.open, func(r *run) { r.code(c) })
	list(c, &l.due, func(r *run) { r.code(c) })
}

func (r *run) code(c *coder) {
	c.instant(&r.from)
	length := r.to.Sub(r.from)
	c.duration(&length)
	r.to = r.from.Add(length)
	c.flag(&r.on)
	r.told.code(c)
	c.octet((*uint8)(&r.basis), uint8(byNothing))
	if r.basis == byStratum {
		c.short(&r.log)
		c.short(&r.precision)
		c.short(&r.share)
	}
}

func (h *hold) code(c *coder) {
	c.count(&h.drawn, mostCount)
	c.instant(&h.start)
	c.duration(&h.block)
	c.duration(&h.washOut)
	c.count(&h.stratum, model.MostBlocks)
	c.count(&h.next, model.MostBlocks)
}

func (t *told) code(c *coder) {
	state := t.cause << 2
	if t.came {
		state |= 1
	}
	if t.guarded {
		state |= 2
	}
	c.octet(&state, uint8(len(causes())-1)<<2|3)
	t.came, t.guarded, t.cause = state&1 != 0, state&2 != 0, state>>2
	if t.came && t.cause == 0 {
		c.short(&t.seconds)
		c.short(&t.joules)
		c.short(&t.work)
		if c.reading && !(t.seconds > 0 && t.joules >= 0 && t.work >= 0) {
			c.fail()
		}
	}
}

func codeEffect(c *coder, e *verify.Effect) {
	c.finite(&e.Log)
	c.finite(&e.StdErr)
	c.figure(&e.Freedom)
	c.count(&e.Units, mostCount)
	c.count(&e.Pairs, mostCount)
	// What no trial finds makes sums that do not end.
	sane := math.Abs(e.Log) < 100 && (e.StdErr == 0 || e.StdErr > 1e-9 && e.StdErr < 100) && (e.Freedom == 0 || e.Freedom >= 0.5)
	if c.reading && !sane {
		c.fail()
	}
}

func (f *field) code(c *coder, at place) {
	c.count(&f.number, mostCount)
	c.instant(&f.ready)
	f.verdict.code(c)
	list(c, &f.effects, func(e *verify.UnitEffect) {
		c.word(&e.Unit)
		codeEffect(c, &e.Effect)
	})
	c.count(&f.checked, mostCount)
	c.flag(&f.again)
	has := f.trial != nil
	if c.flag(&has); has {
		if f.trial == nil {
			f.trial = &trial{at: at}
		}
		f.trial.code(c)
	}
}

func (v *verdict) code(c *coder) {
	decision := uint8(slices.Index(decisions(), v.decision))
	c.octet(&decision, uint8(len(decisions())-1))
	v.decision = decisions()[decision]
	c.flag(&v.imported)
	c.instant(&v.from)
	c.instant(&v.seen)
	c.instant(&v.decided)
	c.instant(&v.until)
	c.count(&v.rejections, mostCount)
	codeEffect(c, &v.found)
	c.figure(&v.log)
	c.figure(&v.low)
	c.figure(&v.high)
	c.count(&v.units, mostCount)
	c.count(&v.pairs, mostCount)
	c.count(&v.planned, mostCount)
	c.text(&v.message)
}

// decisions in the order in which they are stored.
func decisions() []verify.Decision {
	return []verify.Decision{"", verify.Adopted, verify.Rejected, verify.Undecided}
}

func (t *trial) code(c *coder) {
	c.count(&t.number, mostCount)
	c.flag(&t.rest)
	c.instant(&t.start)
	c.duration(&t.block)
	c.duration(&t.washOut)
	c.count(&t.pairs, model.MostBlocks/2)
	c.count(&t.every, model.MostBlocks/2)
	c.finite(&t.confidence)
	c.count(&t.rejections, mostCount)
	c.instant(&t.heard)
	c.count(&t.over, model.MostBlocks/2)
	list(c, &t.members, func(m *member) {
		c.word(&m.unit)
		c.count(&m.drawn, mostCount)
		list(c, &m.nodes, c.word)
		c.flag(&m.left)
		before := [3]float32{float32(m.before.Seconds), float32(m.before.Joules), float32(m.before.Work)}
		for i := range before {
			c.short(&before[i])
		}
		m.before = verify.Stretch{Seconds: float64(before[0]), Joules: units.Joules(before[1]), Work: float64(before[2])}
		list(c, &m.blocks, func(t *told) { t.code(c) })
	})
}

// isSound tells whether what was read can be gone on with.
func (p *Proofs) isSound() bool {
	for name, u := range p.units {
		for lever, l := range u.lots {
			if !slices.Contains(leversOf(name), lever) || !l.isSound(name, lever) {
				return false
			}
		}
	}
	for at, f := range p.fields {
		sorted := slices.IsSortedFunc(f.effects, func(a, b verify.UnitEffect) int { return strings.Compare(a.Unit, b.Unit) })
		if !model.IsWord(string(at.lever)) || !sorted || f.trial != nil && !f.trial.isSound() {
			return false
		}
	}
	return !slices.ContainsFunc(p.ended, func(t *trial) bool { return !t.isSound() }) && slices.IsSorted(p.dropped) &&
		p.confidence >= 0.5 && p.confidence <= 0.999
}

func (l *lot) isSound(name string, lever model.Lever) bool {
	waits := func(r run) bool { return !r.on || r.cause != 0 || r.basis != byUnit }
	wrong := func(r run) bool {
		return r.basis == byStratum && !(r.on && r.cause == 0 && isPrecision(float64(r.precision)) && r.share > 0 && r.share <= 1)
	}
	_, precision := l.held.Last()
	if slices.ContainsFunc(l.open, waits) || slices.ContainsFunc(l.due, wrong) || len(l.open) > mostOpen ||
		l.shown && !isPrecision(precision) {
		return false
	}
	if l.hold == nil || l.hold.stratum == 0 {
		if len(l.open) > 0 || l.shown {
			return false
		}
	}
	if l.hold == nil {
		return true
	}
	s := l.hold.scheduleOf(name, lever)
	return l.hold.stratum != 1 && s != nil && s.IsValid() && l.hold.next <= len(s.On)
}

func (t *trial) isSound() bool {
	plan := t.plan()
	if plan.Check() != nil || t.over > t.pairs || len(t.members) == 0 {
		return false
	}
	for i := range t.members {
		m := &t.members[i]
		s := t.scheduleOf(m)
		if s == nil || !s.IsValid() || len(m.blocks) != len(s.On) || i > 0 && t.members[i-1].unit >= m.unit {
			return false
		}
	}
	return true
}
