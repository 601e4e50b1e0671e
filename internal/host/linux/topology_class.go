package linux

import (
	"path/filepath"
	"slices"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// classGap is by how much the cores of one class are to surpass those of the other at
// least, where only figures tell them apart. Cores of one design differ as well: their
// highest clocks by up to a tenth (preferred cores).
const classGap = 1.25

// classify gives cores their classes where all of them have one and the machine has
// both. In doubt there are none: wrong classes are worse.
func (h *Host) classify(cores []model.Core) {
	slow, ok := h.slowByDesign(cores)
	if !ok {
		slow, ok = h.slowBy(cores, "cpu_capacity")
	}
	if !ok {
		slow, ok = h.slowByClock(cores)
	}
	if !ok {
		return
	}
	for i := range cores {
		cores[i].Class = model.CorePerformance
		if slow[i] {
			cores[i].Class = model.CoreEfficiency
		}
	}
}

// slowByDesign goes by the performance counters of hybrid Intel processors, of which
// each design of core has its own.
func (h *Host) slowByDesign(cores []model.Core) (slow []bool, ok bool) {
	counters := func(name string) units.CPUSet {
		cpus, err := readCPUList(filepath.Join(h.sysRoot, "devices", name, "cpus"))
		if err != nil {
			return units.CPUSet{}
		}
		return cpus
	}
	fast, low := counters("cpu_core"), counters("cpu_atom").Union(counters("cpu_lowpower"))
	slow = make([]bool, len(cores))
	for i, core := range cores {
		slow[i] = core.CPUs.IsSubsetOf(low)
		if slow[i] == core.CPUs.IsSubsetOf(fast) {
			return nil, false
		}
	}
	return slow, twoKinds(slow)
}

// slowByClock goes by the highest clocks, where the firmware's ranking of cores says the
// same. Alone, either can mean something else: a boost that somebody turned off on some
// CPUs, or cores that the firmware prefers for a time.
func (h *Host) slowByClock(cores []model.Core) (slow []bool, ok bool) {
	slow, ok = h.slowBy(cores, "cpufreq/cpuinfo_max_freq")
	if !ok {
		return nil, false
	}
	ranked, ok := h.slowBy(cores, "acpi_cppc/highest_perf")
	return slow, ok && slices.Equal(slow, ranked)
}

// slowBy tells the slow cores by a figure that each CPU has in a file.
func (h *Host) slowBy(cores []model.Core, file string) (slow []bool, ok bool) {
	figures := make([]int, len(cores))
	for i, core := range cores {
		figure, ok := readInt(h.cpuFile(cpuPath(core.CPUs.CPUs()[0], file)))
		if !ok || figure <= 0 {
			return nil, false
		}
		figures[i] = figure
	}
	least, ok := leastFast(figures)
	if !ok {
		return nil, false
	}
	for _, figure := range figures {
		slow = append(slow, figure < least)
	}
	return slow, true
}

// leastFast finds the least figure of the fast ones: the one above the widest gap. It
// returns false when no gap is wide enough.
func leastFast(figures []int) (int, bool) {
	sorted := slices.Clone(figures)
	slices.Sort(sorted)
	least, widest := 0, 1.0
	for i := 1; i < len(sorted); i++ {
		if gap := float64(sorted[i]) / float64(sorted[i-1]); gap > widest {
			least, widest = sorted[i], gap
		}
	}
	return least, widest >= classGap
}

func twoKinds(slow []bool) bool { return slices.Contains(slow, true) && slices.Contains(slow, false) }
