package affinitytest

import (
	"errors"
	"fmt"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/planner/affinity"
	"github.com/joulevirt/joulevirt/internal/units"
)

func demandOf(vm *affinity.VM, vcpu int) float64 {
	return max(leastDemand, min(1, float64(vm.Rates.VCPUs[vcpu].Demand())))
}

func demandOfAll(vm *affinity.VM) float64 {
	r := vm.Rates
	sum := min(1, float64(r.Emulator.Demand())) + float64(r.IOThreads.Demand()+r.Vhost.Demand()+r.Other.Demand())
	for i := range r.VCPUs {
		sum += demandOf(vm, i)
	}
	return sum
}

func weightPerDemand(vm *affinity.VM) float64 {
	weight := vm.Rates.Weight
	if weight <= 0 {
		weight = cpuWeight * float64(max(1, len(vm.Rates.VCPUs)))
	}
	return weight / max(leastDemand, demandOfAll(vm))
}

// remains is what remains of the power of a VM's threads as they are bound now.
func (m *modelled) remains(vm *affinity.VM) float64 {
	pins := vm.Current
	switch {
	case len(pins) == 0:
		return 1
	case m.coreOf(pins[0].CPUs) >= 0 && vm.Preference != model.AffinitySeparated:
		return 1 - m.costs.Pinned
	default:
		return 1 - m.costs.Separated
	}
}

// bind returns what a decision puts on the cores, and an error when it may not be.
func (m *modelled) bind(at int, d affinity.Decision) (*bound, error) {
	vm := &m.VMs[at]
	b := &bound{vm: at, use: make([]float64, len(m.cores)), busy: make([]float64, len(m.cores)), press: make([]float64, len(m.cores))}
	saved := m.remains(vm)
	w := weightPerDemand(vm)
	r := vm.Rates
	remains := 1.0
	var err error
	everywhere := m.within(r.AllowedCPUs, false)
	switch {
	case d.Reason == model.ReasonPinned && len(d.Pins) > 0:
		remains = 1 - m.costs.Pinned
		if err = m.pin(b, vm, d, saved); err != nil {
			return nil, err
		}
		m.spread(b, d.Threads.Emulator, min(1, float64(r.Emulator.Demand())), w)
		m.spread(b, d.Threads.Vhost, float64(r.IOThreads.Demand()+r.Vhost.Demand()), w)
	case d.Reason == model.ReasonSeparated && len(d.Pins) > 0:
		remains = 1 - m.costs.Separated
		if err = m.separate(b, vm, d, saved); err != nil {
			return nil, err
		}
		m.spread(b, d.Threads.Emulator, min(1, float64(r.Emulator.Demand())), w)
		m.spread(b, d.Threads.Vhost, float64(r.IOThreads.Demand()+r.Vhost.Demand()), w)
	case len(d.Pins) > 0 || !d.Threads.IsZero() || d.Reason == model.ReasonPinned || d.Reason == model.ReasonSeparated:
		return nil, errors.New("pins and reason do not fit")
	default:
		m.spreadVCPUs(b, vm, everywhere, saved)
		m.spread(b, r.AllowedCPUs, min(1, float64(r.Emulator.Demand())), w)
		m.spread(b, r.AllowedCPUs, float64(r.IOThreads.Demand()+r.Vhost.Demand()), w)
	}
	m.spread(b, r.AllowedCPUs, float64(r.Other.Demand()), w)
	own := (float64(m.costs.PerBusyCore)*demandOfAll(vm) + float64(m.costs.PerWakeUp)*float64(r.WakeUps())) / saved
	b.watts += own * remains
	wish := vm.Preference == model.AffinityPinned || vm.Preference == model.AffinitySeparated
	if wish && (len(d.Pins) == 0 || (vm.Preference == model.AffinityPinned) != (d.Reason == model.ReasonPinned)) {
		b.unmet = 1
	}
	if !wish && len(d.Pins) > 0 && len(vm.Current) == 0 && vm.Within.IsEmpty() {
		b.price += max(leastSaving, leastShare*own)
	}
	return b, nil
}

// within returns the cores that a set meets, or the whole ones in it that take pins.
func (m *modelled) within(set units.CPUSet, whole bool) []int {
	var in []int
	for i, core := range m.cores {
		if whole && (!m.usable[i] || !core.CPUs.IsSubsetOf(set)) {
			continue
		}
		if !core.CPUs.Intersection(set).IsEmpty() {
			in = append(in, i)
		}
	}
	return in
}

// confined returns the cores that a VM may be bound to.
func (m *modelled) confined(vm *affinity.VM) []int {
	set := vm.Rates.AllowedCPUs
	if !vm.Within.IsEmpty() {
		set = set.Intersection(vm.Within)
	}
	return m.within(set, true)
}

func (m *modelled) setOf(cores []int) units.CPUSet {
	var set units.CPUSet
	for _, c := range cores {
		set = set.Union(m.cores[c].CPUs)
	}
	return set
}

// spread puts the load of threads on the cores that they reach, by their CPUs.
func (m *modelled) spread(b *bound, set units.CPUSet, demand, perDemand float64) {
	total := 0
	for _, core := range m.cores {
		total += core.CPUs.Intersection(set).Len()
	}
	for i, core := range m.cores {
		if in := core.CPUs.Intersection(set).Len(); in > 0 {
			share := float64(in) / float64(total)
			b.use[i] += share * demand
			b.press[i] += share * perDemand * demand * min(1, demand)
		}
	}
}

// spreadVCPUs puts all vCPUs on cores together.
func (m *modelled) spreadVCPUs(b *bound, vm *affinity.VM, cores []int, saved float64) {
	allowed := vm.Rates.AllowedCPUs
	total := 0
	llcs := map[int]bool{}
	for _, c := range cores {
		total += m.cores[c].CPUs.Intersection(allowed).Len()
		llcs[m.cores[c].LLC] = true
	}
	for i := range vm.Rates.VCPUs {
		d := demandOf(vm, i)
		for _, c := range cores {
			share := float64(m.cores[c].CPUs.Intersection(allowed).Len()) / float64(total)
			b.use[c] += share * d
			b.busy[c] += share * busyness(d)
			b.press[c] += share * weightPerDemand(vm) * d * d
			b.watts += share * remoteMemory * m.memoryAway(vm, c) * float64(m.costs.PerBusyCore) / saved * d
		}
	}
	m.split(b, vm, len(llcs), saved)
}

func (m *modelled) split(b *bound, vm *affinity.VM, llcs int, saved float64) {
	if llcs < 2 {
		return
	}
	for i := range vm.Rates.VCPUs {
		b.watts += splitCache * (1 - 1/float64(llcs)) * float64(m.costs.PerBusyCore) / saved * demandOf(vm, i)
	}
}

// memoryAway is the share of a VM's memory on other NUMA nodes than a core's.
func (m *modelled) memoryAway(vm *affinity.VM, core int) float64 {
	total, here := 0.0, 0.0
	for numa, mib := range vm.Rates.MemoryMiB {
		total += float64(mib)
		if numa == m.cores[core].NUMANode {
			here = float64(mib)
		}
	}
	if total == 0 {
		return 0
	}
	return 1 - here/total
}

// pin puts each vCPU on its core.
func (m *modelled) pin(b *bound, vm *affinity.VM, d affinity.Decision, saved float64) error {
	if len(d.Pins) != len(vm.Rates.VCPUs) {
		return errors.New("not all vCPUs have pins")
	}
	may := map[int]bool{}
	for _, c := range m.confined(vm) {
		may[c] = true
	}
	llcs := map[int]bool{}
	perBusy := float64(m.costs.PerBusyCore) / saved
	for i, p := range d.Pins {
		c := m.coreOf(p.CPUs)
		if c < 0 || !may[c] || p.VCPU != vm.Rates.VCPUs[i].Index {
			return fmt.Errorf("%s is not one whole allowed core", p.CPUs)
		}
		b.pins = append(b.pins, c)
		llcs[m.cores[c].LLC] = true
		if m.cores[c].Class != m.cores[b.pins[0]].Class {
			return errors.New("cores of two classes")
		}
		demand := demandOf(vm, i)
		b.use[c] += demand
		b.busy[c] += busyness(demand)
		b.press[c] += weightPerDemand(vm) * demand * demand
		b.watts += remoteMemory * m.memoryAway(vm, c) * perBusy * demand
		if m.cores[c].Class == model.CoreEfficiency {
			b.price += slowCore * perBusy * demand
		}
		if vm.Network && len(m.near) > 0 && !m.near[m.cores[c].NUMANode] {
			b.price += farFromNIC * perBusy * demand
		}
	}
	m.split(b, vm, len(llcs), saved)
	return m.checkThreads(b, vm, d.Threads, llcs)
}

// checkThreads holds the masks of a pinned VM's other threads against what they are
// to be.
func (m *modelled) checkThreads(b *bound, vm *affinity.VM, threads model.ThreadCPUs, llcs map[int]bool) error {
	var cache, io, apart []int
	for _, c := range m.within(vm.Rates.AllowedCPUs, true) {
		if llcs[m.cores[c].LLC] {
			cache = append(cache, c)
		}
	}
	busiest := make([]float64, len(m.cores))
	for i, c := range b.pins {
		busiest[c] = max(busiest[c], demandOf(vm, i))
	}
	for _, c := range m.confined(vm) {
		if !llcs[m.cores[c].LLC] {
			continue
		}
		io = append(io, c)
		if busiest[c] < stillBusy {
			apart = append(apart, c)
		}
	}
	if !threads.Emulator.Equal(m.setOf(cache)) {
		return fmt.Errorf("the emulator may use %s, not all of its caches", threads.Emulator)
	}
	if !threads.Vhost.Equal(threads.IOThreads) || threads.Vhost.IsEmpty() || !threads.Vhost.IsSubsetOf(m.setOf(io)) || !m.setOf(apart).IsSubsetOf(threads.Vhost) {
		return fmt.Errorf("vhost may use %s of %s", threads.Vhost, m.setOf(io))
	}
	for _, c := range m.within(threads.Vhost, true) {
		if busiest[c] >= notYetBusy && len(apart) > 0 {
			return fmt.Errorf("vhost shares core %d with a busy vCPU", c)
		}
	}
	return nil
}
