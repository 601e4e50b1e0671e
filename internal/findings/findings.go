// Package findings tells what wastes energy before any lever acts, from what nodes report and VMs
// ask for: no meter and no trial is needed, and nothing is ever changed.
package findings

import (
	"fmt"
	"slices"
	"strings"
	"time"

	virtv1 "kubevirt.io/api/core/v1"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// Node is what is known of a node.
type Node struct {
	Name   string
	Report *v1alpha1.NodeReportStatus
	// Watts that it draws, and their basis. Nil: not known.
	Watts *units.Watts
	Basis v1alpha1.Basis
}

// Found is a finding on one object. What of its cost is nil or 0 is not known.
type Found struct {
	Reason, Object, Message, Remedy string
	Watts                           *units.Watts
	Basis                           v1alpha1.Basis
	LostCores                       units.Cores
	ChangedBy                       v1alpha1.FindingOwner
}

const (
	// sleepShare of an idle host's power is what states cost that it never slept in: 12 of 42 W
	// at the wall of one host (Shea, 2016).
	sleepShare = 0.28
	// leastIdle is the least percentage of time without work in which sleep is judged, and
	// leastDeep that of it in deep states.
	leastIdle, leastDeep = 20, 1
	vhostNet             = "VhostNet"
	// manyVCPUs are worth a queue each once the thread of one queue is busy for fullQueue of its time.
	manyVCPUs, fullQueue = 4, 0.85
	// fastPackets a second would have a vhost thread switched in many times a second.
	fastPackets units.PacketsPerSecond = 1000
	// heavyWrites in bytes a second are beyond what logs of a guest cause.
	heavyWrites = 1 << 20
	// longestPoll is the longest of KVM's own values: 200 us of x86, 500 us of ARM.
	longestPoll = 500
)

// OfNode returns what was found on a node, none of a node whose agent has not reported.
func OfNode(n Node) []Found {
	if n.Report == nil {
		return nil
	}
	var out []Found
	add := func(reason, message, remedy string, watts *units.Watts, basis v1alpha1.Basis) {
		out = append(out, Found{
			Reason: reason, Object: "Node/" + n.Name, Message: message, Remedy: remedy, Watts: watts, Basis: basis,
			ChangedBy: v1alpha1.FindingOwnerClusterAdmin,
		})
	}
	if reason, message, remedy, idle := judgeSleep(n.Report); reason != "" {
		if n.Watts != nil {
			cost := units.Watts(sleepShare * idle * float64(*n.Watts))
			add(reason, message, remedy, &cost, v1alpha1.BasisModelled)
		} else {
			add(reason, message, remedy, nil, "")
		}
	}
	if c := n.Report.Topology.Clocks; c != nil && c.Governor == "performance" {
		add(v1alpha1.ReasonFixedClock, fmt.Sprintf("governor performance asks for %d MHz whatever the load", c.HighestMegahertz),
			"set the governor schedutil (powersave with intel_pstate), as by cpupower frequency-set -g", nil, "")
	}
	for _, c := range n.Report.Capabilities {
		if c.Name == vhostNet && !c.Available && n.Report.VMs > 0 {
			add(v1alpha1.ReasonVhostMissing, c.Message+": QEMU moves each packet of VMs itself", "modprobe vhost_net, and a file in /etc/modules-load.d", nil, "")
		}
	}
	if message, remedy := judgeWriters(n.Report.OtherWriters); message != "" && n.Report.VMs > 0 {
		add(v1alpha1.ReasonOtherWriter, message, remedy, nil, "")
	}
	if polling := n.Report.PollingThreads; polling > 0 {
		add(v1alpha1.ReasonPollingThreads, fmt.Sprintf("%d threads of DPDK keep a CPU busy each, with or without work", polling),
			"of Open vSwitch 3.2 and newer: ovs-vsctl set Open_vSwitch . other_config:pmd-sleep-max=100; else fewer polling cores, or DPDK's power management of queues", nil, "")
	}
	if s := n.Report.Sleep; s != nil && s.HaltPollMicroseconds > longestPoll && n.Report.VMs > 0 {
		add(v1alpha1.ReasonHaltPolling, fmt.Sprintf("each time a vCPU has no work, KVM has its CPU poll for up to %d us before it may sleep", s.HaltPollMicroseconds),
			"remove halt_poll_ns of module kvm from /etc/modprobe.d and the kernel's command line: the kernel's own value is 200 us, of ARM 500 us", nil, "")
	}
	if n.Report.VMs == 0 && n.Watts != nil {
		add(v1alpha1.ReasonIdleNode, "has no VM",
			"allow spec.hostPower in the EnergyPolicy, or power the host off", n.Watts, n.Basis)
	}
	return out
}

// judgeWriters says what other programs do to the CPUs of VMs, and what to change. No message: there are
// none.
func judgeWriters(commands []string) (message, remedy string) {
	var does, change []string
	for _, w := range []struct{ command, does, change string }{
		{"irqbalance", "irqbalance moves interrupts between CPUs", "have irqbalance leave the CPUs of network VMs (IRQBALANCE_BANNED_CPULIST)"},
		{"nri-resource-po", "a resource policy of NRI sets the cpusets of containers", "annotate VMs' pods with cpu.preserve.resource-policy.nri.io"},
		{"numad", "numad moves processes between memory nodes", "end numad"},
		{"tuned", "tuned may set threads' CPUs and idle states", "leave pods out of tuned's profile ([scheduler] cgroup_ps_blacklist=/kubepods)"},
	} {
		if slices.Contains(commands, w.command) {
			does, change = append(does, w.does), append(change, w.change)
		}
	}
	return strings.Join(does, ", "), strings.Join(change, "; ")
}

// judgeSleep says why the CPUs of a node sleep in shallow states only, which share of their time
// they have no work, and what to change. No reason: they do not, have work, or it is not known. A hypervisor
// decides about a nested node's.
func judgeSleep(report *v1alpha1.NodeReportStatus) (reason, message, remedy string, idle float64) {
	s := report.Sleep
	if s == nil || report.Topology.Nested {
		return "", "", "", 0
	}
	var all, deep int32
	var deeper, disabled, shallow []string
	for _, state := range s.States {
		all += state.Percent
		switch {
		case model.IsShallowState(state.Name):
			shallow = append(shallow, fmt.Sprintf("%s %d %%", state.Name, state.Percent))
			continue
		case state.Disabled:
			disabled = append(disabled, state.Name)
		}
		deeper = append(deeper, state.Name)
		deep += state.Percent
	}
	if all < leastIdle || deep*100 >= leastDeep*all {
		return "", "", "", 0
	}
	idle = float64(min(all, 100)) / 100
	message = fmt.Sprintf("CPUs have no work for %d %% of their time, and spend it in %s", all, strings.Join(shallow, ", "))
	switch {
	case len(s.KernelArguments) > 0:
		return v1alpha1.ReasonSleepArguments, message, "remove " + strings.Join(s.KernelArguments, " ") + " from the kernel's command line", idle
	case len(deeper) == 0 && !slices.ContainsFunc(s.States, func(state v1alpha1.IdleState) bool { return strings.HasPrefix(state.Name, "C1") }):
		return "", "", "", 0 // ARM's kernels know what the firmware names, which may be all that there is
	case len(deeper) == 0:
		return v1alpha1.ReasonSleepMissing, message + ": the kernel knows no deeper state", "enable C-states (C6) in the firmware's settings", idle
	case len(disabled) == len(deeper):
		return v1alpha1.ReasonSleepDisabled, message + "; disabled: " + strings.Join(disabled, ", "),
			"write 0 to /sys/devices/system/cpu/cpu*/cpuidle/state*/disable, or end what writes 1, as tuned and cpupower do", idle
	case len(s.HeldBy) > 0:
		return v1alpha1.ReasonSleepHeld, message + ", never in " + strings.Join(deeper, ", "),
			"have " + strings.Join(s.HeldBy, ", ") + " close /dev/cpu_dma_latency; of tuned, choose a profile without force_latency, such as balanced", idle
	}
	return v1alpha1.ReasonSleepShallow, message + ", never in " + strings.Join(deeper, ", "),
		"look for what wakes the CPUs, with powertop or turbostat", idle
}

// OfVM returns what was found of a VM that has been idle for some time, on a node with a report. report
// and rates are nil while the node's agent is not heard.
func OfVM(vmi *virtv1.VirtualMachineInstance, report *v1alpha1.NodeReportStatus, rates *model.VMRates, idle time.Duration) []Found {
	object := "VirtualMachineInstance/" + vmi.Namespace + "/" + vmi.Name
	var cards, disks []string
	for i := range vmi.Spec.Domain.Devices.Interfaces {
		if card := &vmi.Spec.Domain.Devices.Interfaces[i]; IsEmulatedCard(card) {
			cards = append(cards, card.Name+" is an "+card.Model)
		}
	}
	for i := range vmi.Spec.Domain.Devices.Disks {
		if disk := &vmi.Spec.Domain.Devices.Disks[i]; IsEmulatedDisk(disk) {
			disks = append(disks, disk.Name+" is at bus "+string(disk.Disk.Bus))
		}
	}
	var out []Found
	add := func(reason, message, remedy string) {
		out = append(out, Found{Reason: reason, Object: object, Message: message, Remedy: remedy, ChangedBy: v1alpha1.FindingOwnerVMOwner})
	}
	if len(cards) > 0 {
		add(v1alpha1.ReasonEmulatedCard, strings.Join(cards, ", ")+": about twice the cycles a byte of virtio",
			"spec.template.spec.domain.devices.interfaces[].model: virtio")
	}
	if len(disks) > 0 {
		add(v1alpha1.ReasonEmulatedDisk, strings.Join(disks, ", ")+": each request leaves the guest several times",
			"spec.template.spec.domain.devices.disks[].disk.bus: virtio")
	}
	if rates == nil {
		return out
	}
	if queues := vmi.Spec.Domain.Devices.NetworkInterfaceMultiQueue; (queues == nil || !*queues) && len(rates.VCPUs) >= manyVCPUs && rates.Vhost.RunCores >= fullQueue*units.Cores(max(1, len(rates.Taps))) {
		add(v1alpha1.ReasonOneQueue, fmt.Sprintf("each card of %d vCPUs has one queue, whose thread has hardly any time left", len(rates.VCPUs)),
			"spec.template.spec.domain.devices.networkInterfaceMultiqueue: true")
	}
	if hasVhost(report) && len(cards) == 0 && rates.Vhost == (model.ThreadRates{}) && rates.Traffic().PacketsPerSecond >= fastPackets {
		add(v1alpha1.ReasonVhostUnused, "QEMU moves each packet itself, although the node has vhost_net now", "restart the VM: QEMU opens vhost when it starts")
	}
	if local := LocalVolumes(&vmi.Spec); rates.WrittenBytesPerSecond >= heavyWrites && len(local) > 0 {
		var names []string
		for i := range local {
			names = append(names, local[i].Name)
		}
		add(v1alpha1.ReasonLocalDisk, fmt.Sprintf("wrote %.1f MB/s to %s: a file on the node's own disk, which ends with the pod", rates.WrittenBytesPerSecond/1e6, strings.Join(names, ", ")),
			"spec.template.spec.volumes[]: a dataVolume, best with volumeMode: Block")
	}
	if days := int(idle.Hours() / 24); days > 0 {
		var mebibytes uint64
		for _, onNode := range rates.MemoryMiB {
			mebibytes += onNode
		}
		add(v1alpha1.ReasonIdleVM, fmt.Sprintf("%d vCPUs and %.1f GiB did nothing for %d days", len(rates.VCPUs), float64(mebibytes)/1024, days),
			"spec.runStrategy: Halted, if nobody needs it")
		out[len(out)-1].Watts, out[len(out)-1].Basis = rates.Watts, v1alpha1.BasisModelled
	}
	return out
}

func hasVhost(report *v1alpha1.NodeReportStatus) bool {
	return report != nil && slices.ContainsFunc(report.Capabilities, func(c v1alpha1.Capability) bool { return c.Name == vhostNet && c.Available })
}

// IsEmulatedCard is true of cards whose registers QEMU plays: all models of KubeVirt but virtio.
func IsEmulatedCard(card *virtv1.Interface) bool {
	switch card.Model {
	case "e1000", "e1000e", "igb", "ne2k_pci", "pcnet", "rtl8139":
		return true
	}
	return false
}

// IsEmulatedDisk is true of disks whose controller QEMU plays. CD-ROMs are read at boot.
func IsEmulatedDisk(disk *virtv1.Disk) bool {
	return disk.Disk != nil && (disk.Disk.Bus == virtv1.DiskBusSATA || disk.Disk.Bus == "ide")
}

// LocalVolumes are the volumes that a VM writes to files of its pod for. None of a VM that has other
// volumes to write to: which of them it writes to cannot be told.
func LocalVolumes(spec *virtv1.VirtualMachineInstanceSpec) []virtv1.Volume {
	var local []virtv1.Volume
	for i := range spec.Volumes {
		v := &spec.Volumes[i]
		switch {
		case v.ContainerDisk != nil, v.EmptyDisk != nil, v.Ephemeral != nil:
			local = append(local, *v)
		case v.PersistentVolumeClaim != nil, v.DataVolume != nil, v.HostDisk != nil:
			return nil
		}
	}
	return local
}

// OfProfile returns the VMs of a profile that their own CPU limit throttles, by node.
func OfProfile(profile *v1alpha1.VMNetworkProfile) map[string][]Found {
	out := map[string][]Found{}
	for _, vm := range profile.Status.DisturbedVMs {
		if vm.Reason != v1alpha1.CauseOwnLimit {
			continue
		}
		out[vm.Node] = append(out[vm.Node], Found{
			Reason: v1alpha1.ReasonCPULimit, Object: "VirtualMachineInstance/" + profile.Namespace + "/" + vm.Name,
			Message: vm.Message, LostCores: units.Cores(vm.LostCores.Float()), ChangedBy: v1alpha1.FindingOwnerVMOwner,
			Remedy: "spec.template.spec.domain.resources.limits.cpu: raise it by a CPU, or remove it; or the quota of the namespace that sets it",
		})
	}
	return out
}
