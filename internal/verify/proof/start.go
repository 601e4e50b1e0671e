package proof

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/units"
	"github.com/joulevirt/joulevirt/internal/verify"
)

const (
	// mostTried is how many units a lever is tried on at first: more shorten a trial little,
	// and put more at stake. mostRest is how many it is tried on once the class adopted it.
	mostTried, mostRest = 16, 64
	// patience is for how long a trial waits for more units of the class.
	patience = 10 * time.Minute
	// ahead is how long before its start a schedule is drawn, beside the block before that
	// is measured without it: plans are written and read meanwhile.
	ahead = 5 * time.Minute
	// overdue is after how long what waits for its trial goes before what promises more.
	overdue = 24 * time.Hour
	// maxReported is how many blocks trials may have together: what is stored has to fit into
	// an object.
	maxReported = 20_000
	// longestComing is how long a trial waits at most for its lever to come to all VMs.
	longestComing = 12 * time.Hour
	// windowsTuned is how long blocks of buffering last at least: its windows are tuned
	// within them.
	windowsTuned = 15 * time.Minute
)

// blocksOf a lever by a meter.
func blocksOf(lever v1alpha1.Lever, meter verify.Meter) (block, washOut time.Duration, err error) {
	block, washOut, err = verify.Blocks(verify.Settling(lever), meter)
	if lever == v1alpha1.LeverBuffering {
		block = max(block, windowsTuned)
	}
	return block, washOut, err
}

// taken are the nodes that trials have.
type taken map[string]bool

func (t taken) add(nodes []string) {
	for _, node := range nodes {
		t[node] = true
	}
}

func (t taken) any(nodes []string) bool {
	return slices.ContainsFunc(nodes, func(node string) bool { return t[node] })
}

// taken by the trials that run.
func (p *Proofs) taken() taken {
	all := taken{}
	for _, f := range p.fields {
		if f.trial == nil {
			continue
		}
		for i := range f.trial.members {
			m := &f.trial.members[i]
			if m.left {
				continue
			}
			if all.add(m.nodes); m.nodes == nil {
				all[m.unit] = true
			}
			if u := p.units[m.unit]; u != nil {
				all.add(u.nodes(m.unit))
			}
		}
	}
	return all
}

// call is a place where a trial may start.
type call struct {
	at place
	f  *field
	// names of units that may take part, and watts that the lever would save on them.
	// coming counts units that are on trial of something else.
	names  []string
	watts  units.Watts
	coming int
	late   bool
}

// start trials where units are free for them.
func (p *Proofs) start(s Settings, now time.Time) []News {
	busy := p.taken()
	var news []News
	for _, c := range p.calls(busy, now) {
		// Another one may have begun in this round.
		free := slices.DeleteFunc(slices.Clone(c.names), func(name string) bool { return busy.any(p.units[name].nodes(name)) })
		c.coming += len(c.names) - len(free)
		c.names = free
		if !c.isReady(now) {
			if c.late {
				// What waits for long has its nodes kept free.
				p.reserve(c.at, busy)
			}
			continue
		}
		if p.blocksTold()+c.blocksToTell() > maxReported {
			continue
		}
		t := p.draw(&c, s, now)
		for i := range t.members {
			busy.add(p.units[t.members[i].unit].nodes(t.members[i].unit))
		}
		news = append(news, t.started())
	}
	return news
}

// calls for trials: what has waited for long, then what promises most.
func (p *Proofs) calls(busy taken, now time.Time) []call {
	found := map[place]*call{}
	for _, name := range p.names() {
		u := p.units[name]
		if u.here == nil || !u.metered || u.approved {
			continue
		}
		for _, candidate := range u.here.Candidates {
			at := p.at(name, candidate.Lever)
			f := p.fields[at]
			if f == nil || !p.isCalled(name, f, candidate.Lever, now) {
				continue
			}
			c := found[at]
			if c == nil {
				c = &call{at: at, f: f}
				found[at] = c
			}
			if u.cannot(candidate.Lever) != nil {
				continue
			}
			switch {
			case busy.any(u.nodes(name)):
				c.coming++
			case u.here.Ready && !slices.Contains(c.names, name):
				c.names = append(c.names, name)
				c.watts += candidate.Watts
			}
		}
	}
	return p.inOrder(found, now)
}

func (p *Proofs) inOrder(found map[place]*call, now time.Time) []call {
	for at, f := range p.fields {
		f.ready = earlier(f.ready, now)
		if found[at] == nil || len(found[at].names)+found[at].coming == 0 {
			f.ready = time.Time{}
		} else if f.ready.IsZero() {
			f.ready = now
		}
	}
	var all []call
	for _, at := range p.places() {
		if c := found[at]; c != nil && !c.f.ready.IsZero() {
			c.late = now.Sub(c.f.ready) > overdue
			all = append(all, *c)
		}
	}
	slices.SortStableFunc(all, func(a, b call) int {
		if a.late != b.late {
			if a.late {
				return -1
			}
			return 1
		}
		return cmp.Compare(b.watts, a.watts)
	})
	return all
}

// isCalled tells whether a lever is to be tried on a unit now.
func (p *Proofs) isCalled(name string, f *field, lever v1alpha1.Lever, now time.Time) bool {
	if f.trial != nil {
		return false
	}
	switch {
	case f.decision == "" || f.again:
		return true
	case f.decision == verify.Adopted:
		l := p.units[name].lots[lever]
		return l != nil && l.entry == untried
	default:
		return !now.Before(f.until)
	}
}

// isReady tells whether a trial starts with the units that there are: with as many as it
// takes, or, after some patience, with half of those that may still come.
func (c *call) isReady(now time.Time) bool {
	want := min(mostTried, len(c.names)+c.coming)
	switch {
	case len(c.names) == 0:
		return false
	case len(c.names) >= mostTried:
		return true
	case now.Sub(c.f.ready) < patience:
		return false
	}
	return c.late || 2*len(c.names) >= want
}

// reserve keeps nodes of units free that wait for a trial together with others that are
// not.
func (p *Proofs) reserve(at place, busy taken) {
	for name, u := range p.units {
		if u.here != nil && u.isCandidate(at.lever) && p.at(name, at.lever) == at {
			busy.add(u.nodes(name))
		}
	}
}

// blocksTold is how many blocks there are of trials that run, or wait to be booked.
func (p *Proofs) blocksTold() int {
	n := 0
	for _, f := range p.fields {
		if f.trial != nil {
			n += 2 * f.trial.pairs * len(f.trial.members)
		}
	}
	for _, t := range p.ended {
		n += 2 * t.pairs * len(t.members)
	}
	return n
}

// blocksToTell is how many blocks a trial would have.
func (c *call) blocksToTell() int {
	units := min(len(c.names), c.most())
	return 2 * c.plan(time.Hour, units).Pairs * units
}

// plan of the trial on so many units.
func (c *call) plan(block time.Duration, units int) verify.Plan {
	plan := verify.DefaultPlan(block, units)
	if c.f.decision == verify.Undecided && !c.f.again {
		plan = plan.Longer(c.f.planned)
	}
	return plan
}

// isRest tells whether the trial is on units of a class that adopted the lever before.
func (c *call) isRest() bool { return c.f.decision == verify.Adopted && !c.f.again }

// most units that take part.
func (c *call) most() int {
	if c.isRest() {
		return mostRest
	}
	return mostTried
}

// draw a trial for units that may take part. Which of them do is drawn too: the most
// promising would not stand for their class.
func (p *Proofs) draw(c *call, s Settings, now time.Time) *trial {
	names := p.shuffled(c)
	names = names[:min(len(names), c.most())]
	slices.Sort(names)
	t := &trial{at: c.at, number: c.f.number + 1, rest: c.isRest(), confidence: s.Confidence, rejections: c.f.rejections, heard: now}
	for _, name := range names {
		block, washOut, err := blocksOf(c.at.lever, p.units[name].here.Meter)
		if err != nil {
			continue
		}
		t.block, t.washOut = max(t.block, block), max(t.washOut, washOut)
	}
	// What washes out longest may not fit what is shortest: both are of the slowest meter,
	// or else of two that are alike.
	plan := c.plan(t.block, len(names))
	t.pairs, t.every, t.start = plan.Pairs, plan.Every, minuteAfter(now.Add(p.comes(names, c.at.lever)+t.block+ahead))
	for _, name := range names {
		u := p.units[name]
		l := u.lot(c.at.lever)
		l.drawn++
		p.closeHold(u, c.at.lever, l)
		// What was held back until now is of the effect that is tried anew.
		l.held, l.checked = l.held.Anew(), 0
		m := member{unit: name, drawn: l.drawn, blocks: make([]told, 2*t.pairs)}
		if nodes := u.nodes(name); len(nodes) != 1 || nodes[0] != name {
			m.nodes = slices.Clone(nodes)
		}
		t.members = append(t.members, m)
	}
	delete(p.pools, poolKey{c.at.lever, c.at.class})
	c.f.number, c.f.trial, c.f.ready = t.number, t, time.Time{}
	return t
}

// comes is how long it takes until a lever does all that it would on all of the units. Plans
// have it from when the trial is drawn, and agents leave it off until its first block.
func (p *Proofs) comes(names []string, lever v1alpha1.Lever) time.Duration {
	var longest time.Duration
	for _, name := range names {
		longest = max(longest, p.units[name].comes(lever))
	}
	return longest
}

// shuffled names of units, by the numbers of their next draws.
func (p *Proofs) shuffled(c *call) []string {
	key := func(name string) []byte {
		return binary.BigEndian.AppendUint64(nil, uint64(verify.Seed(name, c.at.lever, -c.f.number-1)))
	}
	names := slices.Clone(c.names)
	slices.SortFunc(names, func(a, b string) int { return bytes.Compare(key(a), key(b)) })
	return names
}

func minuteAfter(t time.Time) time.Time {
	return t.Add(time.Minute - time.Nanosecond).Truncate(time.Minute).UTC()
}

func (t *trial) started() News {
	return News{
		Kind: TrialStarted, Lever: t.at.lever, Class: t.at.class, Units: t.names(),
		Message: fmt.Sprintf("trial %d of %s on %s: %d pairs of blocks of %v each from %s on, until %s at the latest",
			t.number, t.at.lever, count(len(t.members)), t.pairs, t.block, clock(t.start), clock(t.end().Add(late))),
	}
}

// names of all members.
func (t *trial) names() []string {
	names := make([]string, len(t.members))
	for i := range t.members {
		names[i] = t.members[i].unit
	}
	return names
}

func count(units int) string {
	if units == 1 {
		return "1 unit"
	}
	return fmt.Sprintf("%d units", units)
}

// clock is a time in words.
func clock(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 MST") }
