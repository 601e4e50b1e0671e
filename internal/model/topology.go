package model

import (
	"strings"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/units"
)

// Core is one physical core.
type Core struct {
	// CPUs are the core's siblings: never empty.
	CPUs units.CPUSet
	// Package, NUMANode and LLC number what the core is in. LLC is the
	// last-level cache.
	Package, NUMANode, LLC int
	// Class of the core. Empty: the node's cores are all alike.
	Class v1alpha1.CoreClass
}

// Clocks are how fast a node's CPUs may run.
type Clocks struct {
	// Governor is what the kernel sets them by, such as "schedutil".
	Governor string
	// FollowLoad is true when a CPU that is used more runs faster.
	FollowLoad bool
	// Lowest and Highest are what the governor may ask for, Highest while one core works.
	// Base is what all cores reach at once; 0: not known.
	Lowest, Highest, Base units.Megahertz
}

// NIC is a network card and where its interrupts are handled.
type NIC struct {
	// NUMANode that the card is attached to.
	NUMANode int
	// CPUs that handle interrupts of its queues.
	CPUs units.CPUSet
}

// Topology is the shape of a node's CPUs.
type Topology struct {
	// Cores are the online physical cores, in the order of their lowest CPU.
	// No two share a CPU.
	Cores []Core
	// Isolated CPUs are kept free by the kernel (isolcpus). Only the node's agent knows them.
	Isolated units.CPUSet
	// Taken CPUs are those that somebody else decides about, so that no VM is bound to them:
	// Isolated, reserved by the kubelet for the system (reservedSystemCPUs), or given to
	// single containers by its CPU manager.
	Taken units.CPUSet
	// DeepestIdle is the name of the deepest state that the first CPU may sleep in, such as
	// "C6". Empty: not known.
	DeepestIdle string
	// Clocks of the first CPU. Zero: not known.
	Clocks Clocks
	// NICs in the order of their names: those with interrupts of their own.
	NICs []NIC
	// Nested is true when the node is itself a VM.
	Nested bool
	// CPUModel is the processor's name.
	CPUModel string
}

// Programs are programs of a node beside VMs that the energy or the levers depend on, as far as
// their names tell.
type Programs struct {
	// OtherWriters are the commands of processes that place threads or interrupts on CPUs too; each
	// once, in order.
	OtherWriters []string
	// PollingThreads of DPDK, each of which keeps a CPU busy, with or without work.
	PollingThreads int
}

// Sleep is how the CPUs of a node slept in the last minute, and who forbids that.
type Sleep struct {
	// States, the shallowest first.
	States []SleepState
	// HeldBy are the commands of processes that hold /dev/cpu_dma_latency, looked for while the
	// sleep is shallow.
	HeldBy []string
	// HaltPoll is for how long KVM has a CPU poll at most before it may sleep.
	HaltPoll time.Duration
}

// SleepState is a state that CPUs sleep in.
type SleepState struct {
	Name string
	// Share of the time of all CPUs, from 0 to 1.
	Share    float64
	Disabled bool
}

// IsShallowState is true of states in which a CPU only stops: POLL does not even that. C1 of x86 and
// WFI of ARM keep its caches and its voltage.
func IsShallowState(name string) bool {
	return name == "POLL" || name == "WFI" || strings.HasPrefix(name, "C1") && name != "C10"
}

// IsShallow returns true if the CPUs have work for less than four fifths of their time, and sleep in
// shallow states for the rest, although there are deeper ones.
func (s *Sleep) IsShallow() bool {
	const leastIdle, leastDeep = 0.2, 0.01
	idle, deep, deeper := 0.0, 0.0, false
	for _, state := range s.States {
		idle += state.Share
		if !IsShallowState(state.Name) {
			deeper = true
			deep += state.Share
		}
	}
	return deeper && idle >= leastIdle && deep < leastDeep*idle
}

// Online returns all CPUs of all cores.
func (t Topology) Online() units.CPUSet {
	var all units.CPUSet
	for _, core := range t.Cores {
		all = all.Union(core.CPUs)
	}
	return all
}

// PoolCores are the cores of a node's two pools: whole physical cores that share no
// CPU. Both are empty when the pools share their cores.
type PoolCores struct {
	Network, Compute units.CPUSet
}

// Shared reports whether the pools share their cores.
func (c PoolCores) Shared() bool { return c.Network.IsEmpty() }

// Equal reports whether the pools have the same cores.
func (c PoolCores) Equal(o PoolCores) bool {
	return c.Network.Equal(o.Network) && c.Compute.Equal(o.Compute)
}

// PowerCosts are what a node's dynamic power is made of, and what affinity changes
// of it: the planner weighs plans by them. power.Coefficients holds the same terms.
type PowerCosts struct {
	PerBusyCore  units.Watts
	PerWakeUp    units.Joules
	PerAwakeCore units.Watts
	// Pinned and Separated are the shares of the dynamic power of a VM's threads
	// that are saved by binding each of its vCPUs to one core, or all to a part of
	// the cores, against running anywhere: from 0 to 1.
	Pinned, Separated float64
}
