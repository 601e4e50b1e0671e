package linux

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/joulevirt/joulevirt/internal/host"
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

// readInt reads a file that holds one whole number. It returns false when there is
// no such file, or something else in it.
func readInt(path string) (int, bool) {
	content, err := readFile(path)
	if err != nil {
		return 0, false
	}
	n, err := strconv.Atoi(string(bytes.TrimSpace(content)))
	return n, err == nil
}
