// Package pools sorts a node's VMs into those whose packets must not wait and all
// others, and decides which cores and which scheduler slices each pool has.
package pools

import (
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// Slices of the two pools. The published remedy (Shea 2016, ch. 4) gave everybody 1 ms on the cores
// of network VMs, saturating neighbours included, and 30 ms on cores that compute VMs had for
// themselves: long slices beside network VMs are the disease.
const (
	NetworkSlice = time.Millisecond
	ComputeSlice = 30 * time.Millisecond
)

// SliceOf returns the slice of a pool's threads, which share cores with a network VM or do not. 0 is
// the kernel's own.
func SliceOf(pool v1alpha1.Pool, withNetwork bool) time.Duration {
	switch {
	case pool == v1alpha1.PoolNone:
		return 0
	case pool == v1alpha1.PoolNetwork || withNetwork:
		return NetworkSlice
	}
	return ComputeSlice
}

// VM is what the pools are made by.
type VM struct {
	Rates *model.VMRates
	Class v1alpha1.TrafficClass
	// Preference of the VM's owner.
	Preference v1alpha1.PoolPreference
	// Current pool. A VM changes its pool only when it clearly behaves otherwise.
	Current v1alpha1.Pool
	// Disturbance of the VM, as far as it is known.
	Disturbance v1alpha1.Cause
	// Confinable is true when the VM's threads may be bound to CPUs.
	Confinable bool
}

// Member is a VM and the pool that it counts to.
type Member struct {
	VM
	Pool v1alpha1.Pool
}

// Node is the cores that the pools are made of.
type Node struct {
	Topology model.Topology
	// Excluded CPUs take no pins, nor do their siblings.
	Excluded units.CPUSet
	// CPUs is the measured use of each logical CPU.
	CPUs []model.CPURates
	// MaxCoreUtilization per sibling CPU: from 0 to 1.
	MaxCoreUtilization units.Cores
	// Settled nodes' divisions only grow, or end when they must.
	Settled bool
	// Current cores of the pools. Both empty: they share theirs.
	Current Cores
}

// Cores are those of the two pools.
type Cores = model.PoolCores
