package sandbox

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// namespaces are the node's own.
const namespaces = unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWUTS |
	unix.CLONE_NEWIPC | unix.CLONE_NEWCGROUP

// Start starts the sandbox and returns an error when it has ended.
func Start(c Config) error {
	// The kernel kills the first process when the thread that forked it ends.
	runtime.LockOSThread()
	if err := c.createGroups(); err != nil {
		return err
	}
	// The root of a cgroup namespace is where its first process was made.
	if err := c.joinGroups(); err != nil {
		return err
	}
	ready, readied, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("make a pipe: %w", err)
	}
	first := exec.Command("/proc/self/exe", "init", filepath.Join(c.Dir, "config.json"))
	first.Stdout, first.Stderr = os.Stdout, os.Stderr
	first.ExtraFiles = []*os.File{readied}
	first.SysProcAttr = &syscall.SysProcAttr{Cloneflags: namespaces, Pdeathsig: syscall.SIGKILL}
	if err := first.Start(); err != nil {
		return fmt.Errorf("start the node's first process in namespaces of its own (that takes root with CAP_SYS_ADMIN): %w", err)
	}
	_ = readied.Close()
	// Only now: the first process was to be in the group itself.
	if err := c.enterGroups(); err != nil {
		return err
	}
	if n, _ := ready.Read(make([]byte, 1)); n == 1 {
		staged := c.pidFile() + ".tmp"
		if err := os.WriteFile(staged, []byte(strconv.Itoa(first.Process.Pid)), 0o644); err != nil {
			return fmt.Errorf("write the id of the node's first process: %w", err)
		}
		if err := os.Rename(staged, c.pidFile()); err != nil {
			return fmt.Errorf("write the id of the node's first process: %w", err)
		}
	}
	return fmt.Errorf("the node's first process ended: %w", first.Wait())
}

// Init is the first process of a sandbox: it makes the node's mounts, says on
// file 3 that they are there, and reaps orphans, such as containerd's shims.
func Init(c Config) error {
	if err := unix.Sethostname([]byte(c.HostName)); err != nil {
		return fmt.Errorf("set the node's host name: %w", err)
	}
	if err := c.mountAll(); err != nil {
		return err
	}
	ready := os.NewFile(3, "ready")
	if _, err := ready.Write([]byte{1}); err != nil {
		return fmt.Errorf("report that the node is ready: %w", err)
	}
	_ = ready.Close()
	reap()
	return nil
}

// reap waits for children, also those of others, for ever.
func reap() {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGCHLD)
	for range ended {
		for {
			pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil)
			if pid <= 0 && !errors.Is(err, unix.EINTR) {
				break
			}
		}
	}
}

// Enter becomes a program in the sandbox's namespaces and cgroups.
func Enter(c Config, program []string) error {
	if len(program) == 0 {
		return errors.New("no program to run in the node")
	}
	if c.Machine != nil {
		return c.Machine.enter(program)
	}
	first, err := c.PID()
	if err != nil {
		return err
	}
	if err := c.enterGroups(); err != nil {
		return err
	}
	const nsenter = "/usr/bin/nsenter"
	args := append([]string{nsenter, "--target=" + strconv.Itoa(first),
		"--mount", "--net", "--pid", "--uts", "--ipc", "--cgroup", "--wd=/", "--"}, program...)
	return fmt.Errorf("run %s (package util-linux): %w", nsenter, unix.Exec(nsenter, args, os.Environ()))
}
