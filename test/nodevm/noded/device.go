package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"

	"github.com/joulevirt/joulevirt/internal/datapath/bpf"
	"github.com/joulevirt/joulevirt/test/nodevm/machine"
	"github.com/joulevirt/joulevirt/test/nodevm/wire"
)

const (
	pinRoot = "/sys/fs/bpf"
	kvmRoot = "/sys/kernel/debug/kvm"
)

// Device tells what is on the VM's tap.
func (n *Node) Device(_ wire.None, device *wire.Device) error {
	err := n.network.in(n.network.pod, func() error {
		link, err := netlink.LinkByName(wire.Tap)
		if err != nil {
			return err
		}
		queues, err := netlink.QdiscList(link)
		if err != nil {
			return err
		}
		for _, q := range queues {
			device.Queues = append(device.Queues, fmt.Sprintf("%s %s parent %s", q.Type(),
				netlink.HandleStr(q.Attrs().Handle), netlink.HandleStr(q.Attrs().Parent)))
		}
		for _, parent := range []uint32{netlink.HANDLE_MIN_INGRESS, netlink.HANDLE_MIN_EGRESS} {
			filters, err := netlink.FilterList(link, parent)
			if err != nil {
				continue // there is no clsact to have any
			}
			for _, f := range filters {
				device.Filters = append(device.Filters, fmt.Sprintf("%s %v", f.Type(), f.Attrs()))
			}
		}
		device.RxFrames, err = machine.RxFrames(wire.Tap)
		return err
	})
	if err != nil {
		return fmt.Errorf("the tap: %w", err)
	}
	slices.Sort(device.Queues)
	return filepath.WalkDir(pinRoot, func(path string, _ fs.DirEntry, err error) error {
		if err == nil && path != pinRoot {
			device.Pins = append(device.Pins, path)
		}
		return err
	})
}

// Decided tells what became of packets towards the VM, by the programs that are pinned.
func (*Node) Decided(_ wire.None, decided *wire.Decided) error {
	pinned, err := filepath.Glob(filepath.Join(pinRoot, "joulevirt/*/program/buffering-*", bpf.JvMapJvState))
	if err != nil {
		return err
	}
	for _, path := range pinned {
		var state bpf.JvState
		states, err := ebpf.LoadPinnedMap(path, nil)
		if err == nil {
			err = errors.Join(states.Lookup(uint32(0), &state), states.Close())
		}
		if err != nil {
			return fmt.Errorf("counters of held packets: %w", err)
		}
		decided.Passed += state.Passed
		decided.Held += state.Held
	}
	return nil
}

// SetRxFrames sets how many packets the tap hands to the node at once.
func (n *Node) SetRxFrames(frames uint32, _ *wire.None) error {
	return n.network.in(n.network.pod, func() error { return machine.SetRxFrames(wire.Tap, frames) })
}

// Counters tells those of the node, and of the guest's process.
func (n *Node) Counters(_ wire.None, counters *wire.Counters) error {
	read, err := machine.ReadCounters()
	if err != nil {
		return err
	}
	read.KVM, read.Threads = map[string]uint64{}, map[string]wire.Thread{}
	files, err := os.ReadDir(kvmRoot)
	if err != nil {
		return fmt.Errorf("counters of KVM: %w", err)
	}
	for _, file := range files {
		content, err := os.ReadFile(filepath.Join(kvmRoot, file.Name()))
		if err != nil {
			continue // a folder, one for each VM
		}
		if value, err := strconv.ParseUint(strings.TrimSpace(string(content)), 10, 64); err == nil {
			read.KVM[file.Name()] = value
		}
	}
	if pid := n.guest.pid(); pid != 0 {
		if err := machine.ReadThreads(pid, read.Threads); err != nil {
			return err
		}
		if err := readWorkers(pid, read.Threads); err != nil {
			return err
		}
	}
	*counters = read
	return nil
}

// readWorkers adds the kernel's threads for the process, which are processes of their own.
func readWorkers(pid int, into map[string]wire.Thread) error {
	names, err := filepath.Glob("/proc/[0-9]*/comm")
	if err != nil {
		return err
	}
	for _, path := range names {
		name, err := os.ReadFile(path)
		if err != nil || strings.TrimSpace(string(name)) != fmt.Sprintf("vhost-%d", pid) {
			continue
		}
		worker, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil {
			return err
		}
		if err := machine.ReadThreads(worker, into); err != nil {
			return err
		}
	}
	return nil
}
