package verify

import (
	"cmp"
	"math"
	"slices"
)

// emptyShare of a unit's median rate of work without the lever is added to each rate of
// work, so that blocks with next to no work do not outweigh all others. A lever that ends
// all work still shows.
const emptyShare = 0.01

// leastWork is what is added at least, in bytes per second, for units that do no work.
const leastWork = 1

// rates of a stretch: natural logarithms of watts and of work per second.
type rates struct{ power, work float64 }

// block of a unit that counts.
type block struct {
	number int
	on     bool
	rates
}

// unit is what blocks brought on one unit.
type unit struct {
	name string
	// blocks that count, in order.
	blocks []block
	// without are stretches without the lever in the order of time: off blocks and those
	// before blocks. with are on blocks.
	without, with []point
}

// point is a stretch: of the block with the number or before it.
type point struct {
	number int
	rates
}

// told is all that was told of a unit's blocks.
type told struct {
	name string
	// outcomes in the order of blocks, one each.
	outcomes []Outcome
}

// reportedOf sorts outcomes by unit and block.
func reportedOf(outcomes []Outcome) []told {
	outcomes = slices.Clone(outcomes)
	slices.SortStableFunc(outcomes, func(a, b Outcome) int {
		return cmp.Or(cmp.Compare(a.Unit, b.Unit), cmp.Compare(a.Block, b.Block))
	})
	var all []told
	for from := 0; from < len(outcomes); {
		to := from + 1
		for to < len(outcomes) && outcomes[to].Unit == outcomes[from].Unit {
			to++
		}
		all = append(all, told{outcomes[from].Unit, once(outcomes[from:to])})
		from = to
	}
	return all
}

// contradictory is why a block is excluded that was told of in more than one way.
const contradictory = "Contradictory"

// once leaves one of sorted outcomes of a unit for each block. What is told in more than
// one way does not count, but for a guard that tripped.
func once(outcomes []Outcome) []Outcome {
	all := make([]Outcome, 0, len(outcomes))
	for from := 0; from < len(outcomes); {
		o, to := outcomes[from], from+1
		for to < len(outcomes) && outcomes[to].Block == o.Block {
			if outcomes[to] != outcomes[from] {
				o.Excluded = contradictory
				o.On, o.Guarded = o.On || outcomes[to].On, o.Guarded || outcomes[to].Guarded
			}
			to++
		}
		if o.Block >= 0 {
			all = append(all, o)
		}
		from = to
	}
	return all
}

// before is what a unit's blocks below a number brought, as if there were no others.
func (t *told) before(number int) unit {
	u := unit{name: t.name}
	end, _ := slices.BinarySearchFunc(t.outcomes, number, func(o Outcome, number int) int { return cmp.Compare(o.Block, number) })
	little := little(t.outcomes[:end])
	for _, o := range t.outcomes[:end] {
		if r, ok := ratesOf(o.Before, little); ok {
			u.without = append(u.without, point{o.Block, r})
		}
		r, ok := ratesOf(o.judged(), little)
		if !ok || o.Excluded != "" {
			continue
		}
		u.blocks = append(u.blocks, block{o.Block, o.On, r})
		if o.On {
			u.with = append(u.with, point{o.Block, r})
		} else {
			u.without = append(u.without, point{o.Block, r})
		}
	}
	return u
}

func (o *Outcome) judged() Stretch { return Stretch{o.Seconds, o.Joules, o.Work} }

// little work per second is added to that of all stretches of a unit.
func little(outcomes []Outcome) float64 {
	var off []float64
	for _, o := range outcomes {
		if rate := o.Work / o.Seconds; !o.On && o.Excluded == "" && o.judged().isReal() {
			off = append(off, rate)
		}
	}
	if len(off) == 0 {
		return leastWork
	}
	slices.Sort(off)
	return max(leastWork, emptyShare*off[len(off)/2])
}

// isReal tells whether a stretch can have been.
func (s Stretch) isReal() bool {
	power, work := float64(s.Joules)/s.Seconds, s.Work/s.Seconds
	return s.Seconds > 0 && power > 0 && !math.IsInf(power, 0) && work >= 0 && !math.IsInf(work, 0)
}

func ratesOf(s Stretch, little float64) (rates, bool) {
	if !s.isReal() {
		return rates{}, false
	}
	return rates{math.Log(float64(s.Joules) / s.Seconds), math.Log(s.Work/s.Seconds + little)}, true
}
