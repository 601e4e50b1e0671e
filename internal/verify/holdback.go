package verify

import "math"

// cell is how many neighbouring blocks of a hold-back's stratum, about, the one that is
// off is compared within. It was as likely to be any of them, so that comparing it with
// the others is as exact as with the whole stratum, and load that drifts matters less.
const cell = 4

// HeldBack is what a hold-back showed of an adopted lever.
type HeldBack struct {
	// Effect on the joules for the same work and on the work, over all units. Pairs counts
	// strata.
	Effect, Work Effect
	// Units have each unit's own.
	Units []UnitEffect
}

// JudgeHoldBack compares the off blocks of a hold-back with on blocks beside them, each
// in its stratum of as many blocks as StratumBlocks says, on each unit and over all. Where
// one schedule followed another, blocks of the second are numbered on from a multiple of
// the stratum: two of one number would contradict each other, and neither would count.
func JudgeHoldBack(outcomes []Outcome, stratum int) HeldBack {
	var held HeldBack
	var energy, work []Effect
	for _, t := range toldOf(outcomes) {
		u := t.before(math.MaxInt)
		ofEnergy, ofWork := effectsOf(u.offStrata(max(2, stratum)), elasticityOf(u.with))
		energy, work = append(energy, ofEnergy), append(work, ofWork)
		held.Units = append(held.Units, UnitEffect{u.name, ofEnergy})
	}
	held.Effect, held.Work = together(energy), together(work)
	return held
}

// offStrata are the differences of strata that have one off block that counts, from the on
// blocks of its cell.
func (u *unit) offStrata(stratum int) []difference {
	var all []difference
	for from := 0; from < len(u.blocks); {
		to := from + 1
		for to < len(u.blocks) && u.blocks[to].number/stratum == u.blocks[from].number/stratum {
			to++
		}
		if d, ok := offCell(u.blocks[from:to], stratum); ok {
			all = append(all, d)
		}
		from = to
	}
	return all
}

// offCell is the difference of a stratum's on blocks from the one that is off, within its
// cell.
func offCell(blocks []block, stratum int) (difference, bool) {
	var off block
	offs := 0
	for _, b := range blocks {
		if !b.on {
			off = b
			offs++
		}
	}
	if offs != 1 {
		return difference{}, false
	}
	var d difference
	ons := 0.0
	for _, b := range blocks {
		if b.on && cellOf(b.number, stratum) == cellOf(off.number, stratum) {
			d.power += b.power
			d.work += b.work
			ons++
		}
	}
	if ons == 0 {
		return difference{}, false
	}
	// Of a pair both halves err; with more on blocks their half errs less.
	return difference{rates{d.power/ons - off.power, d.work/ons - off.work}, 2 / (1 + 1/ons)}, true
}

// cellOf a block is its cell in its stratum, all of which are about as large.
func cellOf(number, stratum int) int {
	return number % stratum * max(1, stratum/cell) / stratum
}
