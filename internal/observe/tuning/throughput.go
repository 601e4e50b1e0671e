package tuning

import (
	"math"
	"time"

	"github.com/joulevirt/joulevirt/internal/planner/buffering"
)

// certain is how many standard errors a change of throughput must be: demand moves by
// itself.
const certain = 3

// throughput judges what a longer window does to a VM's throughput. What a VM would like to
// send or receive is not known, so a fall is first a doubt: the VM goes back to a shorter
// window, and only when the throughput then comes back was it the window.
type throughput struct {
	// before is the last window of which enough was seen, and is the one in force.
	before, is stretch
	// judged is true once is was.
	judged bool
	// doubt about a window. Nil: none.
	doubt *doubt
}

type doubt struct {
	window time.Duration
	with   stretch
	// until when the throughput may come back.
	until time.Time
}

// stretch is the throughput while a window was in force and packets came fast.
type stretch struct {
	window  time.Duration
	seconds float64
	rounds  float64
	// mean of the rounds' bits per second, and m2 the sum of their squared distances.
	mean, m2 float64
}

func (s *stretch) add(bitsPerSecond, seconds float64) {
	s.seconds += seconds
	s.rounds++
	off := bitsPerSecond - s.mean
	s.mean += off / s.rounds
	s.m2 += off * (bitsPerSecond - s.mean)
	if s.rounds > trialSeconds {
		s.rounds, s.m2 = s.rounds/2, s.m2/2
	}
}

// variance of the mean.
func (s *stretch) variance() float64 {
	if s.rounds < 2 {
		return math.Inf(1)
	}
	return s.m2 / (s.rounds - 1) / s.rounds
}

// above tells whether the throughput of one stretch is above another's for certain.
func (s *stretch) above(o *stretch) bool {
	return s.mean-o.mean > certain*math.Sqrt(s.variance()+o.variance())
}

// change begins a new stretch.
func (t *throughput) change(window time.Duration) {
	if t.is.seconds >= buffering.BaselineSeconds {
		t.before = t.is
	}
	t.is, t.judged = stretch{window: window}, false
}

// verdict on a window.
type verdict int

const (
	nothing verdict = iota
	doubtful
	toBlame
)

// add takes in a round, and says of which window it is now known what it does. keep is
// the share of its throughput that the VM must keep.
func (t *throughput) add(now time.Time, r round, keep float64) (time.Duration, verdict) {
	t.is.add(r.bits/r.seconds, r.seconds)
	if t.judged || t.is.seconds < buffering.EnoughSeconds {
		return 0, nothing
	}
	t.judged = true
	if doubt := t.doubt; doubt != nil && t.is.window < doubt.window {
		t.doubt = nil
		if now.Before(doubt.until) && t.is.above(&doubt.with) {
			return doubt.window, toBlame
		}
		return 0, nothing
	}
	if t.is.window > t.before.window && t.before.above(&t.is) && t.is.mean < keep*t.before.mean {
		t.doubt = &doubt{t.is.window, t.is, now.Add(doubted)}
		return t.is.window, doubtful
	}
	return 0, nothing
}
