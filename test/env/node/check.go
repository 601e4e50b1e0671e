package node

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/joulevirt/joulevirt/test/env/node/internal/sandbox"
)

// capabilities are what a node takes of this process. CAP_SYS_RESOURCE is not
// among them: containerd restricts OOM scores instead.
func capabilities() map[int]string {
	return map[int]string{
		unix.CAP_SYS_ADMIN:    "CAP_SYS_ADMIN: namespaces, mounts and cgroups",
		unix.CAP_NET_ADMIN:    "CAP_NET_ADMIN: links, routes and Services' rules",
		unix.CAP_MKNOD:        "CAP_MKNOD: a /dev of the node's own, and containers' devices",
		unix.CAP_SYS_CHROOT:   "CAP_SYS_CHROOT: containers' root folders",
		unix.CAP_SYS_PTRACE:   "CAP_SYS_PTRACE: virt-handler reads other processes' mounts",
		unix.CAP_DAC_OVERRIDE: "CAP_DAC_OVERRIDE: files of containers' users",
		unix.CAP_CHOWN:        "CAP_CHOWN: files of containers' users",
		unix.CAP_SETUID:       "CAP_SETUID: containers' users",
		unix.CAP_SETGID:       "CAP_SETGID: containers' users",
		unix.CAP_SETFCAP:      "CAP_SETFCAP: virt-launcher's file capability, when its image is unpacked",
		unix.CAP_SETPCAP:      "CAP_SETPCAP: containers' capabilities",
		unix.CAP_KILL:         "CAP_KILL: the end of containers",
		unix.CAP_BPF:          "CAP_BPF: the agent's programs",
	}
}

// check returns this machine's cgroup hierarchies, or all that a node lacks here.
func check() ([]sandbox.Hierarchy, error) {
	var problems []error
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return nil, fmt.Errorf("read this process's capabilities: %w", err)
	}
	problems = append(problems, checkCapabilities(string(status)))
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return nil, fmt.Errorf("read this machine's mounts: %w", err)
	}
	hierarchies, err := sandbox.ReadHierarchies(string(mounts), func() ([]byte, error) {
		return os.ReadFile("/sys/fs/cgroup/cgroup.controllers")
	})
	problems = append(problems, err)
	return hierarchies, errors.Join(problems...)
}

// checkCapabilities reads the text of /proc/self/status.
func checkCapabilities(status string) error {
	for line := range strings.Lines(status) {
		value, found := strings.CutPrefix(line, "CapEff:")
		if !found {
			continue
		}
		effective, err := strconv.ParseUint(strings.TrimSpace(value), 16, 64)
		if err != nil {
			return fmt.Errorf("read this process's capabilities: %w", err)
		}
		var missing []string
		for number := range 64 {
			if why, needed := capabilities()[number]; needed && effective&(1<<number) == 0 {
				missing = append(missing, why)
			}
		}
		if len(missing) > 0 {
			return fmt.Errorf("missing capabilities: run as root, in a container with --privileged:\n  %s", strings.Join(missing, "\n  "))
		}
		return nil
	}
	return errors.New("/proc/self/status has no CapEff")
}
