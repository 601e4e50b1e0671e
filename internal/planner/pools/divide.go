package pools

import (
	"maps"
	"math"
	"slices"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

const (
	// knee is the use of the network pool's CPUs up to which waiting stays short. A pool
	// grows above growAbove, and shrinks when a smaller one would do for shrinkFor times
	// the demand: between, it stays.
	knee      = 0.60
	growAbove = 0.75
	shrinkFor = 1.5
	// crowded and disturbedFrom are the runnable threads per CPU, over the CPUs of a
	// network VM, from which on it can starve as predicted or as seen. With fewer, Linux
	// finds a thread that wakes up an idle CPU, and pools would not help. Below quiet a
	// division in force ends: nobody can tell any more whether it is needed.
	crowded       = 0.70
	disturbedFrom = 0.50
	quiet         = 0.40
	// A network VM with a demand below leastDemand starves no more than others, and one in
	// force below idleDemand needs no cores.
	leastDemand = 0.05
	idleDemand  = 0.02
	// The part of their run time that compute VMs may lose: by prediction, for a VM that
	// is disturbed, and while a division is in force.
	mostLoss          = 0.08
	mostLossDisturbed = 0.50
	mostLossKept      = 0.60
)

// Divide returns the cores of the two pools. Pools share all cores unless a network VM would
// get less than it needs there, by weight or as it was seen.
//
// VMs that may not be bound count as unmanaged load, as all else on the node does.
func Divide(node Node, vms []Member) Cores {
	d := newDivision(node, vms)
	if len(d.network) == 0 || len(d.compute) == 0 {
		return Cores{}
	}
	if !d.current.Shared() {
		return d.keep()
	}
	starves, disturbed := d.needed()
	switch {
	case disturbed:
		return d.cut(mostLossDisturbed)
	case starves:
		return d.cut(mostLoss)
	default:
		return Cores{}
	}
}

// division is the work in progress.
type division struct {
	network, compute []member
	cores            coreList
	// reach are the CPUs that any compute VM may run on.
	reach units.CPUSet
	// demand and run of the network VMs, and demand of the compute VMs.
	demand, run, computing units.Cores
	// unmanaged load on the CPUs that any of the VMs may run on.
	unmanaged units.Cores
	anywhere  units.CPUSet
	maxUse    units.Cores
	settled   bool
	current   Cores
	// eachVCPUs is the most vCPUs of a network VM.
	eachVCPUs int
	// there is what runs on the CPUs that a network VM may run on, were all cores shared, by
	// the set of CPUs.
	there map[string][]onCPUs
}

func newDivision(node Node, vms []Member) *division {
	online := node.Topology.Online()
	d, lack := &division{maxUse: node.MaxCoreUtilization, settled: node.Settled}, model.NewLack(node.CPUs)
	var managed []*model.VMRates
	common, anywhere := online, units.CPUSet{}
	for _, vm := range vms {
		if !vm.Confinable || vm.Rates == nil || len(vm.Rates.VCPUs) == 0 {
			continue
		}
		m := newMember(vm, online, lack)
		managed, anywhere = append(managed, vm.Rates), anywhere.Union(m.reach)
		if vm.Pool != v1alpha1.PoolNetwork {
			d.compute = append(d.compute, m)
			d.reach = d.reach.Union(m.reach)
			d.computing += m.demand
			continue
		}
		m.disturbed = vm.Disturbance == v1alpha1.CauseNeighbour
		d.network = append(d.network, m)
		common = common.Intersection(m.reach)
		d.demand, d.run = d.demand+m.demand, d.run+m.run
		d.eachVCPUs = max(d.eachVCPUs, m.vcpus)
	}
	d.cores = newCoreList(node, managed, common)
	d.anywhere, d.unmanaged = anywhere, d.cores.unmanaged(anywhere)
	d.current = d.cores.stillPossible(node.Current)
	d.spread()
	return d
}

// spread puts all load where it may run, as if nothing of ours bound it, and finds what there
// is on the CPUs of each network VM.
func (d *division) spread() {
	type reached struct {
		onCPUs
		set units.CPUSet
	}
	reaches := map[string]*reached{}
	load := func(reach units.CPUSet, threads []thread, rival bool) {
		key, cpus := reach.String(), reach.Len()
		on := reaches[key]
		if on == nil {
			on = &reached{set: reach}
			reaches[key] = on
		}
		for _, t := range threads {
			if rival {
				on.add(t, cpus)
			}
			on.pressure += float64(t.demand) / float64(cpus)
		}
	}
	var others []thread
	for left := d.unmanaged; left > 0; left-- {
		others = append(others, thread{demand: min(left, 1), weight: requestWeight})
	}
	load(d.anywhere, others, true)
	for _, m := range d.compute {
		load(m.reach, m.threads, true)
	}
	for _, m := range d.network {
		load(m.reach, m.threads, false)
	}
	each := map[int]onCPUs{}
	for _, key := range slices.Sorted(maps.Keys(reaches)) {
		on := reaches[key]
		for _, cpu := range on.set.CPUs() {
			each[cpu] = onCPUs{rivals: each[cpu].plus(on.rivals), pressure: each[cpu].pressure + on.pressure}
		}
	}
	d.there = map[string][]onCPUs{}
	for _, m := range d.network {
		if key := m.reach.String(); d.there[key] == nil {
			d.there[key] = alike(m.reach, each)
		}
	}
}

// alike sums up what is the same on several CPUs.
func alike(reach units.CPUSet, each map[int]onCPUs) []onCPUs {
	var out []onCPUs
	for _, cpu := range reach.CPUs() {
		on := each[cpu]
		at := slices.IndexFunc(out, func(o onCPUs) bool { return o.rivals == on.rivals && o.pressure == on.pressure })
		if at < 0 {
			out, at = append(out, on), len(out)
		}
		out[at].cpus++
	}
	return out
}

// needed reports whether some network VM would starve by weight, and whether one was seen
// to wait.
func (d *division) needed() (starves, disturbed bool) {
	for i := range d.network {
		m := &d.network[i]
		if m.demand < leastDemand {
			continue
		}
		there := d.there[m.reach.String()]
		disturbed = disturbed || m.disturbed && crowding(there) >= disturbedFrom
		starves = starves || crowding(there) >= crowded && m.starves(there)
	}
	return starves, disturbed
}

// keep goes on with a division in force, on cores as like as possible. Whether it is
// still needed cannot be seen, because it works: it ends when the cores are quiet.
func (d *division) keep() Cores {
	calm := !slices.ContainsFunc(d.network, func(m member) bool { return crowding(d.there[m.reach.String()]) >= quiet })
	if !d.settled && (calm || d.demand < idleDemand) {
		return Cores{}
	}
	size := d.current.Network.Len()
	if d.demand > growAbove*units.Cores(size) || size < d.eachVCPUs {
		_, disturbed := d.needed()
		bound := mostLoss
		if disturbed {
			bound = mostLossDisturbed
		}
		if cores := d.cut(bound); cores.Network.Len() >= size {
			return cores
		}
	} else if least := d.shrunk(); !least.IsEmpty() && least.Len() < size {
		if cores := d.cut(mostLossKept); !cores.Shared() {
			return cores
		}
	}
	if cores := d.with(d.current.Network); d.allows(cores, mostLossKept) {
		return cores
	}
	return Cores{}
}

// shrunk is a network pool that would do for somewhat more than the demand, or none.
func (d *division) shrunk() units.CPUSet {
	if d.settled {
		return units.CPUSet{}
	}
	return d.cores.pick(d.size(shrinkFor*d.demand), d.current.Network)
}

// size is the number of CPUs that a pool of a demand needs.
func (d *division) size(demand units.Cores) int {
	return max(1, d.eachVCPUs, int(math.Ceil(float64(demand)/knee-1e-9)))
}

// cut makes the largest network pool, from what the demand needs down to what the VMs run
// now, that the compute pool can bear: a VM that starves may ask for more than it would use.
// Without one, cores are shared.
func (d *division) cut(bound float64) Cores {
	for size, least := min(d.size(d.demand), d.cores.usable.Len()), d.size(d.run); size >= least; size-- {
		network := d.cores.pick(size, d.current.Network)
		if cores := d.with(network); !network.IsEmpty() && d.allows(cores, bound) {
			return cores
		}
	}
	return Cores{}
}

// with gives the compute pool all that the network pool leaves.
func (d *division) with(network units.CPUSet) Cores {
	return Cores{Network: network, Compute: d.cores.usable.Difference(network)}
}

// allows reports whether cores may be divided like this: every VM has as many CPUs as vCPUs,
// and compute VMs lose no more than a bound, and are not crowded on hot cores.
func (d *division) allows(cores Cores, bound float64) bool {
	if cores.Compute.IsEmpty() || cores.Network.Len() < d.eachVCPUs {
		return false
	}
	for _, m := range d.compute {
		if d.cores.whole(cores.Compute.Intersection(m.reach)).Len() < max(1, m.vcpus) {
			return false
		}
	}
	return d.loss(cores) <= bound+1e-9 && (bound != mostLoss || !d.makesHot(cores))
}

// loss is the part of their run time that compute VMs would lose, against shared cores.
func (d *division) loss(cores Cores) float64 {
	all, left := units.Cores(d.reach.Len()), units.Cores(cores.Compute.Intersection(d.reach).Len())
	shared := min(d.computing, all-d.run-d.unmanagedOn(d.reach))
	divided := min(d.computing, left-d.unmanagedOn(cores.Compute.Intersection(d.reach)))
	if shared <= 0 {
		return 0
	}
	return float64(1 - max(0, divided)/shared)
}

// makesHot reports whether the compute pool's CPUs would be used above the policy's limit
// by a division, and are not without.
func (d *division) makesHot(cores Cores) bool {
	left := units.Cores(cores.Compute.Len())
	use := (d.computing + d.unmanagedOn(cores.Compute)) / left
	now := (d.computing + d.demand + d.unmanagedOn(d.reach)) / max(1, units.Cores(d.reach.Len()))
	return d.maxUse > 0 && use > d.maxUse && now <= d.maxUse
}

// unmanagedOn is the unmanaged load of some CPUs, spread evenly over all: what nobody
// binds goes where there is room.
func (d *division) unmanagedOn(cpus units.CPUSet) units.Cores {
	return d.unmanaged * units.Cores(cpus.Len()) / max(1, units.Cores(d.anywhere.Len()))
}
