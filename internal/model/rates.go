// Package model holds what the planner sees and what it decides, as pure
// data: no Kubernetes types, no I/O. NodeRates is also the body of an agent's
// /v1/rates.
package model

import (
	"time"

	"github.com/joulevirt/joulevirt/internal/units"
)

// NodeRates is one round of an agent's samples of its node. It is immutable
// once published.
type NodeRates struct {
	// Node is the Kubernetes name of the node.
	Node string `json:"node"`
	// Time is when the round ended.
	Time time.Time `json:"time"`
	// IntervalSeconds is the time that the rates are means over.
	IntervalSeconds float64 `json:"intervalSeconds"`
	// CPUs has an entry for each online logical CPU.
	CPUs []CPURates `json:"cpus"`
	// VMs has an entry for each VM whose QEMU process was found.
	VMs []VMRates `json:"vms"`
	// Power is the newest that the agent knows itself, by a meter or a model. Nil:
	// nothing yet. It may be of an earlier round.
	Power *Power `json:"power,omitempty"`
	// PowerMessage says why the power is not measured. Empty: it is.
	PowerMessage string `json:"powerMessage,omitempty"`
	// Totals since the agent's start. Nil: the agent does not count.
	Totals *Totals `json:"totals,omitempty"`
	// Switches of levers that are on a schedule.
	Switches []Switch `json:"switches,omitempty"`
	// Trips of the agent's guard that are remembered, newest first.
	Trips []Trip `json:"trips,omitempty"`
}

// CPURates is the use of one logical CPU by everything on the node.
type CPURates struct {
	CPU int `json:"cpu"`
	// BusyCores is 1 when the CPU never idled. Time stolen by a hypervisor is
	// not busy.
	BusyCores units.Cores `json:"busyCores"`
	// StealCores is the share of time that a hypervisor took.
	StealCores units.Cores `json:"stealCores"`
}

// VMRates is what one VM did.
type VMRates struct {
	PodUID    string `json:"podUID"`
	Namespace string `json:"namespace"`
	// Name is that of the VirtualMachineInstance.
	Name string `json:"name"`
	// Dedicated is true when KubeVirt gave the VM CPUs of its own: it is left
	// alone.
	Dedicated bool `json:"dedicated,omitempty"`
	// AllowedCPUs is the effective cpuset of the VM's container.
	AllowedCPUs units.CPUSet `json:"allowedCPUs"`
	// Weight of the VM's pod among the pods of the node, in cpu.shares: 1024 is the
	// request of one CPU. 0: not known.
	Weight float64 `json:"weight,omitempty"`
	// Limit is what the CPU limit of the VM's pod took from it. Nil: there is none.
	Limit *LimitRates `json:"limit,omitempty"`
	// MemoryMiB is the VM's memory by NUMA node, from node 0 on. None: not known.
	MemoryMiB []uint64 `json:"memoryMiB,omitempty"`
	// WrittenBytesPerSecond to storage by the VM's process, over half a minute. 0 also when it is
	// not known.
	WrittenBytesPerSecond units.PerSecond `json:"writtenBytesPerSecond,omitempty"`
	// VCPUs are in the order of their index, which may have gaps.
	VCPUs []VCPURates `json:"vcpus"`
	// Emulator is QEMU's main thread.
	Emulator ThreadRates `json:"emulator"`
	// IOThreads is the sum of QEMU's IO threads.
	IOThreads ThreadRates `json:"ioThreads"`
	// Vhost is the sum of the VM's vhost workers.
	Vhost ThreadRates `json:"vhost"`
	// Other is the sum of all other threads of QEMU.
	Other ThreadRates `json:"other"`
	// Taps are the VM's network devices on the host.
	Taps []TapRates `json:"taps,omitempty"`
	// Buffering of the VM's packets. Nil: the agent holds none of them.
	Buffering *BufferingRates `json:"buffering,omitempty"`
	// Sent is what the VM sends on average, over many rounds. Nil: not known yet.
	Sent *Sent `json:"sent,omitempty"`
	// Watts is the VM's share of the node's dynamic power. It ranks VMs; it does
	// not judge savings. Nil: not known.
	Watts *units.Watts `json:"watts,omitempty"`
}

// LimitRates are the effect of a CPU limit (limits.cpu: a quota of the pod's or container's cgroup).
// All threads of the VM are below it, also those that carry its packets.
type LimitRates struct {
	// Cores is the limit.
	Cores units.Cores `json:"cores"`
	// ThrottledShare is the share of the periods in which the limit was used up, from 0 to 1.
	ThrottledShare float64 `json:"throttledShare"`
	// WaitCores is the time that run queues stood still for it, summed over CPUs. The threads'
	// WaitCores are without.
	WaitCores units.Cores `json:"waitCores"`
}

// ThreadRates is the use of CPU by one or several threads.
type ThreadRates struct {
	// RunCores is CPU time used.
	RunCores units.Cores `json:"runCores"`
	// WaitCores is time spent runnable without a CPU, on this host: the steal
	// that the guest sees, but for what the VM's own CPU limit explains.
	WaitCores units.Cores `json:"waitCores"`
	// SwitchesPerSecond counts how often the threads were switched in.
	SwitchesPerSecond units.PerSecond `json:"switchesPerSecond"`
}

// VCPURates is what one vCPU did.
type VCPURates struct {
	Index int `json:"vcpu"`
	ThreadRates
	// CPUs that the vCPU's thread may run on now.
	CPUs units.CPUSet `json:"cpus"`
}

// TapRates is the traffic of one tap, named from the VM's point of view.
type TapRates struct {
	// Name of the tap in the pod's network namespace.
	Name string `json:"name"`
	// ToVM is traffic that the VM receives.
	ToVM TrafficRates `json:"toVM"`
	// FromVM is traffic that the VM sends.
	FromVM TrafficRates `json:"fromVM"`
	// BacklogBytes wait in front of the tap for the VM. Nil: not looked at.
	BacklogBytes *uint64 `json:"backlogBytes,omitempty"`
}

// TrafficRates is traffic in one direction.
type TrafficRates struct {
	BitsPerSecond    units.BitsPerSecond    `json:"bitsPerSecond"`
	PacketsPerSecond units.PacketsPerSecond `json:"packetsPerSecond"`
	DropsPerSecond   units.PacketsPerSecond `json:"dropsPerSecond"`
}

// Sent is what a VM sends, as a mean over a time long enough for traffic that
// takes turns.
type Sent struct {
	BitsPerSecond units.BitsPerSecond `json:"bitsPerSecond"`
	// Seconds that it is the mean over.
	Seconds float64 `json:"seconds"`
}

// VM returns the rates of the VM of a launcher pod, or nil. Nil rates have none.
func (r *NodeRates) VM(podUID string) *VMRates {
	if r == nil {
		return nil
	}
	for i := range r.VMs {
		if r.VMs[i].PodUID == podUID {
			return &r.VMs[i]
		}
	}
	return nil
}

// Demand is the most CPU time that the threads may have wanted: what they ran and what
// they waited. It is an upper bound, which threads that starve come near to; threads that
// wait on CPUs with time to spare would run no more, see Lack.
func (t ThreadRates) Demand() units.Cores { return t.RunCores + t.WaitCores }

// Demand is the most that all the VM's threads may have wanted, see ThreadRates.Demand.
func (v *VMRates) Demand() units.Cores {
	demand := v.Emulator.Demand() + v.IOThreads.Demand() + v.Vhost.Demand() + v.Other.Demand()
	for _, vcpu := range v.VCPUs {
		demand += vcpu.Demand()
	}
	return demand
}

// Busy returns the CPU time that all the VM's threads used.
func (v *VMRates) Busy() units.Cores {
	busy := v.Emulator.RunCores + v.IOThreads.RunCores + v.Vhost.RunCores + v.Other.RunCores
	for _, vcpu := range v.VCPUs {
		busy += vcpu.RunCores
	}
	return busy
}

// WakeUps returns how often the VM's threads were switched in.
func (v *VMRates) WakeUps() units.PerSecond {
	sum := v.Emulator.SwitchesPerSecond + v.IOThreads.SwitchesPerSecond + v.Vhost.SwitchesPerSecond + v.Other.SwitchesPerSecond
	for _, vcpu := range v.VCPUs {
		sum += vcpu.SwitchesPerSecond
	}
	return sum
}

// Traffic returns the sum over the VM's taps, both directions together.
func (v *VMRates) Traffic() TrafficRates {
	var sum TrafficRates
	for _, tap := range v.Taps {
		for _, way := range []TrafficRates{tap.ToVM, tap.FromVM} {
			sum.BitsPerSecond += way.BitsPerSecond
			sum.PacketsPerSecond += way.PacketsPerSecond
			sum.DropsPerSecond += way.DropsPerSecond
		}
	}
	return sum
}
