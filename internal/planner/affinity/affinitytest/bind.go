package affinitytest

import (
	"errors"
	"fmt"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/planner/affinity"
	"github.com/joulevirt/joulevirt/internal/units"
)

// wanted is what threads on some CPUs would run if these had time for it: what they wait
// counts as far as the CPUs' mean use is on its way from 90 to 98 %.
func (s *Scenario) wanted(t model.ThreadRates, set, otherwise units.CPUSet) float64 {
	if set.IsEmpty() {
		set = otherwise
	}
	use, count := 0.0, 0.0
	for _, cpu := range s.Node.CPUs {
		if set.Contains(cpu.CPU) {
			use, count = use+float64(cpu.BusyCores+cpu.StealCores), count+1
		}
	}
	part := 1.0
	if count > 0 {
		part = min(1, max(0, (use/count-0.9)/0.08))
	}
	return float64(t.RunCores) + part*float64(t.WaitCores)
}

func (s *Scenario) demandOf(vm *affinity.VM, vcpu int) float64 {
	c := &vm.Rates.VCPUs[vcpu]
	return max(leastDemand, min(1, s.wanted(c.ThreadRates, c.CPUs, vm.Rates.AllowedCPUs)))
}

func (s *Scenario) emulatorDemand(vm *affinity.VM) float64 {
	return min(1, s.wanted(vm.Rates.Emulator, vm.CurrentThreads.Emulator, vm.Rates.AllowedCPUs))
}

func (s *Scenario) ioDemand(vm *affinity.VM) float64 {
	r, now := vm.Rates, vm.CurrentThreads
	return s.wanted(r.IOThreads, now.IOThreads, r.AllowedCPUs) + s.wanted(r.Vhost, now.Vhost, r.AllowedCPUs)
}

func (s *Scenario) otherDemand(vm *affinity.VM) float64 {
	return s.wanted(vm.Rates.Other, units.CPUSet{}, vm.Rates.AllowedCPUs)
}

func (s *Scenario) demandOfAll(vm *affinity.VM) float64 {
	sum := s.emulatorDemand(vm) + s.ioDemand(vm) + s.otherDemand(vm)
	for i := range vm.Rates.VCPUs {
		sum += s.demandOf(vm, i)
	}
	return sum
}

func (s *Scenario) weightPerDemand(vm *affinity.VM) float64 {
	weight := vm.Rates.Weight
	if weight <= 0 {
		weight = cpuWeight * float64(max(1, len(vm.Rates.VCPUs)))
	}
	return weight / max(leastDemand, s.demandOfAll(vm))
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
	w := m.weightPerDemand(vm)
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
		m.spread(b, d.Threads.Emulator, m.emulatorDemand(vm), w)
		m.spread(b, d.Threads.Vhost, m.ioDemand(vm), w)
	case d.Reason == model.ReasonSeparated && len(d.Pins) > 0:
		remains = 1 - m.costs.Separated
		if err = m.separate(b, vm, d, saved); err != nil {
			return nil, err
		}
		m.spread(b, d.Threads.Emulator, m.emulatorDemand(vm), w)
		m.spread(b, d.Threads.Vhost, m.ioDemand(vm), w)
	case len(d.Pins) > 0 || !d.Threads.IsZero() || d.Reason == model.ReasonPinned || d.Reason == model.ReasonSeparated:
		return nil, errors.New("pins and reason do not fit")
	default:
		m.spreadVCPUs(b, vm, everywhere, saved)
		m.spread(b, r.AllowedCPUs, m.emulatorDemand(vm), w)
		m.spread(b, r.AllowedCPUs, m.ioDemand(vm), w)
	}
	b.spared = make([]float64, len(m.cores))
	for c := range b.use {
		if len(d.Pins) > 0 {
			b.spared[c] = b.use[c] * (1 - remains/saved)
		}
	}
	m.spread(b, r.AllowedCPUs, m.otherDemand(vm), w)
	own := (float64(m.costs.PerBusyCore)*m.demandOfAll(vm) + float64(m.costs.PerWakeUp)*float64(r.WakeUps())) / saved
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
		d := m.demandOf(vm, i)
		for _, c := range cores {
			share := float64(m.cores[c].CPUs.Intersection(allowed).Len()) / float64(total)
			b.use[c] += share * d
			b.busy[c] += share * busyness(d)
			b.press[c] += share * m.weightPerDemand(vm) * d * d
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
		b.watts += splitCache * (1 - 1/float64(llcs)) * float64(m.costs.PerBusyCore) / saved * m.demandOf(vm, i)
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
		demand := m.demandOf(vm, i)
		b.use[c] += demand
		b.busy[c] += busyness(demand)
		b.press[c] += m.weightPerDemand(vm) * demand * demand
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
		busiest[c] = max(busiest[c], m.demandOf(vm, i))
	}
	for _, c := range m.confined(vm) {
		if !llcs[m.cores[c].LLC] {
			continue
		}
		io = append(io, c)
		if busiest[c] < busyDemand {
			apart = append(apart, c)
		}
	}
	if !threads.Emulator.Equal(m.setOf(cache)) {
		return fmt.Errorf("the emulator may use %s, not all of its caches", threads.Emulator)
	}
	if !threads.Vhost.Equal(threads.IOThreads) || threads.Vhost.IsEmpty() {
		return fmt.Errorf("vhost may use %s, IO threads %s", threads.Vhost, threads.IOThreads)
	}
	// What is in force may stay beside pins that all do.
	stays := threads.Vhost.Equal(vm.CurrentThreads.Vhost) && threads.IOThreads.Equal(vm.CurrentThreads.IOThreads)
	for i, c := range b.pins {
		stays = stays && m.startOf(b.vm, i) == c
	}
	if stays && threads.Vhost.Equal(m.setOf(m.within(threads.Vhost, true))) && threads.Vhost.IsSubsetOf(m.setOf(io)) {
		return nil
	}
	if len(apart) > 0 {
		io = apart
	}
	if !threads.Vhost.Equal(m.setOf(io)) {
		return fmt.Errorf("vhost may use %s, and has to use %s", threads.Vhost, m.setOf(io))
	}
	return nil
}
