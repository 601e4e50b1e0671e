package tuning

import (
	"math"
	"slices"
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/planner/buffering"
	"github.com/joulevirt/joulevirt/internal/units"
)

const (
	// trialSeconds are the longest time that a trial is the mean over: what is older
	// fades.
	trialSeconds = 600
	// recentSeconds is how fast the pace at which a VM's packets commonly come is taken
	// to be another, and steady by how much another must be more common.
	recentSeconds, steady = 300, 1.5
	// mostTrials of a VM. More are not needed: 5 windows at 3 paces.
	mostTrials = 15
)

// pace is the rate of a VM's packets, by powers of two: what a packet costs with one window
// and another is compared at like rates only.
type pace int

func paceOf(packetsPerSecond float64) pace { return pace(math.Floor(math.Log2(packetsPerSecond))) }

// trials of one VM, by windows and paces.
type trials struct {
	all []trial
	// pace that is told of.
	pace pace
}

type trial struct {
	window time.Duration
	pace   pace
	heard  time.Time
	// recent grows while the VM's packets come at the pace, and fades while they come at
	// another.
	recent float64
	// worst share of packets lost in one round.
	worst float64
	sums
}

// add takes in a round and returns its trial, and whether there is enough of it now and was
// not before.
func (t *trials) add(now time.Time, r round) (trial, bool) {
	at := paceOf(r.packets / r.seconds)
	t.fade(r.window, r.seconds)
	of := t.find(now, r.window, at)
	was := buffering.Enough(of.tell())
	of.heard = now
	of.recent += r.seconds
	of.worst = max(of.worst, r.lostShare())
	of.add(r.sums)
	if of.seconds > trialSeconds {
		of.scale(trialSeconds / of.seconds)
	}
	found := *of
	t.choosePace(r.window)
	return found, !was && buffering.Enough(found.tell())
}

func (t *trials) fade(window time.Duration, seconds float64) {
	for i := range t.all {
		if t.all[i].window == window {
			t.all[i].recent *= max(0, 1-seconds/recentSeconds)
		}
	}
}

// find returns the trial of a window at a pace. One that was last seen too long ago begins
// anew, and a new one takes the place of what was not seen for longest when there are too
// many.
func (t *trials) find(now time.Time, window time.Duration, at pace) *trial {
	if i := slices.IndexFunc(t.all, func(t trial) bool { return t.window == window && t.pace == at }); i >= 0 {
		if t.all[i].past(now) {
			t.all[i] = trial{window: window, pace: at}
		}
		return &t.all[i]
	}
	if len(t.all) >= mostTrials {
		oldest := 0
		for i := range t.all {
			if t.all[i].heard.Before(t.all[oldest].heard) {
				oldest = i
			}
		}
		t.all = slices.Delete(t.all, oldest, oldest+1)
	}
	t.all = append(t.all, trial{window: window, pace: at})
	return &t.all[len(t.all)-1]
}

// choosePace tells of another pace when that is clearly more common with the window in
// force.
func (t *trials) choosePace(window time.Duration) {
	var best, told *trial
	for i := range t.all {
		of := &t.all[i]
		if of.window != window {
			continue
		}
		if best == nil || of.recent > best.recent {
			best = of
		}
		if of.pace == t.pace {
			told = of
		}
	}
	if best != nil && (told == nil || best.recent > steady*told.recent) {
		t.pace = best.pace
	}
}

// drop forgets what was seen with a window and longer ones.
func (t *trials) drop(window time.Duration) {
	t.all = slices.DeleteFunc(t.all, func(t trial) bool { return t.window >= window })
}

// seenBelow tells whether enough was seen of a shorter window.
func (t *trials) seenBelow(window time.Duration) bool {
	return slices.ContainsFunc(t.all, func(t trial) bool { return t.window < window && buffering.Enough(t.tell()) })
}

// losesToo tells whether a shorter window lost about as many packets, however long ago: of
// all, or of those of one round.
func (t *trials) losesToo(window time.Duration, share float64, ofRound bool) bool {
	return slices.ContainsFunc(t.all, func(t trial) bool {
		if ofRound {
			return t.window < window && t.worst > share/2
		}
		return t.window < window && t.lostShare() > share/2
	})
}

// tell returns the trials at the pace at which the VM's packets commonly come.
func (t *trials) tell(now time.Time) []model.Trial {
	var out []model.Trial
	for i := range t.all {
		if of := &t.all[i]; of.pace == t.pace && !of.past(now) {
			out = append(out, of.tell())
		}
	}
	slices.SortFunc(out, func(x, y model.Trial) int { return int(x.Window - y.Window) })
	return out
}

// past tells whether what was seen says nothing of now.
func (t *trial) past(now time.Time) bool { return now.Sub(t.heard) > remembered }

func (t *trial) tell() model.Trial {
	out := model.Trial{Window: t.window, Seconds: t.seconds, DropShare: t.lostShare()}
	if t.seconds > 0 && t.packets > 0 {
		out.PacketsPerSecond = units.PacketsPerSecond(t.packets / t.seconds)
		out.BitsPerSecond = units.BitsPerSecond(t.bits / t.seconds)
		out.WakeUpsPerPacket = t.wakeUps / t.packets
		out.CoresPerPacket = t.coreSeconds / t.packets
	}
	return out
}
