package linux

import (
	"bytes"
	"cmp"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
)

const (
	maxIdleStates = 16 // the kernel has at most 10
	maxIdleName   = 32
	// pollState is no sleep: the CPU runs in a loop.
	pollState = "POLL"
	// maxIdleTime keeps what drivers write for "never" within bounds.
	maxIdleTime = time.Minute
)

// idleStates lists the states that a CPU may sleep in, the shallowest first. States
// that somebody disabled are left out.
func (h *Host) idleStates(cpu int) []model.IdleState {
	dirs, err := filepath.Glob(h.cpuFile(cpuPath(cpu, "cpuidle/state[0-9]*")))
	if err != nil {
		return nil
	}
	index := func(dir string) int {
		n, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(dir), "state"))
		if err != nil {
			return len(dirs)
		}
		return n
	}
	slices.SortFunc(dirs, func(x, y string) int { return cmp.Compare(index(x), index(y)) })
	var states []model.IdleState
	for _, dir := range dirs[:min(len(dirs), maxIdleStates)] {
		if state, ok := idleState(dir); ok {
			states = append(states, state)
		}
	}
	return states
}

func idleState(dir string) (model.IdleState, bool) {
	content, err := readFile(filepath.Join(dir, "name"))
	name := string(bytes.TrimSpace(content))
	if err != nil || name == "" || len(name) > maxIdleName || name == pollState {
		return model.IdleState{}, false
	}
	if disabled, ok := readInt(filepath.Join(dir, "disable")); ok && disabled != 0 {
		return model.IdleState{}, false
	}
	latency, ok := readMicroseconds(filepath.Join(dir, "latency"))
	if !ok {
		return model.IdleState{}, false
	}
	// The residency is missing before Linux 4.18 and on some drivers: it then counts as 0.
	residency, _ := readMicroseconds(filepath.Join(dir, "residency"))
	return model.IdleState{Name: name, ExitLatency: latency, TargetResidency: residency}, true
}

func readMicroseconds(path string) (time.Duration, bool) {
	n, ok := readInt(path)
	if !ok || n < 0 {
		return 0, false
	}
	return time.Duration(min(n, int(maxIdleTime/time.Microsecond))) * time.Microsecond, true
}
