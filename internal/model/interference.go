package model

import (
	"time"

	"github.com/joulevirt/joulevirt/internal/units"
)

// Interference says what keeps a VM from its network work.
type Interference string

// The verdicts.
const (
	// InterferenceUnknown: the VM was not seen for long enough.
	InterferenceUnknown Interference = ""
	// InterferenceStable: nothing does.
	InterferenceStable Interference = "Stable"
	// InterferenceCoRunner: other work on the same cores does.
	InterferenceCoRunner Interference = "CoRunner"
	// InterferenceSelf: the VM's own computing does.
	InterferenceSelf Interference = "Self"
)

// Evidence is one sign of interference.
type Evidence struct {
	// Sign that was seen.
	Sign Sign
	// Value that was seen, and Limit from which it counts, in the sign's unit.
	Value, Limit float64
}

// Sign is something that is measured of a VM.
type Sign string

// The signs of interference.
const (
	// SignSteal is the time that a vCPU was runnable without running, in percent of
	// one CPU: the mean over the VM's vCPUs.
	SignSteal Sign = "Steal"
	// SignRunQueueWait is the same of the threads that move the VM's packets (vhost,
	// IO threads, emulator), in percent of one CPU.
	SignRunQueueWait Sign = "RunQueueWait"
	// SignDrops is packets towards the VM that its taps dropped, per million.
	SignDrops Sign = "Drops"
	// SignBacklog is the bytes that wait in front of the VM's taps.
	SignBacklog Sign = "Backlog"
	// SignThroughput is the VM's traffic in percent of its own baseline: it counts
	// below its limit.
	SignThroughput Sign = "Throughput"
	// SignOwnUse is the use of the busiest vCPU by the VM itself, in percent of one
	// CPU.
	SignOwnUse Sign = "OwnUse"
)

// Disturbance is what an interference detector says of a VM.
type Disturbance struct {
	Verdict Interference
	// Heavy is true when steal is at a level at which the VM had better run on
	// another node.
	Heavy bool
	// Since is when the verdict became this one.
	Since time.Time
	// Evidence for the verdict, in the order of the signs. None for Stable.
	Evidence []Evidence
}

// Pool is the kind of work that a VM shares its cores with.
type Pool string

// The pools.
const (
	// PoolNone: the VM is in neither pool.
	PoolNone Pool = ""
	// PoolNetwork has VMs whose packets must not wait for somebody's time slice.
	PoolNetwork Pool = "Network"
	// PoolCompute has all others.
	PoolCompute Pool = "Compute"
)

// PoolCores are the cores of a node's two pools: whole physical cores that share no
// CPU. Both are empty when the pools share their cores.
type PoolCores struct {
	Network, Compute units.CPUSet
}

// Shared tells whether the pools share their cores.
func (c PoolCores) Shared() bool { return c.Network.IsEmpty() }

// Equal tells whether the pools have the same cores.
func (c PoolCores) Equal(o PoolCores) bool {
	return c.Network.Equal(o.Network) && c.Compute.Equal(o.Compute)
}

// SiblingSharing says whose vCPUs may be bound to one physical core with siblings.
type SiblingSharing string

// The kinds of sharing, from none to any.
const (
	ShareWithinVM        SiblingSharing = "SameVM"
	ShareWithinNamespace SiblingSharing = "SameNamespace"
	ShareAny             SiblingSharing = "Any"
)

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
