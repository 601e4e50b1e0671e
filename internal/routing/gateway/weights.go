package gateway

import (
	"cmp"
	"maps"
	"slices"
)

// wholeWeight is the sum of a route's weights.
const wholeWeight = 1000

// candidate is a member as far as weights depend on it.
type candidate struct {
	name string
	// wanted is the share asked for, inForce the one that the route gives now.
	wanted, inForce float64
	// ready members have a ready pod. Reachable ones are ready endpoints of the
	// backend that they shall have.
	ready, reachable bool
}

// effective returns the shares to write now, and whom that waits for. Traffic
// moves once all members with a share that are ready are reachable; until then
// those that have it keep it. At least minActive members get some when there are
// so many reachable. Nil: nobody is reachable.
func effective(candidates []candidate, minActive int) (shares map[string]float64, waits string) {
	wanted, kept := map[string]float64{}, map[string]float64{}
	for _, c := range candidates {
		if c.wanted > 0 && c.ready && !c.reachable && waits == "" {
			waits = c.name
		}
		if !c.reachable {
			continue
		}
		if c.wanted > 0 {
			wanted[c.name] = c.wanted
		}
		if c.inForce > 0 {
			kept[c.name] = c.inForce
		}
	}
	shares = wanted
	if waits != "" && len(kept) > 0 {
		shares = kept
	}
	fill(shares, candidates, minActive)
	if len(shares) == 0 {
		return nil, waits
	}
	return shares, waits
}

// fill adds reachable members with the mean share until there are enough: first
// those that get traffic now.
func fill(shares map[string]float64, candidates []candidate, minActive int) {
	mean := 1.0
	if len(shares) > 0 {
		mean = 0
		for _, share := range shares {
			mean += share / float64(len(shares))
		}
	}
	rest := slices.DeleteFunc(slices.Clone(candidates), func(c candidate) bool { return !c.reachable || shares[c.name] > 0 })
	slices.SortStableFunc(rest, func(a, b candidate) int { return cmp.Compare(b.inForce, a.inForce) })
	for _, c := range rest {
		if len(shares) >= max(minActive, 1) {
			return
		}
		shares[c.name] = mean
	}
}

// apportion splits wholeWeight by the method of largest remainders. Whoever has a
// share gets at least 1.
func apportion(shares map[string]float64) map[string]int64 {
	sum := 0.0
	for _, share := range shares {
		sum += share
	}
	if sum <= 0 {
		return nil
	}
	out, remainder, rest := map[string]int64{}, map[string]float64{}, int64(wholeWeight)
	names := slices.Sorted(maps.Keys(shares))
	for _, name := range names {
		quota := shares[name] / sum * wholeWeight
		out[name] = int64(quota)
		remainder[name] = quota - float64(out[name])
		if out[name] == 0 && shares[name] > 0 {
			out[name], remainder[name] = 1, 0
		}
		rest -= out[name]
	}
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(remainder[b], remainder[a]) })
	for i := 0; rest > 0; i, rest = i+1, rest-1 {
		out[names[i%len(names)]]++
	}
	for ; rest < 0; rest++ {
		largest := slices.MaxFunc(names, func(a, b string) int { return cmp.Compare(out[a], out[b]) })
		out[largest]--
	}
	return out
}
