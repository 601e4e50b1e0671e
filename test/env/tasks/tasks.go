// Package tasks reads where the threads of a process may run, and their slices,
// from the kernel.
package tasks

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// Thread is a thread of a process as taskset and the kernel tell it.
type Thread struct {
	ID int
	// Name is the kernel's, such as CPU 0/TCG.
	Name string
	// CPUs that it may run on, as taskset prints them.
	CPUs string
	// Slice of the scheduler, as the kernel reports it: its own default is not marked
	// as such.
	Slice time.Duration
}

// DefaultSlice is the slice of a thread that nobody gave one.
func DefaultSlice() (time.Duration, error) { return sliceOf(os.Getpid()) }

// sliceOf asks the kernel for a thread's slice.
func sliceOf(tid int) (time.Duration, error) {
	attr, err := unix.SchedGetAttr(tid, 0)
	if err != nil {
		return 0, fmt.Errorf("scheduling of thread %d: %w", tid, err)
	}
	return time.Duration(attr.Runtime), nil
}

// Threads asks taskset where the threads of a process may run, and the kernel for
// their slices. Threads that end meanwhile are left out.
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
		slice, err := sliceOf(id)
		if err != nil {
			continue
		}
		threads = append(threads, Thread{ID: id, Name: name, CPUs: fields[len(fields)-1], Slice: slice})
	}
	return threads, nil
}
