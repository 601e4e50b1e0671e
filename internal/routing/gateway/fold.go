package gateway

import (
	"cmp"
	"math"
	"slices"
)

// noFold is the fold of a member that is in none.
const noFold = -1

// foldMember is a member as far as folds depend on it.
type foldMember struct {
	name  string
	share float64
	// fold that the member is in now: from 0, or noFold.
	fold int
	// stays is true for a member that is not to be moved, as it is not ready.
	stays bool
}

// foldGrain is how many shares are told apart between zero and the largest.
const foldGrain = 200

// assign gives members folds so that those of a fold have about equal shares,
// and as few as possible move. Members without a share are never in one fold
// with others.
func assign(members []foldMember) map[string]int {
	const folds = maxBackends
	values := classes(members, folds)
	var a assignment
	a.value, a.size = make([]int, folds), make([]int, folds)
	out := map[string]int{}
	count := make([]map[int]int, folds)
	for i := range members {
		if f := members[i].fold; f != noFold {
			if count[f] == nil {
				count[f] = map[int]int{}
			}
			count[f][values[i]]++
		}
	}
	for f := range folds {
		a.value[f] = commonest(count[f])
		a.size[f] = count[f][a.value[f]]
	}
	a.dissolve(values)
	for i := range members {
		m := &members[i]
		if m.fold != noFold && (m.stays || a.value[m.fold] == values[i]) {
			out[m.name] = m.fold
			continue
		}
		out[m.name] = a.place(values[i])
	}
	return out
}

// assignment says which class of shares each fold has, and how many members had
// it there. A fold of size 0 is free.
type assignment struct {
	value, size []int
}

// place returns the fold of a class: the first that has it, else a free one.
func (a *assignment) place(value int) int {
	free := noFold
	for f := range a.value {
		if a.size[f] > 0 && a.value[f] == value {
			a.size[f]++
			return f
		}
		if a.size[f] == 0 && free == noFold {
			free = f
		}
	}
	// There are no more classes than folds, and dissolve made room.
	free = max(free, 0)
	a.value[free], a.size[free] = value, 1
	return free
}

// dissolve frees folds of a class that another fold has too, the smaller first,
// until each class can have one.
func (a *assignment) dissolve(values []int) {
	for {
		missing, free := map[int]bool{}, 0
		for _, v := range values {
			missing[v] = true
		}
		smallest, holders := noFold, map[int]int{}
		for f := range a.value {
			if a.size[f] == 0 {
				free++
				continue
			}
			delete(missing, a.value[f])
			holders[a.value[f]]++
		}
		for f := range a.value {
			if a.size[f] > 0 && holders[a.value[f]] > 1 && (smallest == noFold || a.size[f] < a.size[smallest]) {
				smallest = f
			}
		}
		if len(missing) <= free || smallest == noFold {
			return
		}
		a.size[smallest], a.value[smallest] = 0, noFold
	}
}

// commonest returns the value that most have, of several the largest.
func commonest(count map[int]int) int {
	best := noFold
	for value, n := range count {
		if best == noFold || n > count[best] || n == count[best] && value > best {
			best = value
		}
	}
	return best
}

// classes gives members with about equal shares equal numbers: 0 for those
// without a share, and at most as many as there may be.
func classes(members []foldMember, most int) []int {
	largest := 0.0
	for i := range members {
		largest = max(largest, members[i].share)
	}
	out := make([]int, len(members))
	sizes := map[int]int{}
	for i := range members {
		if share := members[i].share; share > 0 {
			out[i] = max(1, int(math.Round(share/largest*foldGrain)))
			sizes[out[i]]++
		}
	}
	merged := merge(sizes, most-1)
	for i := range out {
		if out[i] > 0 {
			out[i] = merged[out[i]]
		}
	}
	return out
}

// class is some neighbouring shares taken as one.
type class struct {
	values []int
	mean   float64
	size   int
}

// merge brings the number of classes down by joining the neighbours that lose
// least by it: Ward's criterion.
func merge(sizes map[int]int, most int) map[int]int {
	var all []class
	for value, size := range sizes {
		all = append(all, class{values: []int{value}, mean: float64(value), size: size})
	}
	slices.SortFunc(all, func(a, b class) int { return cmp.Compare(a.mean, b.mean) })
	for len(all) > most {
		best, least := 0, math.Inf(1)
		for i := range len(all) - 1 {
			n, m := float64(all[i].size), float64(all[i+1].size)
			gap := all[i+1].mean - all[i].mean
			if loss := n * m / (n + m) * gap * gap; loss < least {
				best, least = i, loss
			}
		}
		a, b := all[best], all[best+1]
		all[best] = class{
			values: append(a.values, b.values...), size: a.size + b.size,
			mean: (a.mean*float64(a.size) + b.mean*float64(b.size)) / float64(a.size+b.size),
		}
		all = slices.Delete(all, best+1, best+2)
	}
	out := map[int]int{}
	for _, c := range all {
		for _, value := range c.values {
			out[value] = c.values[0]
		}
	}
	return out
}
