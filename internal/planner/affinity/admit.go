package affinity

import (
	"cmp"
	"math/rand/v2"
	"slices"
)

const (
	// searchSteps bound the time that a plan takes, in cores looked at: on nodes with
	// manyVMs fewer, as there each VM decides about less.
	searchSteps, searchStepsMany, manyVMs = 100_000, 30_000, 64
	// starts of the search: nodes with few VMs are searched from several, large ones
	// as far as the steps go.
	starts = 6
	// fruitless is how many tries without success end a search from one start, and
	// fruitlessFew how many more it takes for few VMs, divided by their number.
	fruitless, fruitlessFew = 80, 2000
	// deniedSteps and deniedTries bound what is spent on VMs that were let go of.
	deniedSteps, deniedTries = 20_000, 4
	// mostRemoved VMs are placed anew at once.
	mostRemoved = 6
	// blindAgain is the most, and blindStart the share, of candidates left out when
	// VMs are placed again, and at a new start.
	blindAgain, blindStart = 0.3, 0.4
)

// admit places all VMs that are free: those without a choice first, then those whose
// owners wish it, and the busiest first.
func (s *state) admit() {
	var free []*vm
	for _, v := range s.vms {
		if v.free {
			free = append(free, v)
		}
	}
	if len(free) == 0 {
		return
	}
	q := &search{state: s, random: rand.New(rand.NewPCG(1, uint64(len(free))))}
	q.sort(free)
	// As long as those that are still to come run anywhere, there is room for them.
	for _, v := range free {
		q.reinsert([]*vm{v})
	}
	q.tryPacked(free)
	q.end = q.work + searchSteps
	if len(s.vms) >= manyVMs {
		q.end = q.work + searchStepsMany
	}
	for {
		q.placeAgain(free)
		q.startAgain(free)
		if !s.cool() {
			break
		}
	}
	q.tryDenied(free)
}

// tryDenied tries once more to bind VMs that were let go of, as it may have been for
// others that are elsewhere now.
func (q *search) tryDenied(free []*vm) {
	tries := 0
	for _, v := range slices.Clone(free) {
		if !v.denied || tries == deniedTries {
			continue
		}
		tries++
		q.end = q.work + deniedSteps
		all := slices.Clone(free)
		before, saved := q.total, q.save(all)
		v.denied = false
		q.reinsert([]*vm{v})
		q.placeAgain(free)
		if q.isBroken() || q.total > before-eps {
			v.denied = true
			q.restore(all, saved)
		}
	}
}

func (q *search) sort(free []*vm) {
	rank := make([]int, len(q.vms))
	for _, v := range free {
		switch {
		case len(q.state.candidates(v, q.candidates)) < 2:
			rank[v.number] = 0
		case v.unmet(floating):
			rank[v.number] = 1
		default:
			rank[v.number] = 2
		}
	}
	slices.SortStableFunc(free, func(x, y *vm) int {
		return cmp.Or(cmp.Compare(rank[x.number], rank[y.number]), cmp.Compare(y.busiest, x.busiest))
	})
}

// reinsert places VMs anew, one after the other.
func (q *search) reinsert(vms []*vm) {
	for _, v := range vms {
		q.unbind(v)
	}
	for _, v := range vms {
		q.insert(v)
	}
}

// placeAgain takes some VMs out and places them again, in another order, as long as
// that pays (ruin and recreate).
func (q *search) placeAgain(free []*vm) {
	hadHotPart := q.hotPart() != nil
	most := fruitless + fruitlessFew/len(free)
	for failed := 0; failed < most && q.work < q.end; {
		failed++
		q.blindness = blindAgain * q.random.Float64()
		removed := q.choose(free)
		before, hot := q.total, q.hot
		saved := q.save(removed)
		q.reinsert(removed)
		if q.isBetter(hot, before) && (hadHotPart || q.hotPart() == nil) {
			failed, hadHotPart = 0, hadHotPart && q.hotPart() != nil
			continue
		}
		q.restore(removed, saved)
	}
	q.blindness = 0
}

// startAgain searches from other starts, the first of which is that no VM is bound that
// may run anywhere, and keeps the best that it finds.
func (q *search) startAgain(free []*vm) {
	all := slices.Clone(free)
	for start := 1; start < starts && q.work < q.end; start++ {
		before, hot, wasSound := q.total, q.hot, q.hotPart() == nil
		saved := q.save(all)
		if start == 1 {
			for _, v := range all {
				q.unbind(v)
				q.bind(v, q.last(v))
			}
		} else {
			q.blindness = blindStart
			q.random.Shuffle(len(free), func(i, j int) { free[i], free[j] = free[j], free[i] })
			q.reinsert(free)
		}
		q.placeAgain(free)
		// A start from which nothing sound was reached is no better.
		if isSound := q.hotPart() == nil; !isSound || (wasSound && !q.isBetter(hot, before)) {
			q.restore(all, saved)
		}
	}
}

// tryPacked fills cores one after the other, up to so much of their CPUs, and keeps the
// cheapest. Cores are awake by VMs that run anywhere, so that one VM alone gains nothing
// where others are, and never gets there; and one alone wakes no core that is worth it.
func (q *search) tryPacked(free []*vm) {
	p := &q.node.prices
	rise := p.clocks.rise
	if rise == 0 {
		return
	}
	for _, fill := range []float64{0.2, 0.3, 0.45, knee} {
		before, hot, saved := q.total, q.hot, q.save(free)
		p.clocks.rise, p.fill = 0, fill
		q.refreshAll()
		q.reinsert(free)
		p.clocks.rise, p.fill = rise, knee
		q.refreshAll()
		if !q.isBetter(hot, before) || q.hotPart() != nil {
			q.restore(free, saved)
		}
	}
}

func (q *search) save(vms []*vm) []binding {
	saved := make([]binding, len(vms))
	for i, v := range vms {
		saved[i] = q.binding(v)
	}
	return saved
}

func (q *search) restore(vms []*vm, saved []binding) {
	for _, v := range vms {
		q.unbind(v)
	}
	for i, v := range vms {
		q.bind(v, saved[i])
	}
}

// choose moves some VMs to the front, at random, and returns them.
func (q *search) choose(free []*vm) []*vm {
	count := 1 + q.random.IntN(min(mostRemoved, len(free)))
	for i := range count {
		j := i + q.random.IntN(len(free)-i)
		free[i], free[j] = free[j], free[i]
	}
	return free[:count]
}
