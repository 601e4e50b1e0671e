package gateway

import (
	"cmp"
	"maps"
	"slices"
)

// wholeWeight is the sum of a route's weights.
const wholeWeight = 1000

// weightInput is a member as far as weights depend on it.
type weightInput struct {
	name string
	// wanted is the share asked for, inForce the one that the route gives now.
	wanted, inForce float64
	// ready members have a ready pod. Reachable ones have a ready endpoint of their
	// Service.
	ready, reachable bool
}

// weights returns the weights of backends to write now, and the member that is
// waited for. Nil: nobody is reachable, and the route stays as it is.
func (v *view) weights(shares map[string]float64) (map[string]int64, string) {
	inForce := v.shares()
	inputs := make([]weightInput, len(v.members))
	for i := range v.members {
		m := &v.members[i]
		inputs[i] = weightInput{
			name: m.Name, wanted: shares[m.Name], inForce: inForce[m.Name],
			ready: m.Ready(), reachable: !m.Starting && v.isReachable(m),
		}
	}
	allowed, waitsFor := allowedShares(inputs, int(v.group.Target.MinActive))
	if allowed == nil {
		return nil, waitsFor
	}
	byService := map[string]float64{}
	for name, share := range allowed {
		byService[serviceName(v.group, name)] = share
	}
	return apportion(byService), waitsFor
}

// allowedShares returns the shares to write now, and the member that it waits for.
// Traffic moves once all ready members with a share are reachable; until then it
// stays where it is. At least minActive members get some if so many are
// reachable. Nil: nobody is reachable.
func allowedShares(inputs []weightInput, minActive int) (shares map[string]float64, waitsFor string) {
	wanted, kept := map[string]float64{}, map[string]float64{}
	for _, c := range inputs {
		if c.wanted > 0 && c.ready && !c.reachable && waitsFor == "" {
			waitsFor = c.name
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
	if waitsFor != "" && len(kept) > 0 {
		shares = kept
	}
	fillUp(shares, inputs, minActive)
	if len(shares) == 0 {
		return nil, waitsFor
	}
	return shares, waitsFor
}

// fillUp adds reachable members with the mean share until there are enough: first
// those that get traffic now.
func fillUp(shares map[string]float64, inputs []weightInput, minActive int) {
	mean := 1.0
	if len(shares) > 0 {
		mean = 0
		for _, share := range shares {
			mean += share / float64(len(shares))
		}
	}
	rest := slices.DeleteFunc(slices.Clone(inputs), func(c weightInput) bool { return !c.reachable || shares[c.name] > 0 })
	slices.SortStableFunc(rest, func(a, b weightInput) int { return cmp.Compare(b.inForce, a.inForce) })
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
