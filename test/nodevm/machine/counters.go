package machine

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/joulevirt/joulevirt/test/nodevm/load"
	"github.com/joulevirt/joulevirt/test/nodevm/wire"
)

// ticksPerSecond of CPU times in /proc: USER_HZ.
const ticksPerSecond = 100

// ReadCounters reads those of every machine. What events are counted by is read beside the
// clock: on a busy machine the other files take longer than what is measured.
func ReadCounters() (wire.Counters, error) {
	c := wire.Counters{Interrupts: map[string]uint64{}, Softirqs: map[string]uint64{}}
	interrupts, err := os.ReadFile("/proc/interrupts")
	if err != nil {
		return c, err
	}
	c.At = load.Clock()
	for line := range strings.Lines(string(interrupts)) {
		fields := strings.Fields(line)
		if len(fields) < 3 {
			continue
		}
		// Such as "virtio0-input.0".
		if _, queue, ok := strings.Cut(fields[len(fields)-1], "-"); ok && strings.HasPrefix(fields[len(fields)-1], "virtio") {
			name, _, _ := strings.Cut(queue, ".")
			c.Interrupts[name] += sum(fields[1:])
		}
	}
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return c, err
	}
	for line := range strings.Lines(string(stat)) {
		fields := strings.Fields(line)
		switch {
		case len(fields) > 8 && fields[0] == "cpu":
			busy := sum(fields[1:9]) - sum(fields[4:6]) // without idle and waiting
			c.Busy = float64(busy) / ticksPerSecond
		case len(fields) == 2 && fields[0] == "ctxt":
			c.Switches = sum(fields[1:])
		}
	}
	softirqs, err := os.ReadFile("/proc/softirqs")
	if err != nil {
		return c, err
	}
	for line := range strings.Lines(string(softirqs)) {
		if name, counts, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			c.Softirqs[name] = sum(strings.Fields(counts))
		}
	}
	return c, nil
}

// sum adds numbers up to the first that is none.
func sum(fields []string) uint64 {
	var total uint64
	for _, field := range fields {
		n, err := strconv.ParseUint(field, 10, 64)
		if err != nil {
			break
		}
		total += n
	}
	return total
}

// ReadThreads adds what the threads of a process used to what is there by their names.
func ReadThreads(pid int, into map[string]wire.Thread) error {
	root := fmt.Sprintf("/proc/%d/task", pid)
	tasks, err := os.ReadDir(root)
	if err != nil {
		return err
	}
	for _, task := range tasks {
		name, thread, err := readThread(root + "/" + task.Name())
		if os.IsNotExist(err) {
			continue // it ended meanwhile
		}
		if err != nil {
			return err
		}
		all := into[name]
		all.Seconds += thread.Seconds
		all.Switches += thread.Switches
		into[name] = all
	}
	return nil
}

func readThread(folder string) (string, wire.Thread, error) {
	stat, err := os.ReadFile(folder + "/stat")
	if err != nil {
		return "", wire.Thread{}, err
	}
	open, end := strings.IndexByte(string(stat), '('), strings.LastIndexByte(string(stat), ')')
	if open < 0 || end < open {
		return "", wire.Thread{}, fmt.Errorf("%s/stat is %q", folder, stat)
	}
	name, fields := string(stat[open+1:end]), strings.Fields(string(stat[end+1:]))
	const userAt, systemAt = 11, 12
	if len(fields) <= systemAt {
		return "", wire.Thread{}, fmt.Errorf("%s/stat is %q", folder, stat)
	}
	thread := wire.Thread{Seconds: float64(sum(fields[userAt:systemAt+1])) / ticksPerSecond}
	status, err := os.ReadFile(folder + "/status")
	if err != nil {
		return "", wire.Thread{}, err
	}
	for line := range strings.Lines(string(status)) {
		if _, count, ok := strings.Cut(line, "voluntary_ctxt_switches:"); ok {
			thread.Switches += sum(strings.Fields(count))
		}
	}
	return name, thread, nil
}
