package guard

import (
	"time"

	"github.com/joulevirt/joulevirt/internal/units"
)

// Round is what one round of samples showed.
type Round struct {
	Time time.Time
	// Over is the time that all rates are means over.
	Over time.Duration
	// Idle is the share of the time that each logical CPU idled, by its number; 0 of
	// those that do not take threads by themselves.
	Idle []float64
	// VMs that run on the node, also those of which nothing could be read.
	VMs []VM
}

// Setting is how a lever stood during a round.
type Setting int

// The settings.
const (
	// Unsure: it changed, or is not known. The round says nothing about the lever.
	Unsure Setting = iota
	// Off from begin to end.
	Off
	// On from begin to end.
	On
)

// VM is what a round showed of one VM.
type VM struct {
	PodUID, Namespace, Name string
	Affinity, Buffering     Setting
	// Cpuset is where the VM's container may run.
	Cpuset  units.CPUSet
	Threads []Thread
	// Packets towards the VM, of all its taps.
	Packets Packets
}

// Thread is one thread of a VM.
type Thread struct {
	// CPUs that it may run on.
	CPUs units.CPUSet
	// Run is CPU time used, Wait is time spent runnable without a CPU.
	Run, Wait units.Cores
}

// Packets are what became of a VM's packets. Buffering is on while any are held.
type Packets struct {
	// Handed to the VM's card, and Overrun: found no room there.
	Handed, Overrun units.PacketsPerSecond
	// Dropped by the queue in front of the taps. Nil: it was not looked at.
	Dropped *units.PacketsPerSecond
	// Backlog that waits now, in bytes. Nil: it was not looked at.
	Backlog *uint64
	// Bits of the packets that came, and the longest Window that they are held for.
	Bits   units.BitsPerSecond
	Window time.Duration
}
