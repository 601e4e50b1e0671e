package interference

import (
	"math"
	"slices"
	"time"
)

const (
	// A sign comes by what was seen in comeAfter, and goes by goAfter, of so many samples
	// at least.
	comeAfter, comeSamples = 30 * time.Second, 3
	goAfter, goSamples     = 90 * time.Second, 5
	// Samples that come within spacing of each other are taken together.
	spacing = 5 * time.Second
	// kept is enough for goAfter, whatever the distance of samples.
	kept = int(goAfter/spacing) + 4
)

// window holds the newest samples, one every spacing.
type window struct {
	// at is when the newest sample of each slot ended, and start when the first did.
	at, start [kept]time.Time
	sums      [kept]reading
	counts    [kept]float64
	// used slots, the newest last.
	used int
}

func (w *window) last() (time.Time, bool) {
	if w.used == 0 {
		return time.Time{}, false
	}
	return w.at[w.used-1], true
}

// add takes in a sample, and tells whether it is the first of its slot: the slot before
// it is then complete.
func (w *window) add(at time.Time, figures reading) (next bool) {
	if w.used > 0 && at.Sub(w.start[w.used-1]) < spacing {
		slot := w.used - 1
		w.at[slot] = at
		w.counts[slot]++
		for i := range figures {
			w.sums[slot][i] += figures[i]
		}
		return false
	}
	if w.used == kept {
		copy(w.at[:], w.at[1:])
		copy(w.start[:], w.start[1:])
		copy(w.sums[:], w.sums[1:])
		copy(w.counts[:], w.counts[1:])
		w.used--
	}
	w.at[w.used], w.start[w.used], w.sums[w.used], w.counts[w.used] = at, at, figures, 1
	w.used++
	return true
}

// view is what a window shows of each figure: the median, and the quartiles, of which
// the outer one of few samples is the least or the most.
type view struct{ low, middle, high reading }

// back looks at the newest slots that reach back for a time and are so many. It reports
// false while there are too few.
func (w *window) back(by time.Duration, least int) (view, bool) {
	from := w.used - 1
	for from > 0 && (w.used-from < least || w.at[w.used-1].Sub(w.start[from]) < by) {
		from--
	}
	if from < 0 || w.used-from < least || w.at[w.used-1].Sub(w.start[from]) < by {
		return view{}, false
	}
	var out view
	values := make([]float64, w.used-from)
	for i := range out.middle {
		for slot := range values {
			values[slot] = w.sums[from+slot][i] / w.counts[from+slot]
		}
		slices.Sort(values)
		last := len(values) - 1
		out.low[i], out.high[i] = values[last/4], values[last-last/4]
		out.middle[i] = (values[last/2] + values[last-last/2]) / 2
	}
	return out, true
}

// baseline is what a VM moves when nothing disturbs it: a high expectile, since it
// follows more soon than less.
type baseline struct {
	bits float64
	at   time.Time
	// learned is how long it was learned for.
	learned time.Duration
}

const (
	followMore = 5 * time.Minute
	followLess = time.Hour
	// mature is how long a baseline is learned before it says anything, and leastBits the
	// traffic from which on a loss of some is worth a word.
	mature           = 10 * time.Minute
	leastBits        = 1e6
	fullOfBaseline   = 100
	longestBaselined = 2 * time.Minute
)

// learn follows what a VM moves while it is stable. Time in which it is not does not
// count.
func (b *baseline) learn(at time.Time, now float64, stable bool) {
	passed := at.Sub(b.at)
	first := b.at.IsZero()
	b.at = at
	switch {
	case !stable:
		return
	case first && b.learned == 0:
		b.bits = now
		return
	case first:
		return
	}
	passed = min(passed, longestBaselined)
	b.learned += passed
	pace := followLess
	if now > b.bits {
		pace = followMore
	}
	b.bits += (now - b.bits) * (1 - math.Exp(-passed.Seconds()/pace.Seconds()))
}

// percent is traffic in percent of the baseline: all of it while that says nothing.
func (b *baseline) percent(now float64) float64 {
	if b.learned < mature || b.bits < leastBits {
		return fullOfBaseline
	}
	return 100 * now / b.bits
}

// forgetTime returns the baseline as of no time.
func (b baseline) forgetTime() baseline {
	b.at = time.Time{}
	return b
}
