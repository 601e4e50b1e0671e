package linux

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// CPUTimes implements host.Host.
func (h *Host) CPUTimes() ([]host.CPUTimes, error) {
	file, err := os.Open(filepath.Join(h.procRoot, "stat"))
	if err != nil {
		return nil, fmt.Errorf("CPU times: %w", err)
	}
	defer file.Close()
	var times []host.CPUTimes
	// The lines of the CPUs come first; the rest of the file is long.
	scanner := bufio.NewScanner(file)
	for scanner.Scan() && bytes.HasPrefix(scanner.Bytes(), []byte("cpu")) {
		if one, ok := parseCPUTimes(scanner.Bytes()); ok {
			times = append(times, one)
		}
	}
	if err := scanner.Err(); err != nil {
		return nil, fmt.Errorf("CPU times: %w", err)
	}
	if len(times) == 0 {
		return nil, fmt.Errorf("CPU times: %s names no CPU: %w", file.Name(), errMalformed)
	}
	return times, nil
}

// parseCPUTimes reads one line of /proc/stat: user, nice, system, idle,
// iowait, irq, softirq, steal (and guest times, which user and nice include).
// It returns false for the line of all CPUs and for malformed ones.
func parseCPUTimes(line []byte) (host.CPUTimes, bool) {
	name, rest := nextField(line)
	cpu, err := parseUint(bytes.TrimPrefix(name, []byte("cpu")))
	if err != nil || cpu >= units.MaxCPUs {
		return host.CPUTimes{}, false
	}
	var t [8]time.Duration
	for i := range t {
		var field []byte
		field, rest = nextField(rest)
		ticks, err := parseUint(field)
		if err != nil || ticks > 1<<63/uint64(time.Second) {
			return host.CPUTimes{}, false
		}
		t[i] = time.Duration(ticks) * (time.Second / host.TicksPerSecond)
	}
	return host.CPUTimes{
		CPU:   int(cpu),
		Busy:  t[0] + t[1] + t[2] + t[5] + t[6],
		Idle:  t[3] + t[4],
		Steal: t[7],
	}, true
}

// Topology implements host.Host.
func (h *Host) Topology() (model.Topology, error) {
	online, err := h.cpuList("online")
	if err != nil {
		return model.Topology{}, fmt.Errorf("topology: %w", err)
	}
	isolated, err := h.cpuList("isolated")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return model.Topology{}, fmt.Errorf("topology: %w", err)
	}
	t := model.Topology{Isolated: isolated}
	t.CPUModel, t.Nested = h.processor()
	nodes := h.numaNodes()
	caches := map[string]int{}
	var placed units.CPUSet
	for _, cpu := range online.CPUs() {
		if placed.Contains(cpu) {
			continue
		}
		core, err := h.core(cpu, online.Difference(placed))
		if err != nil {
			return model.Topology{}, fmt.Errorf("topology: %w", err)
		}
		core.NUMANode = nodes[cpu]
		shared := h.lastLevelCache(cpu, core.Package)
		if _, seen := caches[shared]; !seen {
			caches[shared] = len(caches)
		}
		core.LLC = caches[shared]
		placed = placed.Union(core.CPUs)
		t.Cores = append(t.Cores, core)
	}
	return t, nil
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
	content, err := readFile(h.cpuFile(cpuPath(cpu, "topology/physical_package_id")))
	if err != nil {
		return model.Core{}, err
	}
	// -1 means that the firmware does not say.
	if id, err := strconv.Atoi(string(bytes.TrimSpace(content))); err == nil && id > 0 {
		core.Package = id
	}
	return core, nil
}

// lastLevelCache names the CPUs that share the highest cache of a CPU. Where
// the kernel does not know its caches, a package counts as one.
func (h *Host) lastLevelCache(cpu, cpuPackage int) string {
	shared, highest := "package "+strconv.Itoa(cpuPackage), 0
	indexes, err := filepath.Glob(h.cpuFile(cpuPath(cpu, "cache/index[0-9]*")))
	if err != nil {
		return shared
	}
	for _, index := range indexes {
		content, err := readFile(filepath.Join(index, "level"))
		if err != nil {
			continue
		}
		level, err := strconv.Atoi(string(bytes.TrimSpace(content)))
		if err != nil || level <= highest {
			continue
		}
		if content, err = readFile(filepath.Join(index, "shared_cpu_list")); err == nil {
			shared, highest = string(bytes.TrimSpace(content)), level
		}
	}
	return shared
}

// numaNodes tells the memory node of each CPU that has one other than 0.
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

func cpuPath(cpu int, file string) string { return fmt.Sprintf("cpu%d/%s", cpu, file) }

func (h *Host) cpuFile(name string) string {
	return filepath.Join(h.sysRoot, "devices/system/cpu", name)
}

func (h *Host) cpuList(name string) (units.CPUSet, error) { return readCPUList(h.cpuFile(name)) }

func readCPUList(path string) (units.CPUSet, error) {
	content, err := readFile(path)
	if err != nil {
		return units.CPUSet{}, err
	}
	cpus, err := units.ParseCPUSet(string(content))
	if err != nil {
		return units.CPUSet{}, fmt.Errorf("%s: %w", path, err)
	}
	return cpus, nil
}
