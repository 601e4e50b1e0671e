package main

import (
	"os"
	"syscall"
)

// inCgroup starts a process in a cgroup.
func inCgroup(cgroup *os.File) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(cgroup.Fd())}
}
