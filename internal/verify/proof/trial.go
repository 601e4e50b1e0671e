package proof

import (
	"math"
	"slices"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
	"github.com/joulevirt/joulevirt/internal/verify"
	"github.com/joulevirt/joulevirt/internal/verify/ledger"
)

// late is after how long a block's outcome does not come any more.
const late = 12 * time.Minute

// trial of a lever on several units at once.
type trial struct {
	at     place
	number int
	// rest is true when the lever is adopted on the class, and this is on units of it that
	// were not tried yet.
	rest           bool
	start          time.Time
	block, washOut time.Duration
	pairs, every   int
	confidence     float64
	rejections     int
	// members in the order of their names.
	members []member
	// heard is when a plan was last seen to have it, or when it was drawn.
	heard time.Time
	// over is how many pairs were over in the last round.
	over int
	// judged is the verdict so far. Nil: not since something changed.
	judged *verify.Verdict
}

// member is a unit of a trial.
type member struct {
	unit string
	// drawn is the number of the draw.
	drawn int
	// nodes that the unit had at the start. Nil: it is a node.
	nodes []string
	// left is true when it does not take part any more.
	left   bool
	before verify.Stretch
	blocks []told
	// schedule as it was drawn, made when it is needed.
	schedule *model.Schedule
}

// told is what is kept of a block. Its zero value: nothing came yet.
type told struct {
	came, guarded bool
	// cause is why it does not count, by its place in causes. 0: it does.
	cause                 uint8
	seconds, joules, work float32
}

// causes for which blocks do not count, in the order in which they are stored.
func causes() []ledger.Cause {
	return []ledger.Cause{
		"", ledger.MeterFailed, ledger.MeterChanged, ledger.ClockJumped, ledger.NotWatched,
		ledger.NotAsScheduled, ledger.AgentRestarted, ledger.Replaced, ledger.Contradictory,
	}
}

// reportedOf keeps a closed block. What cannot be is kept as contradictory.
func reportedOf(c *Closed, drawn bool) told {
	t := told{
		came: true, guarded: c.Guarded, seconds: float32(c.Seconds), joules: float32(c.Joules), work: float32(c.Work),
	}
	cause := ledger.Cause(c.Excluded)
	switch {
	case cause == "" && (c.On != drawn || !isAmount(t.seconds) || !isAmount(t.joules) || !isAmount(t.work) || t.seconds == 0):
		cause = ledger.Contradictory
	case cause == "" && c.Modelled:
		cause = ledger.MeterChanged // A model judges nothing.
	}
	at := slices.Index(causes(), cause)
	if at < 0 {
		at = slices.Index(causes(), ledger.Contradictory)
	}
	if t.cause = uint8(at); at > 0 {
		t.seconds, t.joules, t.work = 0, 0, 0
	}
	return t
}

func isAmount(f float32) bool { return f >= 0 && !math.IsInf(float64(f), 0) }

// with is what two managers, or one twice, told of a block: one that counts goes before one
// that does not, and of two the one that saw more of it, in whichever order they come. What
// a manager could not see says nothing of the lever.
func (t told) with(o told) told {
	if !t.came || !o.came {
		if o.came {
			return o
		}
		return t
	}
	best := t
	if o.isBefore(&t) {
		best = o
	}
	best.guarded = t.guarded || o.guarded
	return best
}

func (t told) isBefore(o *told) bool {
	switch {
	case t.cause != o.cause:
		return t.cause < o.cause
	case t.seconds != o.seconds:
		return t.seconds > o.seconds
	case t.joules != o.joules:
		return t.joules > o.joules
	default:
		return t.work > o.work
	}
}

func (t *told) outcome(unit string, block int, on bool) verify.Outcome {
	return verify.Outcome{
		Unit: unit, Block: block, On: on, Guarded: t.guarded, Excluded: string(causes()[t.cause]),
		Seconds: float64(t.seconds), Joules: units.Joules(t.joules), Work: float64(t.work),
	}
}

// plan of the trial, as it was laid down when it was drawn.
func (t *trial) plan() verify.Plan {
	plan := verify.DefaultPlan(t.block, len(t.members))
	plan.Pairs, plan.Every, plan.Confidence = t.pairs, t.every, t.confidence
	return plan
}

func (t *trial) end() time.Time { return t.start.Add(time.Duration(2*t.pairs) * t.block) }

// scheduleOf a member.
func (t *trial) scheduleOf(m *member) *model.Schedule {
	if m.schedule == nil {
		s, err := verify.Draw(t.timing(m), t.pairs)
		if err != nil {
			return nil // The bounds were held when it was drawn, or loaded.
		}
		m.schedule = &s
	}
	return m.schedule
}

func (t *trial) timing(m *member) verify.Timing {
	return verify.Timing{
		Lever: t.at.lever, Seed: verify.Seed(m.unit, t.at.lever, m.drawn), Start: t.start, Block: t.block, WashOut: t.washOut,
	}
}

func (t *trial) member(unit string) *member {
	at, found := slices.BinarySearchFunc(t.members, unit, func(m member, unit string) int {
		switch {
		case m.unit < unit:
			return -1
		case m.unit > unit:
			return 1
		}
		return 0
	})
	if !found {
		return nil
	}
	return &t.members[at]
}

// memberOf is the unit's part in the trial of a lever that runs. Nil: it has none.
func (p *Proofs) memberOf(name string, lever v1alpha1.Lever) *member {
	f := p.fields[p.at(name, lever)]
	if f == nil || f.trial == nil {
		return nil
	}
	m := f.trial.member(name)
	if m == nil || m.left {
		return nil
	}
	return m
}

// take a block. False: it is not of the trial.
func (t *trial) take(c *Closed) bool {
	m := t.member(c.Unit)
	if m == nil || m.left {
		return false
	}
	s := t.scheduleOf(m)
	if s == nil || s.Seed != c.Seed || !s.Start.Equal(c.Start) || c.Block < 0 || c.Block >= len(m.blocks) {
		return false
	}
	if next := m.blocks[c.Block].with(reportedOf(c, s.On[c.Block])); next != m.blocks[c.Block] {
		m.blocks[c.Block] = next
		// Pairs that are not over yet are not looked at, but for guards.
		if next.guarded || c.Block < 2*t.over {
			t.judged = nil
		}
	}
	if c.Block == 0 && m.before == (verify.Stretch{}) {
		m.before = rounded(c.Before)
	}
	return true
}

// rounded as it is stored. What cannot be is none.
func rounded(s verify.Stretch) verify.Stretch {
	seconds, joules, work := float32(s.Seconds), float32(s.Joules), float32(s.Work)
	if !isAmount(seconds) || !isAmount(joules) || !isAmount(work) {
		return verify.Stretch{}
	}
	return verify.Stretch{Seconds: float64(seconds), Joules: units.Joules(joules), Work: float64(work)}
}

// pass says how many pairs are over by now: by time, or because all has come.
func (t *trial) pass(now time.Time) {
	over := 0
	for ; over < t.pairs; over++ {
		if now.Sub(t.start) >= time.Duration(2*over+2)*t.block+late {
			continue
		}
		if !t.hasCome(over) {
			break
		}
	}
	if over > t.over {
		t.over, t.judged = over, nil
	}
}

func (t *trial) hasCome(pair int) bool {
	for i := range t.members {
		m := &t.members[i]
		if !m.left && (!m.blocks[2*pair].came || !m.blocks[2*pair+1].came) {
			return false
		}
	}
	return true
}

// judge says what the trial has shown so far.
func (t *trial) judge() *verify.Verdict {
	if t.judged == nil {
		v := verify.Judge(&verify.Trial{
			Plan: t.plan(), Units: len(t.members), Over: t.over, Outcomes: t.outcomes(), Rejections: t.rejections,
		})
		t.judged = &v
	}
	return t.judged
}

func (t *trial) outcomes() []verify.Outcome {
	var all []verify.Outcome
	for i := range t.members {
		m := &t.members[i]
		s := t.scheduleOf(m)
		for b := range m.blocks {
			if s == nil || !m.blocks[b].came {
				continue
			}
			o := m.blocks[b].outcome(m.unit, b, s.On[b])
			if b == 0 {
				o.Before = m.before
			}
			all = append(all, o)
		}
	}
	return all
}

// isDead tells whether nobody takes part any more.
func (t *trial) isDead() bool {
	return !slices.ContainsFunc(t.members, func(m member) bool { return !m.left })
}
