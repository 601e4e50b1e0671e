package ledger

import (
	"maps"
	"math"
	"slices"
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
)

// Ledger of one policy. Make one with New or Load.
type Ledger struct {
	state state
	// pending is what was booked since the state was stored, in order, of which the first
	// saving are in what Save returned last.
	pending []entry
	saving  int
}

// state is what is stored.
type state struct {
	accounts map[accountKey]*account
	sums     map[sumKey]*sum
	causes   map[Cause]int64
}

// accountKey is a node and a lever. The account of a node's draw has no lever, that of the
// manager's no node either.
type accountKey struct {
	node  string
	lever model.Lever
}

// entry is something to be booked: a block or a draw.
type entry struct {
	block *Block
	draw  *Draw
	now   time.Time
}

const (
	// mostAccounts bounds the state: those of 5,000 nodes with three levers.
	mostAccounts = 20_000
	// mostPending entries are kept to be booked again after a failover, then the newer half
	// of them: two hours and more of 1,000 nodes with three levers.
	mostPending = 32_768
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
func (l *Ledger) Book(b Block, now time.Time) Cause { return l.enter(entry{block: &b, now: now}) }

// BookDraw takes in what a node drew and the product used, as Book does a block.
func (l *Ledger) BookDraw(d Draw, now time.Time) Cause { return l.enter(entry{draw: &d, now: now}) }

func (l *Ledger) enter(e entry) Cause {
	if len(l.pending) >= mostPending {
		const dropped = mostPending / 2
		l.pending = slices.Delete(l.pending, 0, dropped)
		l.saving = max(0, l.saving-dropped)
	}
	l.pending = append(l.pending, e)
	return l.state.enter(e)
}

// Save returns the ledger as bytes to be stored, the same for the same content. Say Stored
// when they are.
func (l *Ledger) Save() []byte {
	l.saving = len(l.pending)
	return encode(l.state)
}

// Stored tells that what Save returned last was stored.
func (l *Ledger) Stored() {
	l.pending = slices.Delete(l.pending, 0, l.saving)
	l.saving = 0
}

// Load returns a ledger from what was stored. The error says what is wrong with it.
func Load(stored []byte) (*Ledger, error) {
	s, err := decode(stored)
	if err != nil {
		return nil, err
	}
	return &Ledger{state: s}, nil
}

// Rebase puts what another manager stored under what was booked here since Stored: what
// both booked counts once. Nothing changes when the stored bytes are wrong.
func (l *Ledger) Rebase(stored []byte) error {
	s, err := decode(stored)
	if err != nil {
		return err
	}
	for _, e := range l.pending {
		s.enter(e)
	}
	l.state, l.saving = s, 0
	return nil
}

// Forget drops what is remembered of nodes that are gone: of those that are not to be kept,
// and of whose time since then nothing was booked. What they saved stays in the sums.
func (l *Ledger) Forget(since time.Time, keep func(node string) bool) {
	maps.DeleteFunc(l.state.accounts, func(key accountKey, a *account) bool {
		return key.node != "" && a.window.end().Before(since) && !keep(key.node)
	})
}

// Causes are the reasons for which blocks were not booked, with how many.
func (l *Ledger) Causes() map[Cause]int64 { return maps.Clone(l.state.causes) }

func (s *state) enter(e entry) Cause {
	var cause Cause
	if e.block != nil {
		cause = s.book(e.block, e.now)
	} else {
		cause = s.bookDraw(e.draw, e.now)
	}
	if cause != "" {
		s.causes[cause]++
	}
	return cause
}

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
	if len(d.Node) > mostName {
		return Malformed
	}
	if cause := d.checkOwn(); cause != "" {
		return cause
	}
	figures := d.Measured
	if d.Node == "" {
		// The manager's own draw is within that of the node that it runs on.
		figures = Measured{Modelled: d.Modelled, Excluded: NotWatched}
	}
	account, cause := s.judge(accountKey{node: d.Node}, d.From, d.To, now, figures)
	if account == nil {
		return cause
	}
	out := booking{saved: -d.CPUSeconds * float64(d.PerBusyCore)}
	out.common, out.commonFreedom = off(d.CPUSeconds, float64(d.StdErr), ownFreedom)
	if cause == "" {
		out.measured = figures
	}
	// What the product used counts also where the node's figures do not.
	s.post(account, sumKey{month: MonthOf(d.From), modelled: d.Modelled}, out)
	if d.Node == "" {
		return ""
	}
	return cause
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

// ownFreedom is that of the watts of a busy core, which are learned from many figures.
const ownFreedom = 1000

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
