package linux

import (
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strconv"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/joulevirt/joulevirt/internal/host"
)

// inNetwork works in the network namespace of a process's pod: sockets that do
// makes belong there. It is on a thread of its own, which ends when it cannot
// come back.
func (h *Host) inNetwork(process host.TaskID, do func(*netlink.Handle) error) error {
	ns, err := h.openNetwork(process)
	if err != nil {
		return fmt.Errorf("network of process %d: %w", process.PID, err)
	}
	defer unix.Close(ns)
	enter := func() error {
		if err := unix.Setns(ns, unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter the network of process %d, which takes CAP_SYS_ADMIN: %w", process.PID, err)
		}
		return nil
	}
	return elsewhere(enter, func() error { return withNetlink(do) })
}

// ownNetwork is the agent's network namespace. It is the thread's: that of the
// process is its first thread's, which may be elsewhere at the moment.
const ownNetwork = "/proc/thread-self/ns/net"

// elsewhere works on a thread that enter takes to another network namespace,
// and that no other goroutine uses until it is back.
func elsewhere(enter, do func() error) error {
	result := make(chan error)
	go func() {
		runtime.LockOSThread()
		home, err := unix.Open(ownNetwork, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			result <- fmt.Errorf("the agent's own network: %w", err)
			return
		}
		defer unix.Close(home)
		if err = enter(); err == nil {
			err = do()
		}
		// A thread that stays locked ends with its goroutine.
		if unix.Setns(home, unix.CLONE_NEWNET) == nil {
			runtime.UnlockOSThread()
		}
		result <- err
	}()
	return <-result
}

// withNetlink gives do a handle of this thread's network namespace.
func withNetlink(do func(*netlink.Handle) error) error {
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("netlink socket: %w", err)
	}
	defer handle.Close()
	return do(handle)
}

// openNetwork opens the network namespace of a process, unless it is the node's
// own or the agent's: a VM's pod has one of its own, and what is done there must
// never reach the node.
func (h *Host) openNetwork(process host.TaskID) (int, error) {
	ns, err := unix.Open(filepath.Join(h.procRoot, strconv.Itoa(process.PID), "ns/net"), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, goneOr(err)
	}
	// Asked after the opening: a number given to a new process is seen.
	if err = h.check(process); err == nil {
		err = foreignTo(ns, filepath.Join(h.procRoot, "1/ns/net"), ownNetwork)
	}
	if err != nil {
		unix.Close(ns)
		return -1, err
	}
	return ns, nil
}

func foreignTo(ns int, others ...string) error {
	var is, other unix.Stat_t
	if err := unix.Fstat(ns, &is); err != nil {
		return err
	}
	for _, path := range others {
		err := unix.Stat(path, &other)
		if errors.Is(err, unix.EACCES) {
			continue // the first process is one of another user namespace
		}
		if err != nil {
			return err
		}
		if is.Ino == other.Ino && is.Dev == other.Dev {
			return fmt.Errorf("the VM has no network namespace of its own: %w", host.ErrUnsupported)
		}
	}
	return nil
}
