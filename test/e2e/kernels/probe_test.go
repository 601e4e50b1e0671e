//go:build e2e

package kernels

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/procfs"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/joulevirt/joulevirt/internal/host/linux"
	"github.com/joulevirt/joulevirt/test/datapathtest"
	"github.com/joulevirt/joulevirt/test/env/tasks"
)

// pinRoot is where the agent's programs are kept.
const pinRoot = "/sys/fs/bpf/joulevirt"

// TestMain makes the test's program one that is of use when a node runs it:
//
//	probe state PID      prints what the kernel says of the VM with this QEMU
//	probe send ADDRESS   sends datagrams for some seconds
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) != probeName {
		os.Exit(m.Run())
	}
	err := fmt.Errorf("unknown command %s", os.Args[1])
	switch os.Args[1] {
	case "state":
		var state kernelState
		if state, err = probe(os.Args[2]); err == nil {
			err = json.NewEncoder(os.Stdout).Encode(state)
		}
	case "send":
		err = send(os.Args[2])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// sendTime is how long send goes on: packets have to come fast for a second.
const sendTime = 3 * time.Second

// send sends small datagrams as fast as it can. On an emulated machine that is some thousand
// per second.
func send(address string) error {
	conn, err := net.Dial("udp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	for end := time.Now().Add(sendTime); time.Now().Before(end); {
		_, _ = conn.Write(make([]byte, 18)) // refused where nobody listens
	}
	return nil
}

const probeName = "probe"

// kernelState is what a node's kernel says of a VM.
type kernelState struct {
	// Threads of QEMU and of the kernel for it, and the slice of one that nobody changed.
	Threads      []tasks.Thread
	DefaultSlice int64
	// Links have queueing disciplines and filters, as text that is equal when they are.
	Links []string
	// Pins are the agent's.
	Pins []string
	// Passed and Held packets towards the VM.
	Passed, Held uint64
	// Shares are the weight of the VM's pod, as the agent reads it.
	Shares float64
}

// probe reads the state of the VM whose QEMU has the process id.
func probe(qemu string) (state kernelState, err error) {
	pid, err := strconv.Atoi(qemu)
	if err != nil {
		return state, err
	}
	byDefault, err := tasks.DefaultSlice()
	if err != nil {
		return state, err
	}
	state.DefaultSlice = byDefault.Nanoseconds()
	if state.Threads, err = threads(pid); err != nil {
		return state, err
	}
	if state.Links, err = links(pid); err != nil {
		return state, err
	}
	if state.Shares, err = shares(pid); err != nil {
		return state, err
	}
	err = filepath.WalkDir(pinRoot, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) { // of an agent that never was, or ends now
			return nil
		}
		if err == nil && !entry.IsDir() {
			state.Pins = append(state.Pins, path)
		}
		return err
	})
	var counters error
	state.Passed, state.Held, counters = datapathtest.CountHeld(filepath.Join(pinRoot, "*"))
	return state, errors.Join(err, counters)
}

// shares is the weight of the pod of a VM's process.
func shares(pid int) (float64, error) {
	h, err := linux.New(linux.Options{ProcRoot: "/proc", SysRoot: "/sys"})
	if err != nil {
		return 0, err
	}
	defer h.Close()
	processes, err := h.Processes()
	if err != nil {
		return 0, err
	}
	for _, process := range processes {
		if process.ID.PID == pid {
			facts, err := h.Cgroup(process.ID)
			return facts.Weight, err
		}
	}
	return 0, fmt.Errorf("process %d runs no VM", pid)
}

// threads are QEMU's and, before Linux 6.4, the kernel's worker for it, which is a process.
func threads(pid int) ([]tasks.Thread, error) {
	all, err := tasks.Threads(context.Background(), pid)
	if err != nil {
		return nil, err
	}
	processes, err := procfs.AllProcs()
	if err != nil {
		return nil, err
	}
	for _, process := range processes {
		if name, err := process.Comm(); err == nil && name == fmt.Sprintf("vhost-%d", pid) {
			workers, err := tasks.Threads(context.Background(), process.PID)
			if err != nil {
				return nil, err
			}
			all = append(all, workers...)
		}
	}
	return all, nil
}

// links reads those of the VM's pod.
func links(pid int) (found []string, err error) {
	runtime.LockOSThread() // the thread ends with this process
	space, err := netns.GetFromPid(pid)
	if err != nil {
		return nil, err
	}
	defer space.Close()
	if err := netns.Set(space); err != nil {
		return nil, err
	}
	all, err := netlink.LinkList()
	if err != nil {
		return nil, err
	}
	for _, link := range all {
		name := link.Attrs().Name
		queues, err := netlink.QdiscList(link)
		if err != nil {
			return nil, err
		}
		for _, q := range queues {
			found = append(found, fmt.Sprintf("%s: %s %s parent %s", name, q.Type(),
				netlink.HandleStr(q.Attrs().Handle), netlink.HandleStr(q.Attrs().Parent)))
		}
		for _, parent := range []uint32{netlink.HANDLE_MIN_INGRESS, netlink.HANDLE_MIN_EGRESS} {
			filters, err := netlink.FilterList(link, parent)
			if err != nil {
				continue // there is no clsact to have any
			}
			for _, f := range filters {
				found = append(found, fmt.Sprintf("%s: %s %v", name, f.Type(), f.Attrs()))
			}
		}
	}
	slices.Sort(found)
	return found, nil
}

// thread returns the thread whose name starts so.
func (s *kernelState) thread(prefix string) (tasks.Thread, error) {
	for _, t := range s.Threads {
		if strings.HasPrefix(t.Name, prefix) {
			return t, nil
		}
	}
	return tasks.Thread{}, fmt.Errorf("no thread %s among %+v", prefix, s.Threads)
}
