package model

import (
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
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
	Verdict v1alpha1.Interference
	// Heavy is true when steal is at a level at which the VM had better run on
	// another node.
	Heavy bool
	// Since is when the verdict became this one.
	Since time.Time
	// Evidence for the verdict, in the order of the signs. None for Stable.
	Evidence []Evidence
}
