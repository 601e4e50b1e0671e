package linux

import (
	"bytes"
	"path"
	"strings"
	"time"

	"github.com/joulevirt/joulevirt/internal/host"
)

// limit returns the tightest CPU limit from the process's cgroup to its pod's, in cores, and the
// file with its counters. 0: there is none, or it cannot be read.
func (t *cgroupTree) limit(cgroups string) (cores float64, stat string) {
	dir, err := t.find(cgroups, "cpu")
	if err != nil {
		return 0, ""
	}
	pod, ok := podOf(dir)
	if !ok {
		return 0, ""
	}
	for ; strings.HasPrefix(dir, pod); dir = path.Dir(dir) {
		if here := t.limitOf(dir); here > 0 && (cores == 0 || here < cores) {
			cores, stat = here, path.Join(dir, "cpu.stat")
		}
	}
	return cores, stat
}

// limitOf one cgroup, in cores. 0: none, or no limits are kept there.
func (t *cgroupTree) limitOf(dir string) float64 {
	var text []byte
	if t.unified {
		text, _ = t.read(path.Join(dir, "cpu.max")) // a cgroup without the controller has no such file
	} else {
		quota, _ := t.read(path.Join(dir, "cpu.cfs_quota_us"))
		period, _ := t.read(path.Join(dir, "cpu.cfs_period_us"))
		text = append(append(quota, ' '), period...)
	}
	fields := bytes.Fields(text)
	if len(fields) != 2 {
		return 0
	}
	quota, quotaErr := parseUint(fields[0]) // "max" and "-1": no limit
	period, periodErr := parseUint(fields[1])
	if quotaErr != nil || periodErr != nil || period == 0 {
		return 0
	}
	return float64(quota) / float64(period)
}

// throttling reads the counters of a limit. Nil: there are none.
func (t *cgroupTree) throttling(stat string) *host.Throttling {
	if stat == "" {
		return nil
	}
	text, err := t.read(stat)
	if err != nil {
		return nil
	}
	var out host.Throttling
	for line := range bytes.Lines(text) {
		fields := bytes.Fields(line)
		if len(fields) != 2 {
			continue
		}
		value, err := parseUint(fields[1])
		if err != nil {
			continue
		}
		switch string(fields[0]) {
		case "nr_periods":
			out.Periods = value
		case "nr_throttled":
			out.Throttled = value
		case "throttled_time": // version 1
			out.Time = time.Duration(min(value, maxNanoseconds))
		case "throttled_usec": // version 2
			out.Time = time.Duration(min(value, maxNanoseconds/1000)) * time.Microsecond
		}
	}
	return &out
}

// maxNanoseconds is the longest time.Duration.
const maxNanoseconds = 1<<63 - 1
