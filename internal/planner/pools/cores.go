package pools

import (
	"cmp"
	"math"
	"slices"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// coreList is the node's physical cores as pools see them.
type coreList struct {
	cores []core
	// usable are the CPUs of all cores that take pins.
	usable units.CPUSet
	// busy is the use of each CPU by all but the VMs that may be bound.
	busy map[int]units.Cores
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
	list := coreList{busy: unmanagedByCPU(node, managed)}
	var irqs units.CPUSet
	var nics []int
	for _, nic := range node.Topology.NICs {
		irqs, nics = irqs.Union(nic.CPUs), append(nics, nic.NUMANode)
	}
	for i, c := range node.Topology.Cores {
		own := core{Core: c, at: i, near: slices.Contains(nics, c.NUMANode)}
		for _, cpu := range c.CPUs.CPUs() {
			own.unmanaged += list.busy[cpu]
		}
		usable := !c.CPUs.IsEmpty() && c.CPUs.Intersection(node.Excluded).IsEmpty()
		if usable {
			list.usable = list.usable.Union(c.CPUs)
		}
		limit := units.Cores(saturated * float64(c.CPUs.Len()))
		if c.CPUs.IsSubsetOf(node.Current.Network) {
			limit *= 1.5
		}
		full := !c.CPUs.Intersection(irqs).IsEmpty() && own.unmanaged > limit
		own.open = usable && !full && c.CPUs.IsSubsetOf(common)
		list.cores = append(list.cores, own)
	}
	return list
}

// unmanagedByCPU is the use of each CPU by all but the VMs given. Of a thread it is only
// known how long it ran, and which CPUs it may run on: that it ran where the node was
// busy is the best guess. VMs' other threads are taken to run where their vCPUs may.
func unmanagedByCPU(node Node, managed []*model.VMRates) map[int]units.Cores {
	busy, left := map[int]units.Cores{}, map[int]units.Cores{}
	for _, cpu := range node.CPUs {
		use := min(1, plausible(cpu.BusyCores))
		busy[cpu.CPU], left[cpu.CPU] = use, use
	}
	take := func(run units.Cores, mask units.CPUSet) {
		var total units.Cores
		cpus := mask.CPUs()
		for _, cpu := range cpus {
			total += busy[cpu]
		}
		if total <= 0 {
			return
		}
		for _, cpu := range cpus {
			left[cpu] -= plausible(run) * busy[cpu] / total
		}
	}
	for _, vm := range managed {
		var all units.CPUSet
		for _, vcpu := range vm.VCPUs {
			all = all.Union(vcpu.CPUs)
			take(vcpu.RunCores, vcpu.CPUs)
		}
		for _, threads := range []model.ThreadRates{vm.Emulator, vm.IOThreads, vm.Vhost, vm.Other} {
			take(threads.RunCores, all)
		}
	}
	for cpu := range left {
		left[cpu] = max(0, left[cpu])
	}
	return left
}

// unmanaged is the use of some CPUs by all but the VMs that may be bound.
func (l *coreList) unmanaged(cpus units.CPUSet) units.Cores {
	var sum units.Cores
	for _, cpu := range cpus.CPUs() {
		sum += l.busy[cpu]
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

// pick returns whole cores with a number of CPUs or a little more, or none when there
// are too few: inside one last-level cache if there is one that has them, else inside
// one NUMA node, else anywhere. Cores of the network pool in force come first, then
// those near a network card, then those that others use least.
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
			if picked := enough(group, cpus, was); picked != nil && (best == nil || compareGroups(picked, best, was) < 0) {
				best = picked
			}
		}
		if best != nil {
			return union(best)
		}
	}
	return units.CPUSet{}
}

// enough takes of a group the cores that suit best, or none when they do not suffice.
func enough(group []core, cpus int, was units.CPUSet) []core {
	cache := map[int]int{}
	for _, c := range group {
		cache[c.LLC] += c.CPUs.Intersection(was).Len()
	}
	slices.SortFunc(group, func(x, y core) int {
		return cmp.Or(
			cmp.Compare(y.CPUs.Intersection(was).Len(), x.CPUs.Intersection(was).Len()),
			-cmp.Compare(cache[x.LLC], cache[y.LLC]),
			compareBool(y.near, x.near),
			cmp.Compare(x.level(), y.level()),
			cmp.Compare(x.LLC, y.LLC),
			cmp.Compare(x.at, y.at),
		)
	})
	have := 0
	for i, c := range group {
		if have += c.CPUs.Len(); have >= cpus {
			return prune(group[:i+1], have, cpus)
		}
	}
	return nil
}

// prune gives cores back that are not needed, where cores have different numbers of
// siblings.
func prune(cores []core, have, need int) []core {
	kept := slices.Clone(cores)
	for i := len(kept) - 1; i >= 0; i-- {
		if size := kept[i].CPUs.Len(); have-size >= need {
			have -= size
			kept = slices.Delete(kept, i, i+1)
		}
	}
	return kept
}

// compareGroups orders choices, the better one first.
func compareGroups(x, y []core, was units.CPUSet) int {
	kept := func(cores []core) int { return union(cores).Intersection(was).Len() }
	near := func(cores []core) (n int) {
		for _, c := range cores {
			if c.near {
				n += c.CPUs.Len()
			}
		}
		return n
	}
	used := func(cores []core) (n float64) {
		for _, c := range cores {
			n += c.level()
		}
		return n
	}
	return cmp.Or(
		cmp.Compare(kept(y), kept(x)),
		cmp.Compare(near(y), near(x)),
		cmp.Compare(used(x), used(y)),
		cmp.Compare(len(x), len(y)),
		cmp.Compare(x[0].at, y[0].at),
	)
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

func compareBool(x, y bool) int {
	switch {
	case x == y:
		return 0
	case x:
		return 1
	}
	return -1
}
