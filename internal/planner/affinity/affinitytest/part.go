package affinitytest

import (
	"fmt"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/planner/affinity"
	"github.com/joulevirt/joulevirt/internal/units"
)

// parts returns the sets of CPUs that a VM may be separated to.
func (m *modelled) parts(vm *affinity.VM) []units.CPUSet {
	confined := m.confined(vm)
	var parts []units.CPUSet
	add := func(number func(model.Core) int, whole bool) {
		groups := map[string][]int{}
		numbers := map[int]bool{}
		for _, core := range m.cores {
			numbers[number(core)] = true
		}
		var keys []string
		for _, c := range confined {
			key := fmt.Sprint(number(m.cores[c]), m.cores[c].Class)
			if groups[key] == nil {
				keys = append(keys, key)
			}
			groups[key] = append(groups[key], c)
		}
		for _, key := range keys {
			set := m.setOf(groups[key])
			known := false
			for _, part := range parts {
				known = known || part.Equal(set)
			}
			if !known && (whole || (len(numbers) > 1 && len(groups[key]) < len(confined))) {
				parts = append(parts, set)
			}
		}
	}
	if !vm.Within.IsEmpty() {
		add(func(model.Core) int { return 0 }, true)
		return parts
	}
	add(func(c model.Core) int { return c.LLC }, false)
	add(func(c model.Core) int { return c.NUMANode }, false)
	return parts
}

// separate puts a VM on a part.
func (m *modelled) separate(b *bound, vm *affinity.VM, d affinity.Decision, saved float64) error {
	set := d.Pins[0].CPUs
	for i, p := range d.Pins {
		if !p.CPUs.Equal(set) || p.VCPU != vm.Rates.VCPUs[i].Index || len(d.Pins) != len(vm.Rates.VCPUs) {
			return fmt.Errorf("vCPUs on different parts: %+v", d.Pins)
		}
	}
	known := false
	for _, part := range m.parts(vm) {
		known = known || part.Equal(set)
	}
	if !known {
		return fmt.Errorf("%s is no part that the VM may be separated to", set)
	}
	if !d.Threads.Vhost.Equal(set) || !d.Threads.IOThreads.Equal(set) || !d.Threads.Emulator.Equal(m.caches(vm, set)) {
		return fmt.Errorf("threads are not beside their vCPUs: %+v", d.Threads)
	}
	cores := m.within(set, true)
	if m.cores[cores[0]].Class == model.CoreEfficiency {
		for i := range vm.Rates.VCPUs {
			b.price += slowCore * float64(m.costs.PerBusyCore) / saved * m.demandOf(vm, i)
		}
	}
	m.spreadVCPUs(b, vm, cores, saved)
	if vm.Within.IsEmpty() {
		b.part = cores
	}
	return nil
}

// caches returns the CPUs that a VM may use of the caches of some.
func (m *modelled) caches(vm *affinity.VM, set units.CPUSet) units.CPUSet {
	llcs := map[int]bool{}
	for _, c := range m.within(set, true) {
		llcs[m.cores[c].LLC] = true
	}
	var all []int
	for _, c := range m.within(vm.Rates.AllowedCPUs, true) {
		if llcs[m.cores[c].LLC] {
			all = append(all, c)
		}
	}
	return m.setOf(all)
}
