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
		// A core in force is not left for what runs there: whatever the compute pool has no
		// room for comes to it, and would follow to any other.
		full := !c.CPUs.IsSubsetOf(node.Current.Network) && !c.CPUs.Intersection(irqs).IsEmpty() && own.unmanaged > limit
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
	for _, mask := range runByMask(managed) {
		var total units.Cores
		cpus := mask.cpus.CPUs()
		for _, cpu := range cpus {
			total += busy[cpu]
		}
		for _, cpu := range cpus {
			if total > 0 {
				left[cpu] -= mask.of * busy[cpu] / total
			}
		}
	}
	for cpu := range left {
		left[cpu] = max(0, left[cpu])
	}
	return left
}

// runByMask sums what threads ran by the CPUs that they may run on.
func runByMask(vms []*model.VMRates) perSet[units.Cores] {
	var out perSet[units.Cores]
	for _, vm := range vms {
		var all units.CPUSet
		for i, vcpu := range vm.VCPUs {
			if i == 0 || !vcpu.CPUs.IsSubsetOf(all) {
				all = all.Union(vcpu.CPUs)
			}
			*out.at(vcpu.CPUs) += plausible(vcpu.RunCores)
		}
		for _, threads := range []model.ThreadRates{vm.Emulator, vm.IOThreads, vm.Vhost, vm.Other} {
			*out.at(all) += plausible(threads.RunCores)
		}
	}
	return out
}

// perSet holds something for each of some sets of CPUs. There are few on a node, however
// many VMs it has.
type perSet[T any] []struct {
	cpus units.CPUSet
	of   T
}

// at is what is held for a set.
func (p *perSet[T]) at(cpus units.CPUSet) *T {
	for i := range *p {
		if (*p)[i].cpus.Equal(cpus) {
			return &(*p)[i].of
		}
	}
	*p = append(*p, struct {
		cpus units.CPUSet
		of   T
	}{cpus: cpus})
	return &(*p)[len(*p)-1].of
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
