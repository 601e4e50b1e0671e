package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// cgroupRoot is where stories get their cgroups: the hierarchy of pids of version 1, or that of
// version 2.
func cgroupRoot() (string, error) {
	for _, root := range []string{"/sys/fs/cgroup/pids", "/sys/fs/cgroup"} {
		if _, err := os.Stat(filepath.Join(root, "cgroup.procs")); err == nil {
			return root, nil
		}
	}
	return "", errors.New("no cgroup file system in /sys/fs/cgroup")
}

// sweep ends all processes in a story's cgroup and removes it.
func sweep(group string) error {
	for deadline := time.Now().Add(time.Minute); ; <-time.After(50 * time.Millisecond) {
		text, err := os.ReadFile(filepath.Join(group, "cgroup.procs"))
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		for _, word := range strings.Fields(string(text)) {
			if pid, err := strconv.Atoi(word); err == nil {
				_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended by itself
			}
		}
		if err = os.Remove(group); err == nil || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("cgroup of the last attempt: %w", err)
		}
	}
}
