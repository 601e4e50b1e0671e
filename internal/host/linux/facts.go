package linux

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/joulevirt/joulevirt/internal/host"
)

// Capabilities that Facts reports.
const (
	// CapabilityAffinity: threads of other users can be bound to CPUs.
	CapabilityAffinity = "Affinity"
	// CapabilityBuffering: packets towards VMs can be held and released in bunches.
	CapabilityBuffering = "Buffering"
	// CapabilityEnergyCounters: the node has energy counters of its own.
	CapabilityEnergyCounters = "EnergyCounters"
	// CapabilitySchedSlice: a thread's scheduler slice can be set.
	CapabilitySchedSlice = "SchedSlice"
	// CapabilityShaping: what VMs send can be bounded and held.
	CapabilityShaping = "Shaping"
	// CapabilityVhostNet: the kernel offers vhost to QEMU.
	CapabilityVhostNet = "VhostNet"
	// CapabilityWaitTimes: the kernel counts run and wait times of threads.
	CapabilityWaitTimes = "WaitTimes"
)

// Facts implements host.Host.
func (h *Host) Facts() (host.Facts, error) {
	boot, err := readFile(filepath.Join(h.procRoot, "sys/kernel/random/boot_id"))
	if err != nil {
		return host.Facts{}, fmt.Errorf("boot ID of the node: %w", err)
	}
	release, err := readFile(filepath.Join(h.procRoot, "sys/kernel/osrelease"))
	if err != nil {
		return host.Facts{}, fmt.Errorf("kernel release of the node: %w", err)
	}
	facts := host.Facts{
		BootID: strings.TrimSpace(string(boot)),
		Kernel: strings.TrimSpace(string(release)),
	}
	facts.SleepArguments = h.sleepArguments()
	facts.Capabilities = []host.Capability{
		capability(CapabilityAffinity, needs(unix.CAP_SYS_NICE, "CAP_SYS_NICE")),
		capability(CapabilityBuffering, h.missesBuffering()),
		capability(CapabilityEnergyCounters, h.energyCounters()),
		capability(CapabilitySchedSlice, errors.Join(h.schedExt(), probeSlice())),
		capability(CapabilityShaping, h.missesShaping()),
		capability(CapabilityVhostNet, h.vhostNet()),
		capability(CapabilityWaitTimes, h.waitTimes()),
	}
	return facts, nil
}

func capability(name string, missing error) host.Capability {
	if missing != nil {
		return host.Capability{Name: name, Message: missing.Error()}
	}
	return host.Capability{Name: name, Available: true}
}

// needs returns an error unless this process has a capability in effect.
func needs(bit int, name string) error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return fmt.Errorf("own capabilities: %w", err)
	}
	if data[bit/32].Effective&(1<<(bit%32)) == 0 {
		return fmt.Errorf("the agent lacks %s", name)
	}
	return nil
}

func (h *Host) vhostNet() error {
	if _, err := os.Stat(filepath.Join(h.sysRoot, "class/misc/vhost-net")); err != nil {
		return errors.New("module vhost_net is not loaded")
	}
	return nil
}

func (h *Host) waitTimes() error {
	content, err := readFile(filepath.Join(h.procRoot, "thread-self/schedstat"))
	if err != nil {
		return errors.New("no schedstat in /proc: the kernel is built without SCHED_INFO")
	}
	_, _, _, err = parseSchedstat(content)
	return err
}

// schedExt is an error while a scheduler is loaded that knows no slices of threads.
func (h *Host) schedExt() error {
	// Without the file the kernel has no such schedulers.
	state, _ := readFile(filepath.Join(h.sysRoot, "kernel/sched_ext/state"))
	if strings.TrimSpace(string(state)) != "enabled" {
		return nil
	}
	name, _ := readFile(filepath.Join(h.sysRoot, "kernel/sched_ext/root/ops"))
	return fmt.Errorf("the sched_ext scheduler %s is loaded, for which slices mean nothing", strings.TrimSpace(string(name)))
}

// probeSlice sets a slice on a thread of its own and reads it back: kernels that
// lack the feature ignore the value.
func probeSlice() error {
	const slice = 1_000_000 // nanoseconds; not a default of any kernel
	return onThread(func() error {
		attr := unix.SchedAttr{Size: unix.SizeofSchedAttr, Runtime: slice}
		if err := unix.SchedSetAttr(0, &attr, 0); err != nil {
			return fmt.Errorf("set a scheduler slice: %w", err)
		}
		got, err := unix.SchedGetAttr(0, 0)
		if err != nil {
			return fmt.Errorf("read a scheduler slice: %w", err)
		}
		if got.Runtime != slice {
			return errors.New("slices of threads need Linux 6.12")
		}
		return nil
	})
}
