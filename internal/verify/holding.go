package verify

import (
	"math"

	"gonum.org/v1/gonum/stat/distuv"
)

// Holding is what a hold-back on one unit has shown so far, in sums: blocks are added in
// their order when they end, and need not be kept. What is old counts less and less: at 64
// strata all that was seen is made to count half, so that an effect which changes shows in
// some days. While blocks are missing with the lever on so much more often than with it off
// that it may be the lever that ends them, it shows nothing, and no stratum is compared. The
// zero value: nothing yet.
type Holding struct {
	// strata that were compared, their precision, and sums over them, weighted by it, of
	// differences of power and work, their squares and products.
	strata, precision, power, work, powers, both, works float32
	// all strata that ever were compared.
	all float32
	// slope is the elasticity when the last stratum was compared, with its error.
	slope, slopeErr, slopeFreedom float32
	// changes from one on block to the next: how many, and sums of products of the changes
	// of power p and work w: pw, ww, ppww, pwww, wwww.
	changes, pw, ww, ppww, pwww, wwww float32
	// The cell that is not over: the number of its first block, one more than that or 0 for
	// none; on blocks and sums of their rates; and the off block's.
	cell, ons, onPower, onWork, offs, offPower, offWork float32
	// last on block's rates, how many there were, and the mean rate of their work.
	lastPower, lastWork, blocks, rate float32
	// found is the last stratum's difference on the joules for the same work, and foundPrecise
	// its precision. steps are from one stratum's difference to the next: how many, and their
	// squares, each over the variance that it has if that of a pair is 1.
	found, foundPrecise, steps, stepSquares float32
	// watched strata, how many off blocks of them would be missing by chance, and how many
	// are: each block of a stratum was as likely to be the one that is off.
	watched, likelyMissing, offMissing float32
}

// HeldFigures is how many figures a Holding has.
const HeldFigures = 35

// Figures of the holding, to be stored and set.
func (h *Holding) Figures() [HeldFigures]*float32 {
	return [HeldFigures]*float32{
		&h.strata, &h.precision, &h.power, &h.work, &h.powers, &h.both, &h.works, &h.all,
		&h.slope, &h.slopeErr, &h.slopeFreedom,
		&h.changes, &h.pw, &h.ww, &h.ppww, &h.pwww, &h.wwww,
		&h.cell, &h.ons, &h.onPower, &h.onWork, &h.offs, &h.offPower, &h.offWork,
		&h.lastPower, &h.lastWork, &h.blocks, &h.rate,
		&h.found, &h.foundPrecise, &h.steps, &h.stepSquares,
		&h.watched, &h.likelyMissing, &h.offMissing,
	}
}

// Strata that were compared, since the beginning.
func (h *Holding) Strata() int { return int(h.all) }

// Last is the difference on the joules for the same work that the last stratum showed, which
// says what the lever did just then, and its precision: 1 is that of a pair of blocks.
func (h *Holding) Last() (log, precision float64) { return float64(h.found), float64(h.foundPrecise) }

// Chance is the variance that the difference of a pair of blocks has by chance, with how many
// steps it was estimated from, which may be 0. It is what differences change by from one
// stratum to the next: an effect that goes with the hours is not chance.
func (h *Holding) Chance() (variance float64, steps int) {
	return float64(h.stepSquares) / max(1, float64(h.steps)), int(h.steps)
}

// Anew is a holding that nothing was shown to of the lever's effect, but by how much
// differences change by chance.
func (h *Holding) Anew() Holding { return Holding{steps: h.steps, stepSquares: h.stepSquares} }

// mostStrata is how many strata count in full.
const mostStrata = 64

// lopsidedHeld is how unlikely it may be that so few of the missing blocks are off. It is less
// than a trial's, for a hold-back is looked at after each stratum and for good.
const lopsidedHeld = 0.001

// fade makes what was seen count half. The changes that the elasticity is from do too: it
// drifts as much.
func (h *Holding) fade() {
	for _, sum := range []*float32{
		&h.strata, &h.precision, &h.power, &h.work, &h.powers, &h.both, &h.works,
		&h.changes, &h.pw, &h.ww, &h.ppww, &h.pwww, &h.wwww, &h.steps, &h.stepSquares,
	} {
		*sum /= 2
	}
}

// Add takes in a block of the schedule with the draw, whose strata have as many blocks. One
// earlier than the one before is not for it.
func (h *Holding) Add(o *Outcome, drawn []bool, stratum int) {
	if o.Block < 0 || o.Block >= len(drawn) {
		return
	}
	from, to := offCellOf(drawn, o.Block, max(2, stratum))
	inside := o.Block >= from && o.Block < to
	if h.cell > 0 && (int(h.cell)-1 != from || o.Block >= to) {
		h.Close()
	}
	little := max(leastWork, emptyShare*float64(h.rate))
	r, ok := ratesOf(o.judged(), little)
	ok = ok && o.Excluded == ""
	if from >= 0 {
		h.watch(ok, o.On, 1/float32(max(2, stratum)))
	}
	if ok {
		if inside {
			h.cell = float32(from + 1)
			h.compare(r, o.On)
		}
		if o.On {
			h.change(r, o.Work/o.Seconds)
		}
	}
	if o.Block == to-1 {
		h.Close()
	}
}

// watch whether a block of a stratum with an off block is missing. Part is that of the stratum
// that the block is.
func (h *Holding) watch(counts, on bool, part float32) {
	if h.watched >= mostStrata {
		for _, sum := range []*float32{&h.watched, &h.likelyMissing, &h.offMissing} {
			*sum /= 2
		}
	}
	h.watched += part
	if counts {
		return
	}
	h.likelyMissing += part
	if !on {
		h.offMissing++
	}
}

// IsLopsided tells whether so few off blocks are missing, of all that are, that it is too
// unlikely that blocks are missing whatever the lever does. An off block is missing with the
// probability that is the missing share of its stratum, in which blocks may be missing in a
// row. Of a number of strata with such probabilities fewer off blocks are missing by chance at
// most as often as if all had their mean (Hoeffding 1956), for less than one below that.
func (h *Holding) IsLopsided() bool {
	watched, likely, missing := float64(h.watched), float64(h.likelyMissing), math.Ceil(float64(h.offMissing))
	if missing > likely-1 {
		return false
	}
	as := distuv.Binomial{N: watched, P: min(1, likely/watched)}
	return as.CDF(missing) < lopsidedHeld
}

// compare takes a block of the open cell.
func (h *Holding) compare(r rates, on bool) {
	if on {
		h.ons, h.onPower, h.onWork = h.ons+1, h.onPower+float32(r.power), h.onWork+float32(r.work)
		return
	}
	h.offs, h.offPower, h.offWork = h.offs+1, float32(r.power), float32(r.work)
}

// change takes an on block for the elasticity, and for what is usual work.
func (h *Holding) change(r rates, rate float64) {
	if h.blocks > 0 {
		p, w := r.power-float64(h.lastPower), r.work-float64(h.lastWork)
		for _, sum := range []struct {
			of  *float32
			add float64
		}{{&h.changes, 1}, {&h.pw, p * w}, {&h.ww, w * w}, {&h.ppww, p * p * w * w}, {&h.pwww, p * w * w * w}, {&h.wwww, w * w * w * w}} {
			*sum.of = float32(float64(*sum.of) + sum.add)
		}
	}
	h.lastPower, h.lastWork = float32(r.power), float32(r.work)
	// Means over this many blocks say what is usual.
	const usual = 100
	h.blocks = min(h.blocks+1, usual)
	h.rate += (float32(rate) - h.rate) / h.blocks
}

// Close ends the cell that is open: what comes next is of another schedule.
func (h *Holding) Close() {
	if h.offs == 1 && h.ons > 0 && !h.IsLopsided() {
		ons := float64(h.ons)
		p, w := float64(h.onPower)/ons-float64(h.offPower), float64(h.onWork)/ons-float64(h.offWork)
		precision := 2 / (1 + 1/ons)
		if h.strata >= mostStrata {
			h.fade()
		}
		h.strata++
		h.all++
		for _, sum := range []struct {
			of  *float32
			add float64
		}{{&h.precision, 1}, {&h.power, p}, {&h.work, w}, {&h.powers, p * p}, {&h.both, p * w}, {&h.works, w * w}} {
			*sum.of = float32(float64(*sum.of) + precision*sum.add)
		}
		slope := h.elasticity()
		h.slope, h.slopeErr, h.slopeFreedom = float32(slope.Log), float32(slope.StdErr), float32(slope.Freedom)
		h.find(p-slope.Log*w, precision)
	}
	h.cell, h.ons, h.onPower, h.onWork, h.offs, h.offPower, h.offWork = 0, 0, 0, 0, 0, 0, 0
}

// Effects on the joules for the same work and on the work. They change when Strata does, and
// are not known while on blocks are missing more often than by chance.
func (h *Holding) Effects() (energy, work Effect) {
	if h.IsLopsided() {
		return Effect{}, Effect{}
	}
	slope := Effect{Log: float64(h.slope), StdErr: float64(h.slopeErr), Freedom: float64(h.slopeFreedom)}
	precision, b := float64(h.precision), slope.Log
	mean := func(sum, squares float64) Effect {
		e := Effect{Units: 1, Pairs: int(h.strata)}
		if e.Pairs < 2 {
			return e
		}
		e.Log, e.Freedom = sum/precision, float64(e.Pairs-1)
		squares = max(0, squares-precision*e.Log*e.Log)
		e.StdErr = max(math.Sqrt(squares/e.Freedom), finest) / math.Sqrt(precision)
		return e
	}
	energy = mean(float64(h.power)-b*float64(h.work), float64(h.powers)-2*b*float64(h.both)+b*b*float64(h.works))
	work = mean(float64(h.work), float64(h.works))
	return withElasticity(energy, work, slope), work
}

// find takes what a stratum showed.
func (h *Holding) find(log, precision float64) {
	if h.foundPrecise > 0 {
		step := log - float64(h.found)
		h.steps++
		h.stepSquares += float32(step * step / (1/precision + 1/float64(h.foundPrecise)))
	}
	h.found, h.foundPrecise = float32(log), float32(precision)
}

func (h *Holding) elasticity() Effect {
	if h.changes < leastChanges || !(h.ww > 0) {
		return Effect{}
	}
	n, ww := float64(h.changes), float64(h.ww)
	slope := max(0, min(1, float64(h.pw)/ww))
	errors := max(0, float64(h.ppww)-2*slope*float64(h.pwww)+slope*slope*float64(h.wwww))
	return Effect{Log: slope, StdErr: math.Sqrt(errors*n/(n-1)) / ww, Freedom: n - 1}
}

// offCellOf returns the bounds of the cell of the off block in the stratum that a block is
// in. Without an off block there is none: both are -1.
func offCellOf(drawn []bool, number, stratum int) (from, to int) {
	first := number / stratum * stratum
	last := min(first+stratum, len(drawn))
	off := first
	for off < last && drawn[off] {
		off++
	}
	if off == last {
		return -1, -1
	}
	from, to = off, off+1
	for from > first && cellOf(from-1, stratum) == cellOf(off, stratum) {
		from--
	}
	for to < last && cellOf(to, stratum) == cellOf(off, stratum) {
		to++
	}
	return from, to
}

// cell is how many neighbouring blocks of a hold-back's stratum, about, the one that is
// off is compared within. It was as likely to be any of them, so that comparing it with
// the others is as exact as with the whole stratum, and load that drifts matters less.
const cell = 4

// cellOf a block is its cell in its stratum, all of which are about as large.
func cellOf(number, stratum int) int {
	return number % stratum * max(1, stratum/cell) / stratum
}
