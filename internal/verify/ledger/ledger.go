package ledger

import (
	"maps"
	"math"
	"slices"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
)

// Ledger of one policy. Make one with New, or by json.Unmarshal.
type Ledger struct{ state state }

// state is what is stored.
type state struct {
	accounts map[accountKey]*account
	sums     map[sumKey]*sum
	causes   map[Cause]int64
}

// accountKey is a node and a lever. The account of a node's draw has no lever.
type accountKey struct {
	node  string
	lever v1alpha1.Lever
}

const (
	// mostAccounts bounds the state: those of 5,000 nodes with three levers.
	mostAccounts = 20_000
	// monthsKept are this one and the twelve before.
	monthsKept = 13
)

// New returns an empty ledger.
func New() *Ledger { return &Ledger{state: newState()} }

func newState() state {
	return state{accounts: map[accountKey]*account{}, sums: map[sumKey]*sum{}, causes: map[Cause]int64{}}
}

// Book takes in a closed block. It returns why the block was not booked; empty: it was.
// A block that was excluded is done with and will not be taken again.
func (l *Ledger) Book(b Block, now time.Time) Cause {
	return l.count(l.state.book(&b, now))
}

// BookDraw takes in what a node drew, as Book does a block.
func (l *Ledger) BookDraw(d Draw, now time.Time) Cause {
	return l.count(l.state.bookDraw(&d, now))
}

func (l *Ledger) count(cause Cause) Cause {
	if cause != "" {
		l.state.causes[cause]++
	}
	return cause
}

// Forget drops what is remembered of nodes that are gone: of those that are not to be kept,
// and of whose time since then nothing was booked. What they saved stays in the sums.
func (l *Ledger) Forget(since time.Time, keep func(node string) bool) {
	maps.DeleteFunc(l.state.accounts, func(key accountKey, a *account) bool {
		return a.window.end().Before(since) && !keep(key.node)
	})
}

// Causes are the reasons for which blocks were not booked, with how many.
func (l *Ledger) Causes() map[Cause]int64 { return maps.Clone(l.state.causes) }

func (s *state) book(b *Block, now time.Time) Cause {
	if b.Node == "" || len(b.Node) > mostName || !model.IsWord(string(b.Lever)) {
		return Malformed
	}
	if b.On && b.Excluded == "" && !b.hasEvidence() {
		return NoEvidence
	}
	account, cause := s.judge(accountKey{b.Node, b.Lever}, b.From, b.To, now, b.Measured)
	if cause != "" {
		return cause
	}
	out := booking{measured: b.Measured}
	if b.On {
		// exposed is what the node would have drawn without the lever, and how much the
		// saving changes with the effect.
		exposed := float64(b.Joules) * math.Exp(-b.Effect.Log)
		out.saved = float64(b.Joules) * math.Expm1(-b.Effect.Log)
		out.own, out.ownFreedom = off(exposed, b.Effect.Own, b.Effect.Freedom)
		out.class = b.Class.String()
		out.common, out.commonFreedom = off(exposed, b.Effect.Common, b.Effect.CommonFreedom)
		out.chance = chanceOf(off(exposed, b.Chance, b.ChanceFreedom))
	}
	s.post(account, sumKey{MonthOf(b.From), b.Lever, b.Modelled}, out)
	return ""
}

func (s *state) bookDraw(d *Draw, now time.Time) Cause {
	if d.Node == "" || len(d.Node) > mostName {
		return Malformed
	}
	account, cause := s.judge(accountKey{node: d.Node}, d.From, d.To, now, d.Measured)
	if cause != "" {
		return cause
	}
	s.post(account, sumKey{month: MonthOf(d.From), modelled: d.Modelled}, booking{measured: d.Measured})
	return ""
}

// off returns by how many joules a figure is off for one standard error, with how many
// degrees of freedom. Errors of less than a millionth of a joule are none, and a million
// degrees of freedom all that there are.
func off(scale, stdErr, freedom float64) (joules, bounded float64) {
	const least, most = 1e-6, 1e6
	if scale*stdErr < least {
		return 0, 0
	}
	return scale * stdErr, min(freedom, most)
}

// judge returns the account that a time is taken in, which is none when it cannot be, and
// why its figures are not booked.
func (s *state) judge(key accountKey, from, to, now time.Time, m Measured) (*account, Cause) {
	if cause := checkTime(from, to, now); cause != "" {
		return nil, cause
	}
	cause := m.check(to.Sub(from))
	if cause == Malformed {
		return nil, cause
	}
	a := s.accounts[key]
	if a == nil {
		if len(s.accounts) >= mostAccounts {
			return nil, TooManyNodes
		}
		a = &account{}
		s.accounts[key] = a
	}
	if !a.window.take(from, to) {
		return nil, AlreadyBooked
	}
	if cause != "" || m.Modelled {
		return a, cause
	}
	watts := float32(m.watts())
	frozen := watts == a.last
	a.last = watts
	if frozen {
		return a, Frozen
	}
	return a, ""
}

// post adds to the node's sums and to those of all nodes.
func (s *state) post(a *account, key sumKey, b booking) {
	within, all := a.saved[index(key.modelled)].add(key.month, b)
	s.sum(key).add(b, within)
	key.month = AllTime
	s.sum(key).add(b, all)
}

func (s *state) sum(key sumKey) *sum {
	out := s.sums[key]
	if out == nil {
		out = &sum{}
		s.sums[key] = out
		s.prune()
	}
	return out
}

// prune drops the months before the last thirteen that anything was booked in.
func (s *state) prune() {
	months := s.months()
	if len(months) <= monthsKept {
		return
	}
	least := months[len(months)-monthsKept]
	maps.DeleteFunc(s.sums, func(key sumKey, _ *sum) bool { return key.month != AllTime && key.month < least })
}

// months that there are sums of, the oldest first.
func (s *state) months() []Month {
	var months []Month
	for key := range s.sums {
		if key.month != AllTime && !slices.Contains(months, key.month) {
			months = append(months, key.month)
		}
	}
	slices.Sort(months)
	return months
}
