package symptoms

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

// window holds the newest samples, one every spacing. It is small, because there is one
// for each VM of the cluster.
type window struct {
	// newest is when the newest sample ended.
	newest time.Time
	// start is when the first sample of each slot ended, and means are over the slot's
	// samples.
	start [kept]time.Time
	means [kept][figureCount]float32
	// used slots, the newest last, and how many samples that has.
	used, count int
}

func (w *window) last() (time.Time, bool) { return w.newest, w.used > 0 }

// add takes in a sample, and reports whether it is the first of its slot: the slot before
// it is then complete.
func (w *window) add(at time.Time, sample figures) (next bool) {
	w.newest = at
	if w.used > 0 && at.Sub(w.start[w.used-1]) < spacing {
		w.count++
		means := &w.means[w.used-1]
		for i := range sample {
			means[i] += (float32(sample[i]) - means[i]) / float32(w.count)
		}
		return false
	}
	if w.used == kept {
		copy(w.start[:], w.start[1:])
		copy(w.means[:], w.means[1:])
		w.used--
	}
	w.start[w.used], w.count = at, 1
	for i := range sample {
		w.means[w.used][i] = float32(sample[i])
	}
	w.used++
	return true
}

// view is what a window shows of each figure: the median, and the quartiles, of which
// the outer one of few samples is the least or the most.
type view struct{ low, middle, high figures }

// back looks at the newest slots that reach back for a time and are so many. It reports
// false while there are too few.
func (w *window) back(by time.Duration, least int) (view, bool) {
	from := w.used - 1
	for from > 0 && (w.used-from < least || w.newest.Sub(w.start[from]) < by) {
		from--
	}
	if from < 0 || w.used-from < least || w.newest.Sub(w.start[from]) < by {
		return view{}, false
	}
	var out view
	values := make([]float64, w.used-from)
	for i := range out.middle {
		for slot := range values {
			values[slot] = float64(w.means[from+slot][i])
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
