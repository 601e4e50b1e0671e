package credible

import (
	"math"
	"slices"
	"time"

	"github.com/joulevirt/joulevirt/internal/power"
)

const (
	// memory of a level, and how long one that nothing confirmed has to last to be right.
	memory = 10 * time.Minute
	// staleAfter is how old a level may be to be compared with: a node warms up, and its work
	// changes.
	staleAfter = time.Hour
	// span of a window, and the least pieces that it has.
	span, leastPieces = 2 * time.Minute, 3
	// mostSpikes is the share of a window that may be off by itself: one piece of so many.
	mostSpikes = 8
	// A figure is off that is farther from its level than leastOff by the load, or
	// leastOffOther by another meter, and than so many times the mean that figures are off
	// (six standard deviations), but for what the change of the load explains so or so.
	leastOff, leastOffOther = 0.12, 0.08
	manyTimes, mostOff      = 7.5, 0.45
	// scatterMemory is how many pieces the usual scatter is a mean over, and firstScatter
	// what it begins with.
	scatterMemory, firstScatter = 200, 0.016
	// otherError is the share of a change by which two meters may differ, and wide how many
	// times an error is allowed for.
	otherError, wide = 0.3, 2
)

// window is the newest of what was metered at one setting.
type window struct {
	setting setting
	pieces  []piece
}

// push a piece, and tell which one leaves.
func (w *window) push(p piece) (past piece, out bool) {
	w.pieces = append(w.pieces, p)
	if len(w.pieces) > leastPieces && p.to.Sub(w.pieces[1].from) >= span {
		past, out = w.pieces[0], true
		w.pieces = slices.Delete(w.pieces, 0, 1)
	}
	return past, out
}

func (w *window) isFull() bool {
	return len(w.pieces) >= leastPieces && w.newest().Sub(w.pieces[0].from) >= span
}

// newest is when the newest piece ended. Zero: there is none.
func (w *window) newest() time.Time {
	if len(w.pieces) == 0 {
		return time.Time{}
	}
	return w.pieces[len(w.pieces)-1].to
}

// level is what the meter says with some levers on, as a mean over the last minutes.
type level struct {
	setting setting
	watts   float64
	busy    float64
	other   float64
	seconds float64
	// at is when it was last confirmed.
	at time.Time
	// proven is true when the meter was seen to be right after: what a lever does when it is
	// first on is not known beforehand, and is told from a lie by what is said without it
	// later.
	proven bool
}

func (l *level) add(p *piece) {
	l.seconds = min(l.seconds+p.seconds(), memory.Seconds())
	share := p.seconds() / l.seconds
	l.watts += share * (p.watts - l.watts)
	l.busy += share * (p.busy - l.busy)
	l.other += share * (p.other - l.other)
	if p.other == 0 || l.other == 0 {
		l.other = p.other
	}
	l.at = p.to
}

// scatter is by how much figures are usually off, as a mean. The zero value is ready.
type scatter struct {
	mean  float64
	count int
}

func (s *scatter) add(off float64) {
	s.count = min(s.count+1, scatterMemory)
	s.mean = s.usual() + (off-s.usual())/float64(scatterMemory)
}

func (s *scatter) usual() float64 {
	if s.mean == 0 {
		return firstScatter
	}
	return s.mean
}

// most that a figure may be off.
func (s *scatter) most(least float64) float64 {
	return min(mostOff, max(least, manyTimes*s.usual()))
}

// levels of all settings.
type levels struct {
	of []*level
	// byLoad and byOther are how much figures are off what load, or the other meter, say.
	byLoad, byOther scatter
}

func (l *levels) at(on string) *level {
	for _, level := range l.of {
		if level.setting.on == on {
			return level
		}
	}
	return nil
}

func (l *levels) drop(on string) {
	l.of = slices.DeleteFunc(l.of, func(is *level) bool { return is.setting.on == on })
}

func (l *levels) dropUnproven() {
	l.of = slices.DeleteFunc(l.of, func(is *level) bool { return !is.proven })
}

func (l *levels) forget() { l.of = nil }

// prove that the meter was right in what it said since.
func (l *levels) prove() {
	for _, is := range l.of {
		is.proven = true
	}
}

// pause lets levels be no older for a time in which nothing was learned.
func (l *levels) pause(length time.Duration) {
	for _, is := range l.of {
		is.at = is.at.Add(length)
	}
}

// lasts tells whether a level is right because nothing else is known, or it has lasted.
func (l *levels) lasts(of *level) bool {
	known := slices.ContainsFunc(l.of, func(is *level) bool { return is.proven })
	return !known || of.seconds >= memory.Seconds()
}

// fresh is the level to compare with, or nil. Old ones are dropped.
func (l *levels) fresh(on string, now time.Time, paused bool) *level {
	if !paused {
		l.of = slices.DeleteFunc(l.of, func(is *level) bool { return now.Sub(is.at) > staleAfter })
	}
	return l.at(on)
}

// begin a level with a window.
func (l *levels) begin(w *window) {
	is := &level{setting: w.setting}
	for i := range w.pieces {
		is.add(&w.pieces[i])
	}
	l.of = append(l.of, is)
}

func (l *levels) add(p *piece, to *level, busyCore *power.Estimate) {
	byLoad, _ := ofLoad(p, to, busyCore)
	l.byLoad.add(math.Abs(byLoad))
	if p.other > 0 && to.other > 0 {
		byOther, _ := ofOther(p, to)
		l.byOther.add(math.Abs(byOther))
	}
	to.add(p)
}

// ofLoad is by what share of its level a piece is off what the load explains, and what of it
// is no surprise.
func ofLoad(p *piece, of *level, busyCore *power.Estimate) (off, explained float64) {
	change := p.busy - of.busy
	watts, err := float64(busyCore.Watts)*change, math.Abs(float64(busyCore.StdErr)*change)
	if *busyCore == (power.Estimate{}) && of.busy > 0 {
		// Between nothing and all of the power goes with the load.
		watts = of.watts * change / of.busy / 2
		err = math.Abs(watts) / wide
	}
	return (p.watts - of.watts - watts) / of.watts, wide * err / of.watts
}

// ofOther is the same by what the other meter says.
func ofOther(p *piece, of *level) (off, explained float64) {
	change := p.other - of.other
	return (p.watts - of.watts - change) / of.watts, wide * otherError * math.Abs(change) / of.watts
}

// isOff tells whether a piece is off its level.
func (l *levels) isOff(p *piece, of *level, busyCore *power.Estimate) bool {
	other := p.other > 0 && of.other > 0
	if other {
		if off, explained := ofOther(p, of); math.Abs(off) > l.byOther.most(leastOffOther)+explained {
			return true
		}
	}
	if other && p.apart {
		return false // Another instrument says so too: whatever the node does, it does.
	}
	off, explained := ofLoad(p, of, busyCore)
	return math.Abs(off) > l.byLoad.most(leastOff)+explained
}

// factor of what a window says over what was to be expected.
func (l *levels) factor(w *window, of *level, busyCore *power.Estimate) float64 {
	var sum float64
	for i := range w.pieces {
		off, _ := ofLoad(&w.pieces[i], of, busyCore)
		sum += off
	}
	return 1 + sum/float64(len(w.pieces))
}
