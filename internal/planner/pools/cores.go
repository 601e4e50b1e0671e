package pools

import (
	"cmp"
	"math"
	"slices"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/planner/affinity"
	"github.com/joulevirt/joulevirt/internal/units"
)

// coreList is the node's physical cores as pools see them.
type coreList struct {
	cores []core
	// usable are the CPUs of all cores that take pins.
	usable units.CPUSet
}

type core struct {
	model.Core
	at int
	// open is true when every network VM may be bound to the core, and no network card
	// keeps it busy.
	open bool
	// near is true on the NUMA node of a network card.
	near bool
	// unmanaged is the use of the core by all but the VMs that may be bound.
	unmanaged units.Cores
}

const (
	// saturated is the use per CPU, by others, from which on a core that handles
	// interrupts of a network card is left to them.
	saturated = 0.5
	// sameUse is the use below which cores count as equally used by others.
	sameUse = 0.25
)

// newCoreList takes the VMs that may be bound, and the CPUs that all network VMs may
// run on.
func newCoreList(node Node, managed []*model.VMRates, common units.CPUSet) coreList {
	var list coreList
	vms := make([]affinity.VM, len(managed))
	for i := range managed {
		vms[i].Rates = managed[i]
	}
	unmanaged := affinity.OtherUse(node.Topology, node.CPUs, vms)
	var irqs units.CPUSet
	var nics []int
	for _, nic := range node.Topology.NICs {
		irqs, nics = irqs.Union(nic.CPUs), append(nics, nic.NUMANode)
	}
	for i, c := range node.Topology.Cores {
		own := core{Core: c, at: i, near: slices.Contains(nics, c.NUMANode), unmanaged: units.Cores(unmanaged[i])}
		usable := !c.CPUs.IsEmpty() && c.CPUs.Intersection(node.Excluded).IsEmpty()
		if usable {
			list.usable = list.usable.Union(c.CPUs)
		}
		limit := units.Cores(saturated * float64(c.CPUs.Len()))
		// A core in force is not left for what runs there: whatever the compute pool has no
		// room for comes to it, and would follow to any other.
		full := !c.CPUs.IsSubsetOf(node.Current.Network) && !c.CPUs.Intersection(irqs).IsEmpty() && own.unmanaged > limit
		own.open = usable && !full && c.CPUs.IsSubsetOf(common)
		list.cores = append(list.cores, own)
	}
	return list
}

// unmanaged is the use of some CPUs by all but the VMs that may be bound.
func (l *coreList) unmanaged(cpus units.CPUSet) units.Cores {
	var sum units.Cores
	for _, c := range l.cores {
		sum += c.unmanaged * units.Cores(c.CPUs.Intersection(cpus).Len()) / units.Cores(max(1, c.CPUs.Len()))
	}
	return sum
}

// stillPossible leaves of cores in force what may still be used. Without any for the
// network pool, cores are shared.
func (l *coreList) stillPossible(was Cores) Cores {
	var open units.CPUSet
	for _, c := range l.cores {
		if c.open && c.CPUs.IsSubsetOf(was.Network) {
			open = open.Union(c.CPUs)
		}
	}
	if open.IsEmpty() || was.Compute.IsEmpty() {
		return Cores{}
	}
	return Cores{Network: open, Compute: l.usable.Difference(open)}
}

// whole returns the CPUs of the cores that a set has all siblings of.
func (l *coreList) whole(cpus units.CPUSet) units.CPUSet {
	var all units.CPUSet
	for _, c := range l.cores {
		if c.CPUs.IsSubsetOf(cpus) {
			all = all.Union(c.CPUs)
		}
	}
	return all
}

// pick returns whole cores with a number of CPUs or a little more, or none when there are too
// few: inside one last-level cache if there is one that has them, else inside one NUMA node,
// else anywhere. Cores of the network pool in force come first, then those near a network
// card, then those that others use least.
func (l *coreList) pick(cpus int, was units.CPUSet) units.CPUSet {
	for _, part := range []func(core) int{
		func(c core) int { return c.LLC }, func(c core) int { return c.NUMANode }, func(core) int { return 0 },
	} {
		groups := map[int][]core{}
		for _, c := range l.cores {
			if c.open {
				groups[part(c)] = append(groups[part(c)], c)
			}
		}
		var best []core
		for _, group := range groups {
			picked := enough(group, cpus, was)
			if picked != nil && (best == nil || slices.CompareFunc(picked, best, prefer(was)) < 0) {
				best = picked
			}
		}
		if best != nil {
			return union(best)
		}
	}
	return units.CPUSet{}
}

// enough takes of a group the cores that suit best, or none when they do not suffice. Cores in
// a cache with some of the pool in force come before others.
func enough(group []core, cpus int, was units.CPUSet) []core {
	cache := map[int]int{}
	for _, c := range group {
		cache[c.LLC] += c.CPUs.Intersection(was).Len()
	}
	slices.SortFunc(group, func(x, y core) int {
		if kept := inForce(x, y, was); kept != 0 {
			return kept
		}
		return cmp.Or(cmp.Compare(cache[y.LLC], cache[x.LLC]), prefer(was)(x, y))
	})
	have := 0
	for i, c := range group {
		if have += c.CPUs.Len(); have >= cpus {
			return group[:i+1]
		}
	}
	return nil
}

func inForce(x, y core, was units.CPUSet) int {
	return cmp.Compare(y.CPUs.Intersection(was).Len(), x.CPUs.Intersection(was).Len())
}

// prefer orders cores, the better one first.
func prefer(was units.CPUSet) func(x, y core) int {
	return func(x, y core) int {
		far := func(c core) int {
			if c.near {
				return 0
			}
			return 1
		}
		return cmp.Or(
			inForce(x, y, was), cmp.Compare(far(x), far(y)), cmp.Compare(x.level(), y.level()),
			cmp.Compare(x.LLC, y.LLC), cmp.Compare(x.at, y.at),
		)
	}
}

// level is how much others use the core, in steps.
func (c core) level() float64 {
	return math.Floor(float64(c.unmanaged) / float64(c.CPUs.Len()) / sameUse)
}

func union(cores []core) units.CPUSet {
	var all units.CPUSet
	for _, c := range cores {
		all = all.Union(c.CPUs)
	}
	return all
}
