package linux

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// Topology implements host.Host. Only the CPUs and their cores must be readable: what
// else is missing is left out.
func (h *Host) Topology() (model.Topology, error) {
	online, err := h.cpuList("online")
	if err != nil {
		return model.Topology{}, fmt.Errorf("topology: %w", err)
	}
	isolated, err := h.cpuList("isolated")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return model.Topology{}, fmt.Errorf("topology: %w", err)
	}
	cores, err := h.cores(online)
	if err != nil {
		return model.Topology{}, fmt.Errorf("topology: %w", err)
	}
	t := model.Topology{Cores: cores, Isolated: isolated, NICs: h.nics()}
	t.CPUModel, t.Nested = h.processor()
	// A hypervisor may run a CPU of its guest on cores of any class.
	if !t.Nested {
		h.classify(t.Cores)
	}
	if len(t.Cores) > 0 {
		first := t.Cores[0].CPUs.CPUs()[0]
		t.DeepestIdle = h.deepestIdle(first)
		if !t.Nested {
			t.Clocks = h.clocks(first)
		}
	}
	exclusive, reserved := h.kubeletCPUs()
	t.Taken = isolated.Union(exclusive).Union(reserved)
	return t, nil
}

// cores lists the physical cores of CPUs.
func (h *Host) cores(online units.CPUSet) ([]model.Core, error) {
	var cores []model.Core
	nodes := h.numaNodes()
	caches := map[cache]int{}
	var placed units.CPUSet
	for _, cpu := range online.CPUs() {
		if placed.Contains(cpu) {
			continue
		}
		core, err := h.core(cpu, online.Difference(placed))
		if err != nil {
			return nil, err
		}
		core.NUMANode = nodes[cpu]
		shared := h.lastLevelCache(cpu, core)
		if _, seen := caches[shared]; !seen {
			caches[shared] = len(caches)
		}
		core.LLC = caches[shared]
		placed = placed.Union(core.CPUs)
		cores = append(cores, core)
	}
	return cores, nil
}

// core describes the physical core of a CPU, of which only free CPUs count.
func (h *Host) core(cpu int, free units.CPUSet) (model.Core, error) {
	siblings, err := h.cpuList(cpuPath(cpu, "topology/core_cpus_list"))
	if errors.Is(err, fs.ErrNotExist) { // its name before Linux 5.3
		siblings, err = h.cpuList(cpuPath(cpu, "topology/thread_siblings_list"))
	}
	if err != nil {
		return model.Core{}, err
	}
	core := model.Core{CPUs: siblings.Union(units.NewCPUSet(cpu)).Intersection(free)}
	// -1, or no such file, means that the firmware does not say.
	if id, ok := readInt(h.cpuFile(cpuPath(cpu, "topology/physical_package_id"))); ok && id > 0 {
		core.Package = id
	}
	return core, nil
}

// cache names a last-level cache by the CPUs that share it. Where a cache spans
// memory nodes (Sub-NUMA clustering), each node's part counts as one: the kernel's
// scheduler sees it likewise.
type cache struct {
	shared   string
	numaNode int
}

// lastLevelCache names the highest cache of a core, of which cpu is one. Where the
// kernel does not know its caches, a package counts as one.
func (h *Host) lastLevelCache(cpu int, core model.Core) cache {
	last, highest := cache{"package " + strconv.Itoa(core.Package), core.NUMANode}, 0
	indexes, err := filepath.Glob(h.cpuFile(cpuPath(cpu, "cache/index[0-9]*")))
	if err != nil {
		return last
	}
	for _, index := range indexes {
		level, ok := readInt(filepath.Join(index, "level"))
		if !ok || level <= highest {
			continue
		}
		if shared, err := readCPUList(filepath.Join(index, "shared_cpu_list")); err == nil && shared.Contains(cpu) {
			last.shared, highest = shared.String(), level
		}
	}
	return last
}

// numaNodes returns the memory node of each CPU that has one other than 0. Nodes may
// have no CPUs, and their numbers gaps.
func (h *Host) numaNodes() map[int]int {
	of := map[int]int{}
	lists, err := filepath.Glob(filepath.Join(h.sysRoot, "devices/system/node/node[0-9]*/cpulist"))
	if err != nil {
		return of
	}
	for _, list := range lists {
		name := strings.TrimPrefix(filepath.Base(filepath.Dir(list)), "node")
		node, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		cpus, err := readCPUList(list)
		if err != nil {
			continue
		}
		for _, cpu := range cpus.CPUs() {
			of[cpu] = node
		}
	}
	return of
}

// processor returns the processor's name, and whether a hypervisor runs this
// kernel. Both are unknown on processors that do not say.
func (h *Host) processor() (name string, nested bool) {
	infos, err := h.proc.CPUInfo()
	if err != nil || len(infos) == 0 {
		return "", false
	}
	return infos[0].ModelName, slices.Contains(infos[0].Flags, "hypervisor")
}

// classGap is the least factor between the capacities of the cores of both classes. Cores of
// one design differ as well, by up to a tenth (preferred cores).
const classGap = 1.25

// classify gives cores their classes where all of them have one and the machine has
// both. In doubt there are none: wrong classes are worse.
func (h *Host) classify(cores []model.Core) {
	slow, ok := h.slowByDesign(cores)
	if !ok {
		slow, ok = h.slowByCapacity(cores)
	}
	if !ok {
		return
	}
	for i := range cores {
		cores[i].Class = v1alpha1.CorePerformance
		if slow[i] {
			cores[i].Class = v1alpha1.CoreEfficiency
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

// slowByCapacity goes by the capacity that the kernel gives each CPU.
func (h *Host) slowByCapacity(cores []model.Core) (slow []bool, ok bool) {
	figures := make([]int, len(cores))
	for i, core := range cores {
		figure, ok := readInt(h.cpuFile(cpuPath(core.CPUs.CPUs()[0], "cpu_capacity")))
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

const (
	// maxGovernor is the longest name that the kernel has room for.
	maxGovernor = 16
	// inKilohertz are files in kHz, as cpufreq's.
	inKilohertz = 1000
)

// clocks returns how fast a CPU may run. Without cpufreq, as in most VMs, nothing is known.
func (h *Host) clocks(cpu int) model.Clocks {
	governor := h.cpuWord(cpu, "cpufreq/scaling_governor")
	lowest, _ := readInt(h.cpuFile(cpuPath(cpu, "cpufreq/scaling_min_freq")))
	highest, ok := readInt(h.cpuFile(cpuPath(cpu, "cpufreq/scaling_max_freq")))
	if !ok || lowest < 0 || highest < max(1, lowest) || governor == "" || len(governor) > maxGovernor {
		return model.Clocks{}
	}
	return model.Clocks{
		Governor: governor, FollowLoad: followsLoad(governor, h.cpuWord(cpu, "cpufreq/scaling_driver")),
		Lowest: megahertz(lowest), Highest: megahertz(highest), Base: h.baseClock(cpu),
	}
}

// baseClock is what all cores reach at once, in whole MHz; 0 if not known.
func (h *Host) baseClock(cpu int) units.Megahertz {
	if base, ok := readInt(h.cpuFile(cpuPath(cpu, "cpufreq/base_frequency"))); ok && base > 0 {
		return megahertz(base)
	}
	// The firmware's figure is in MHz.
	if base, ok := readInt(h.cpuFile(cpuPath(cpu, "acpi_cppc/nominal_freq"))); ok && base > 0 {
		return units.Megahertz(base)
	}
	return 0
}

func megahertz(kilohertz int) units.Megahertz { return units.Megahertz(kilohertz / inKilohertz) }

func (h *Host) cpuWord(cpu int, file string) string {
	content, err := readFile(h.cpuFile(cpuPath(cpu, file)))
	if err != nil {
		return ""
	}
	return string(bytes.TrimSpace(content))
}

// followsLoad returns true if a CPU that is used more runs faster. "powersave" means so where
// the processor chooses by itself, and the lowest clock elsewhere.
func followsLoad(governor, driver string) bool {
	switch governor {
	case "schedutil", "ondemand", "conservative":
		return true
	case "powersave":
		return driver == "intel_pstate" || driver == "amd-pstate-epp"
	default:
		return false
	}
}

const (
	maxIdleStates = 10 // the kernel's CPUIDLE_STATE_MAX
	// pollState is no sleep: the CPU runs in a loop.
	pollState = "POLL"
)

// deepestIdle returns the name of the deepest state that a CPU may sleep in. States that
// somebody disabled are left out. Empty: not known.
func (h *Host) deepestIdle(cpu int) string {
	for index := maxIdleStates - 1; index >= 0; index-- {
		dir := h.cpuFile(cpuPath(cpu, fmt.Sprintf("cpuidle/state%d", index)))
		content, err := readFile(filepath.Join(dir, "name"))
		name := string(bytes.TrimSpace(content))
		if err != nil || name == "" || name == pollState {
			continue
		}
		if disabled, ok := readInt(filepath.Join(dir, "disable")); ok && disabled != 0 {
			continue
		}
		return name
	}
	return ""
}

// nics lists the network cards of the node with the CPUs that handle their interrupts.
// A mount of /sys shows the network devices of the namespace that it was made in, so
// that these are the node's in whatever namespace the agent runs.
func (h *Host) nics() []model.NIC {
	links, err := filepath.Glob(filepath.Join(h.sysRoot, "class/net/*/device"))
	if err != nil {
		return nil
	}
	var nics []model.NIC
	for _, link := range links {
		device, err := filepath.EvalSymlinks(link)
		if err != nil {
			continue
		}
		// A virtual function that is here carries nothing: it waits for a pod.
		if _, err := os.Lstat(filepath.Join(device, "physfn")); err == nil {
			continue
		}
		var nic model.NIC
		function := interrupting(device)
		if node, ok := readInt(filepath.Join(function, "numa_node")); ok && node > 0 {
			nic.NUMANode = node
		}
		for _, irq := range interrupts(function) {
			nic.CPUs = nic.CPUs.Union(h.interruptCPUs(irq))
		}
		if !nic.CPUs.IsEmpty() {
			nics = append(nics, nic)
		}
	}
	return nics // Glob sorts
}

// interrupting returns the folder of the device that raises a card's interrupts: its
// own, or that of the PCI function which a virtio device is behind.
func interrupting(device string) string {
	if bus, err := os.Readlink(filepath.Join(device, "subsystem")); err == nil && filepath.Base(bus) == "virtio" {
		return filepath.Dir(device)
	}
	return device
}

// interrupts lists the interrupts of a device: its messages (MSI), or else its line.
func interrupts(device string) []int {
	entries, err := os.ReadDir(filepath.Join(device, "msi_irqs"))
	if err != nil {
		if irq, ok := readInt(filepath.Join(device, "irq")); ok && irq > 0 {
			return []int{irq}
		}
		return nil
	}
	var irqs []int
	for _, entry := range entries {
		if irq, err := strconv.Atoi(entry.Name()); err == nil && irq >= 0 {
			irqs = append(irqs, irq)
		}
	}
	return irqs
}

// interruptCPUs returns the CPUs that handle an interrupt: where the kernel has put it
// or, on machines that do not say, where it may put it. Empty when nobody waits for it,
// or no packet raises it.
func (h *Host) interruptCPUs(irq int) units.CPUSet {
	number := strconv.Itoa(irq)
	actions, err := readFile(filepath.Join(h.sysRoot, "kernel/irq", number, "actions"))
	if err == nil && !movesPackets(string(actions)) {
		return units.CPUSet{}
	}
	for _, file := range []string{"effective_affinity_list", "smp_affinity_list"} {
		cpus, err := readCPUList(filepath.Join(h.procRoot, "irq", number, file))
		if err == nil && !cpus.IsEmpty() {
			return cpus
		}
	}
	return units.CPUSet{}
}

// movesPackets decides by the names of who waits for an interrupt whether packets raise
// it. Each virtio device has one for changes of its configuration.
func movesPackets(actions string) bool {
	names := strings.FieldsFunc(actions, func(r rune) bool { return r == ',' || r == '\n' || r == ' ' })
	return slices.ContainsFunc(names, func(name string) bool {
		return !strings.HasPrefix(name, "virtio") || !strings.HasSuffix(name, "-config")
	})
}
