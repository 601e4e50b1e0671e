package model

import "github.com/joulevirt/joulevirt/internal/units"

// Core is one physical core.
type Core struct {
	// CPUs are the core's siblings: never empty.
	CPUs units.CPUSet
	// Package, NUMANode and LLC number what the core is in. LLC is the
	// last-level cache.
	Package, NUMANode, LLC int
}

// Topology is the shape of a node's CPUs.
type Topology struct {
	// Cores are the online physical cores, in the order of their lowest CPU.
	// No two share a CPU.
	Cores []Core
	// Isolated CPUs are kept free by the kernel (isolcpus).
	Isolated units.CPUSet
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
