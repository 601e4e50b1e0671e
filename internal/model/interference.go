package model

import (
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/units"
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
	// SignThrottled is the part of the periods in which the VM's CPU limit was used up, in percent.
	SignThrottled Sign = "Throttled"
	// SignOutweighed is the part of what others run on the VM's CPUs that is run by VMs with at
	// least twice its weight for each vCPU, in percent.
	SignOutweighed Sign = "Outweighed"
	// SignSteal is the time that the vCPU that waits most was runnable without running, in percent
	// of one CPU, without what the VM's CPU limit explains.
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
	Verdict v1alpha1.Cause
	// Heavy is true when steal is at a level at which the VM had better run on
	// another node.
	Heavy bool
	// Since is when the verdict became this one.
	Since time.Time
	// Evidence for the verdict, in the order of the signs. None for Stable.
	Evidence []Evidence
	// Limit on the VM's CPUs, in cores. 0: none.
	Limit units.Cores
	// Lost is the CPU time that the VM's threads wanted and did not get, by cause.
	Lost []Loss
}

// Loss is CPU time that a VM wanted and did not get, in CPU-seconds each second.
type Loss struct {
	Cause v1alpha1.Cause
	Cores units.Cores
}
