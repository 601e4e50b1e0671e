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
)

// window holds the newest samples, one every spacing. It is small, because there is one
// for each VM of the cluster.
type window struct {
	// newest is when the newest sample ended.
	newest time.Time
	// slots that are looked at, the newest last, and how many samples that has.
	slots []slot
	count int
}

// slot is samples that came within spacing.
type slot struct {
	// start is when the first one ended.
	start time.Time
	means [figureCount]float32
}

func (w *window) last() (time.Time, bool) { return w.newest, len(w.slots) > 0 }

// add takes in a sample, and reports whether it is the first of its slot: the slot before
// it is then complete.
func (w *window) add(at time.Time, sample figures) (next bool) {
	w.newest = at
	if last := len(w.slots) - 1; last >= 0 && at.Sub(w.slots[last].start) < spacing {
		w.count++
		means := &w.slots[last].means
		for i := range sample {
			means[i] += (float32(sample[i]) - means[i]) / float32(w.count)
		}
		return false
	}
	old := 0
	for len(w.slots)-old > goSamples && at.Sub(w.slots[old+1].start) >= goAfter {
		old++
	}
	w.slots = append(w.slots[:0], w.slots[old:]...)
	first := slot{start: at}
	for i := range sample {
		first.means[i] = float32(sample[i])
	}
	w.slots, w.count = append(w.slots, first), 1
	return true
}

// view is what a window shows of each figure: the median, and the quartiles, of which
// the outer one of few samples is the least or the most.
type view struct{ low, middle, high figures }

// back looks at the newest slots that reach back for a time and are so many. It reports
// false while there are too few.
func (w *window) back(by time.Duration, least int) (view, bool) {
	from := len(w.slots) - 1
	enough := func() bool { return len(w.slots)-from >= least && w.newest.Sub(w.slots[from].start) >= by }
	for from > 0 && !enough() {
		from--
	}
	if from < 0 || !enough() {
		return view{}, false
	}
	var out view
	values := make([]float64, len(w.slots)-from)
	for i := range out.middle {
		for slot := range values {
			values[slot] = float64(w.slots[from+slot].means[i])
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
