package affinity

import (
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// cores is the node's physical cores as the placement sees them.
type cores struct {
	cpus []units.CPUSet
	// busy is the measured use of each core, all siblings together.
	busy []units.Cores
	// limit is the use above which a core is hot.
	limit []units.Cores
	// quiet is the other use up to which a core is not hot with a single vCPU
	// on it, however busy that is: it would be as busy on any core, and a core
	// of its own is the best that it can get.
	quiet []units.Cores
	// reserve is the part of the limit that new pins leave free, so that a VM
	// at the limit does not come and go with each round.
	reserve []units.Cores
	// llc numbers the last-level cache that each core uses.
	llc []int
	// usable is false for cores that take no pins.
	usable []bool
}

// quietShare is the share of a core's CPUs that others may use on a quiet core.
const quietShare = 0.15

// newCoreReserve is the share of a core's CPUs that new pins leave free below
// the limit.
const newCoreReserve = 0.05

func newCores(node Node) cores {
	n := len(node.Topology.Cores)
	c := cores{
		cpus: make([]units.CPUSet, n), busy: make([]units.Cores, n), limit: make([]units.Cores, n),
		quiet: make([]units.Cores, n), reserve: make([]units.Cores, n), llc: make([]int, n), usable: make([]bool, n),
	}
	coreOf := map[int]int{}
	for i, core := range node.Topology.Cores {
		siblings := units.Cores(core.CPUs.Len())
		c.cpus[i], c.llc[i] = core.CPUs, core.LLC
		c.limit[i] = node.MaxCoreUtilization * siblings
		c.quiet[i] = min(c.limit[i], quietShare*siblings)
		c.reserve[i] = newCoreReserve * siblings
		c.usable[i] = siblings > 0 && core.CPUs.Intersection(node.Excluded).IsEmpty()
		for _, cpu := range core.CPUs.CPUs() {
			coreOf[cpu] = i
		}
	}
	for _, cpu := range node.CPUs {
		if i, ok := coreOf[cpu.CPU]; ok {
			c.busy[i] += cpu.BusyCores
		}
	}
	return c
}

// excess returns by how much a core with some vCPUs and a load is above what
// makes it hot, below zero when it is not. A core that a single vCPU has to
// itself, lone being that vCPU's load, is judged by all else that runs there.
func (c cores) excess(core int, load units.Cores, vcpus int, lone units.Cores) units.Cores {
	excess := load - c.limit[core]
	if vcpus == 1 {
		excess = min(excess, load-lone-c.quiet[core])
	}
	return excess
}

// within returns the cores that a VM may be pinned to: whole cores inside the
// VM's cpuset.
func (c cores) within(allowed units.CPUSet) []int {
	var in []int
	for i, cpus := range c.cpus {
		if c.usable[i] && cpus.IsSubsetOf(allowed) {
			in = append(in, i)
		}
	}
	return in
}

// indexOf returns the core whose siblings the set is exactly, or -1.
func (c cores) indexOf(set units.CPUSet) int {
	for i, cpus := range c.cpus {
		if cpus.Equal(set) {
			return i
		}
	}
	return -1
}

// shares attributes the run time r of a vCPU's thread to the cores p that its
// mask M reaches:
//
//	share_p = r                              when M is inside the one core p
//	share_p = r * busy_p / sum_M(busy)       otherwise
//
// The second line is an estimate: of an unpinned thread it is only known how
// long it ran, not where; that it ran where the node was busy is the best
// guess that needs no trace. Siblings outside the mask count as inside, which
// matters only for masks that cut a core in two: we never write such a mask.
func (c cores) shares(vcpu model.VCPURates) []units.Cores {
	shares := make([]units.Cores, len(c.cpus))
	var reached []int
	var total units.Cores
	for i, cpus := range c.cpus {
		if !cpus.Intersection(vcpu.CPUs).IsEmpty() {
			reached = append(reached, i)
			total += c.busy[i]
		}
	}
	if len(reached) == 1 {
		shares[reached[0]] = vcpu.RunCores
		return shares
	}
	if total <= 0 {
		return shares
	}
	for _, i := range reached {
		shares[i] = vcpu.RunCores * c.busy[i] / total
	}
	return shares
}

// unmanaged returns the use of each core by all but the vCPUs that are being
// placed:
//
//	unmanaged_p = max(0, busy_p - sum over placed vCPUs of share_p)
//
// It holds the system's own work, VMs without a profile, and the emulator, IO
// and vhost threads of all VMs. The counters of CPUs and threads are not read
// at the same instant, so the difference can fall below zero: it is cut there.
func (c cores) unmanaged(placed []*vcpu) []units.Cores {
	left := append([]units.Cores(nil), c.busy...)
	for _, v := range placed {
		for i, share := range v.shares {
			left[i] -= share
		}
	}
	for i := range left {
		left[i] = max(left[i], 0)
	}
	return left
}
