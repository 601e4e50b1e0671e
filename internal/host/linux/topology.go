package linux

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

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
	if len(t.Cores) > 0 && !t.Nested {
		t.Clocks = h.clocks(t.Cores[0].CPUs.CPUs()[0])
	}
	if len(t.Cores) > 0 {
		t.IdleStates = h.idleStates(t.Cores[0].CPUs.CPUs()[0])
	}
	k := h.kubelet()
	t.Exclusive, t.Reserved = k.exclusive, k.reserved
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

// numaNodes tells the memory node of each CPU that has one other than 0. Nodes may
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
// kernel. Both are unknown on processors that do not tell.
func (h *Host) processor() (name string, nested bool) {
	infos, err := h.proc.CPUInfo()
	if err != nil || len(infos) == 0 {
		return "", false
	}
	return infos[0].ModelName, slices.Contains(infos[0].Flags, "hypervisor")
}
