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
	"time"

	"github.com/joulevirt/joulevirt/internal/host"
)

// IdleStates implements host.Host. States that several CPUs name alike count as one.
func (h *Host) IdleStates() (host.IdleStates, error) {
	online, err := h.cpuList("online")
	if err != nil {
		return host.IdleStates{}, fmt.Errorf("idle states: %w", err)
	}
	out := host.IdleStates{CPUs: online}
	if nanoseconds, known := readInt(filepath.Join(h.sysRoot, "module/kvm/parameters/halt_poll_ns")); known {
		out.HaltPoll = time.Duration(nanoseconds)
	}
	for _, cpu := range online.CPUs() {
		for index := range maxIdleStates {
			state, err := readIdleState(h.cpuFile(cpuPath(cpu, fmt.Sprintf("cpuidle/state%d", index))))
			if errors.Is(err, fs.ErrNotExist) {
				break
			}
			if err != nil {
				return host.IdleStates{}, fmt.Errorf("idle states of CPU %d: %w", cpu, err)
			}
			at := slices.IndexFunc(out.States, func(s host.IdleState) bool { return s.Name == state.Name })
			if at < 0 {
				out.States = append(out.States, state)
				continue
			}
			out.States[at].Time += state.Time
			out.States[at].Disabled = out.States[at].Disabled && state.Disabled
		}
	}
	return out, nil
}

func readIdleState(dir string) (host.IdleState, error) {
	name, err := readFile(filepath.Join(dir, "name"))
	if err != nil {
		return host.IdleState{}, err
	}
	content, err := readFile(filepath.Join(dir, "time"))
	if err != nil {
		return host.IdleState{}, err
	}
	microseconds, err := strconv.ParseInt(string(bytes.TrimSpace(content)), 10, 64)
	if err != nil || microseconds < 0 || microseconds > int64(maxIdleTime/time.Microsecond) {
		return host.IdleState{}, fmt.Errorf("%s/time has %.32q, not a number of microseconds", dir, content)
	}
	disabled, known := readInt(filepath.Join(dir, "disable"))
	return host.IdleState{
		Name: string(bytes.TrimSpace(name)), Time: time.Duration(microseconds) * time.Microsecond, Disabled: known && disabled != 0,
	}, nil
}

// maxIdleTime lets the times of all CPUs of a node be added up.
const maxIdleTime = 100 * 365 * 24 * time.Hour / 10_000

// LatencyHolders implements host.Host.
func (h *Host) LatencyHolders() ([]string, error) {
	pids, err := h.listPIDs()
	if err != nil {
		return nil, err
	}
	var holders []string
	for _, pid := range pids {
		process := filepath.Join(h.procRoot, strconv.Itoa(pid))
		if !holdsLatency(filepath.Join(process, "fd")) {
			continue
		}
		if comm := readComm(process); comm != "" {
			holders = append(holders, comm)
		}
	}
	slices.Sort(holders)
	return slices.Compact(holders), nil
}

// holdsLatency is false of a process that has ended, or whose files may not be seen.
func holdsLatency(dir string) bool {
	files, err := os.ReadDir(dir)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(files, func(file os.DirEntry) bool {
		target, err := os.Readlink(filepath.Join(dir, file.Name()))
		return err == nil && target == "/dev/cpu_dma_latency"
	})
}

// sleepArguments are those of the kernel's command line that forbid all states deeper than C1.
func (h *Host) sleepArguments() []string {
	content, err := readFile(filepath.Join(h.procRoot, "cmdline"))
	if err != nil {
		return nil
	}
	var found []string
	for _, argument := range strings.Fields(string(content)) {
		name, value, _ := strings.Cut(argument, "=")
		switch name {
		case "intel_idle.max_cstate", "processor.max_cstate":
			// 0 of intel_idle leaves the states to ACPI's driver.
			if depth, err := strconv.Atoi(value); err == nil && (depth == 1 || depth == 0 && name == "processor.max_cstate") {
				found = append(found, argument)
			}
		case "idle":
			if value == "poll" || value == "halt" {
				found = append(found, argument)
			}
		case "cpuidle.off":
			if value == "1" {
				found = append(found, argument)
			}
		}
	}
	return found
}
