package model

import (
	"time"

	"github.com/joulevirt/joulevirt/internal/units"
)

// CoreClass tells what a core was built for.
type CoreClass string

// The classes of cores. On most machines all cores are alike, and have none.
const (
	CorePerformance CoreClass = "Performance"
	CoreEfficiency  CoreClass = "Efficiency"
)

// Core is one physical core.
type Core struct {
	// CPUs are the core's siblings: never empty.
	CPUs units.CPUSet
	// Package, NUMANode and LLC number what the core is in. LLC is the
	// last-level cache.
	Package, NUMANode, LLC int
	// Class of the core. Empty: the node's cores are all alike.
	Class CoreClass
}

// IdleState is a state that an idle CPU may sleep in.
type IdleState struct {
	// Name that the kernel has for the state, such as "C6".
	Name string
	// ExitLatency is how long a CPU needs to leave the state, and TargetResidency
	// how long it must stay for the state to save energy.
	ExitLatency, TargetResidency time.Duration
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
	// Name of the network device on the node.
	Name string
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
	// Isolated CPUs are kept free by the kernel (isolcpus).
	Isolated units.CPUSet
	// Exclusive CPUs were given to single containers by kubelet's CPU manager.
	Exclusive units.CPUSet
	// Reserved CPUs are kept for the system by the kubelet (reservedSystemCPUs).
	Reserved units.CPUSet
	// IdleStates of the first CPU, the shallowest first. None: not known.
	IdleStates []IdleState
	// Clocks of the first CPU. Zero: not known.
	Clocks Clocks
	// NICs in the order of their names: those with interrupts of their own.
	NICs []NIC
	// Nested is true when the node is itself a VM.
	Nested bool
	// CPUModel is the processor's name.
	CPUModel string
}

// Online returns all CPUs of all cores.
func (t Topology) Online() units.CPUSet {
	var all units.CPUSet
	for _, core := range t.Cores {
		all = all.Union(core.CPUs)
	}
	return all
}

// Taken returns the CPUs that somebody else decides about: no VM is bound to them.
func (t Topology) Taken() units.CPUSet {
	return t.Isolated.Union(t.Exclusive).Union(t.Reserved)
}
