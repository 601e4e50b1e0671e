package affinity

import (
	"cmp"
	"math/rand/v2"
	"slices"
)

const (
	// searchSteps bound the time that a plan takes, in cores looked at.
	searchSteps = 200_000
	// starts of the search: nodes with few VMs are searched from several, large ones
	// as far as the steps go.
	starts = 6
	// fruitless is how many tries without success end a search from one start.
	fruitless = 100
	// mostRemoved VMs are placed anew at once.
	mostRemoved = 6
	// blindAgain and blindStart are the shares of candidates left out when VMs are
	// placed again, and at a new start.
	blindAgain, blindStart = 0.1, 0.4
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
	q.end = q.work + searchSteps
	q.reinsert(free)
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
	for _, v := range free {
		if !v.denied {
			continue
		}
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
	q.blindness = blindAgain
	for failed := 0; failed < fruitless && q.work < q.end; {
		failed++
		removed := q.choose(free)
		before, hot := q.total, q.hot
		saved := q.save(removed)
		q.reinsert(removed)
		if q.isBetter(hot, before) {
			failed = 0
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
		before, hot := q.total, q.hot
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
		if !q.isBetter(hot, before) {
			q.restore(all, saved)
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
