package tuning

import (
	"math/bits"
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/planner/buffering"
)

// certain is how many standard errors a change of throughput must be: demand moves by
// itself.
const certain = 3

// throughput judges what a longer window does to a VM's throughput. What a VM would like to
// send or receive is not known, so a fall is first a doubt: the VM goes back to a shorter
// window, and only when the throughput then comes back was it the window.
type throughput struct {
	// window in force, since when, and is what was seen of it; was is the stretch before of
	// which enough was seen, with window before.
	window, before time.Duration
	since          time.Time
	is, was        stretch
	// judged is true once is was; again, that a doubt about a longer window proved true, so
	// that this one may keep too little as well.
	judged, again bool
	// kept is what windows leave of the throughput with none, or with the shortest that was
	// seen: by way of all windows between, each compared with the one before while demand
	// was the same.
	kept [rungs]kept
	// fine is when each window was judged last and found to cost too little to tell. Zero:
	// it was not, or was doubted since.
	fine [rungs]time.Time
	// doubt about a window. Nil: none.
	doubt *doubt
}

type doubt struct {
	window time.Duration
	// since when the window was in force, and what was seen with it.
	since time.Time
	with  stretch
	// until when the throughput may come back.
	until time.Time
}

// rungs are no window and the four that there are.
const rungs = 5

func rungOf(window time.Duration) int { return bits.Len64(uint64(window / model.ShortestWindow)) }

// change begins a new stretch.
func (t *throughput) change(now time.Time, window time.Duration) {
	if t.is.seconds >= buffering.BaselineSeconds {
		t.was, t.before = t.is, t.window
	}
	// A window that only comes back, as it does in each block of a trial, is not judged once
	// more: in each it would be blamed for how demand moved since the block before.
	back := t.window == 0 && t.doubt == nil && now.Sub(t.fine[rungOf(window)]) < remembered
	t.window, t.since, t.is, t.judged, t.again = window, now, stretch{}, back, false
}

// verdict on a window.
type verdict int

const (
	nothing verdict = iota
	doubtful
	toBlame
)

// judgement of a window that was in force since a time.
type judgement struct {
	verdict
	window time.Duration
	since  time.Time
}

// add takes in a round, and says of which window it is now known what it does. keep is
// the share of its throughput that the VM must keep.
func (t *throughput) add(now time.Time, r round, keep float64) judgement {
	t.is.add(r.bits/r.seconds, r.seconds)
	if t.judged || t.is.seconds < buffering.EnoughSeconds {
		return judgement{}
	}
	t.judged = true
	if t.doubt != nil && t.window < t.doubt.window {
		return t.resolve(now)
	}
	longer := t.window > t.before && t.was.seconds > 0
	if !longer && !t.again {
		return judgement{}
	}
	share := t.kept[rungOf(t.before)].to(&t.was, &t.is)
	t.kept[rungOf(t.window)] = share
	fell := longer && t.was.above(&t.is) && t.is.mean < keep*t.was.mean
	if t.window == 0 || !fell && !share.below(keep) {
		t.fine[rungOf(t.window)] = now
		return judgement{}
	}
	t.fine[rungOf(t.window)] = time.Time{}
	t.doubt = &doubt{t.window, t.since, t.is, now.Add(doubted)}
	return judgement{doubtful, t.window, t.since}
}

// resolve tells whether throughput came back with a shorter window. This one is then to be
// judged by that with none, in the next round. Where it did not come back, demand fell, and
// that says nothing of this window.
func (t *throughput) resolve(now time.Time) judgement {
	doubt := t.doubt
	t.doubt = nil
	if !now.Before(doubt.until) || !t.is.above(&doubt.with) {
		return judgement{}
	}
	t.judged, t.again = false, true
	return judgement{toBlame, doubt.window, doubt.since}
}
