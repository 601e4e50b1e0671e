package launcher

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	removeDeadline = 10 * time.Second
	removePoll     = 5 * time.Millisecond
)

// containerProcesses lists the processes of the cgroup names by host PID. Every
// hierarchy has the same ones; a cgroup that is gone has none.
func containerProcesses(hierarchies []hierarchy, names []string) ([]int, error) {
	dir := filepath.Join(hierarchies[0].mount, filepath.Join(names...))
	return cgroupProcesses(dir)
}

func cgroupProcesses(dir string) ([]int, error) {
	content, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the processes of a pod: %w", err)
	}
	var pids []int
	for _, field := range strings.Fields(string(content)) {
		pid, err := strconv.Atoi(field)
		if err != nil {
			return nil, fmt.Errorf("process list of %s: %w", dir, err)
		}
		pids = append(pids, pid)
	}
	return pids, nil
}

// removeCgroup ends what still runs in the container's cgroup and removes it in
// every hierarchy, then each parent that this package created and that nothing
// uses. Cgroups without createdMark are left alone. Doing it again is harmless.
func removeCgroup(ctx context.Context, hierarchies []hierarchy, names []string) error {
	var problems []error
	for _, h := range hierarchies {
		problems = append(problems, h.remove(ctx, names))
	}
	return errors.Join(problems...)
}

func (h hierarchy) remove(ctx context.Context, names []string) error {
	for depth := len(names); depth > 0; depth-- {
		dir := filepath.Join(h.mount, filepath.Join(names[:depth]...))
		if created, err := wasCreatedHere(dir); err != nil {
			return err
		} else if !created {
			continue
		}
		if depth == len(names) {
			if err := empty(ctx, dir); err != nil {
				return err
			}
			continue
		}
		err := os.Remove(dir)
		inUse := errors.Is(err, unix.EBUSY) || errors.Is(err, unix.ENOTEMPTY)
		if err != nil && !inUse && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove cgroup %s: %w", dir, err)
		}
	}
	return h.weighClass(names)
}

func wasCreatedHere(dir string) (bool, error) {
	_, err := unix.Getxattr(dir, createdMark, nil)
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, unix.ENODATA), errors.Is(err, unix.ENOENT):
		return false, nil
	default:
		return false, fmt.Errorf("look whether cgroup %s was created here: %w", dir, err)
	}
}

// empty kills the processes in dir and removes it. The kernel refuses for a
// moment after the last process has ended, so it is tried until ctx is done.
func empty(ctx context.Context, dir string) error {
	tick := time.NewTicker(removePoll)
	defer tick.Stop()
	for {
		pids, err := cgroupProcesses(dir)
		if err != nil {
			return err
		}
		for _, pid := range pids {
			// ESRCH: it ended in between.
			if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("kill process %d of cgroup %s: %w", pid, dir, err)
			}
		}
		err = os.Remove(dir)
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("remove cgroup %s (processes %v): %w", dir, pids, err)
		}
	}
}
