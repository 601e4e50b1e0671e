package stack

import (
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"strings"

	"github.com/prometheus/procfs"
)

// Thread is a thread of a process as taskset and the kernel tell it.
type Thread struct {
	ID int
	// Name is the kernel's, such as CPU 0/TCG.
	Name string
	// CPUs that it may run on, as taskset prints them.
	CPUs string
}

// Threads asks taskset where the threads of a process may run. Threads that
// end meanwhile are left out.
func Threads(ctx context.Context, pid int) ([]Thread, error) {
	out, err := exec.CommandContext(ctx, "taskset", "--all-tasks", "--cpu-list", "--pid", strconv.Itoa(pid)).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("taskset of process %d: %w: %s", pid, err, out)
	}
	kernel, err := procfs.NewDefaultFS()
	if err != nil {
		return nil, err
	}
	var threads []Thread
	for line := range strings.Lines(string(out)) {
		// pid 123's current affinity list: 0,1
		fields := strings.Fields(line)
		if len(fields) < 6 || fields[0] != "pid" {
			return nil, fmt.Errorf("taskset of process %d printed %q", pid, line)
		}
		id, err := strconv.Atoi(strings.TrimSuffix(fields[1], "'s"))
		if err != nil {
			return nil, fmt.Errorf("taskset of process %d printed %q: %w", pid, line, err)
		}
		thread, err := kernel.Thread(pid, id)
		if err != nil {
			continue
		}
		name, err := thread.Comm()
		if err != nil {
			continue
		}
		threads = append(threads, Thread{ID: id, Name: name, CPUs: fields[len(fields)-1]})
	}
	return threads, nil
}
