package model

import (
	"time"

	"github.com/joulevirt/joulevirt/internal/units"
)

// Tuning is what was seen of one VM's packets with each window of buffering, and of
// VMs like it. The zero value: nothing yet.
type Tuning struct {
	// Trials in the order of their windows, 0 first; none twice.
	Trials []Trial
	// Hurts are the windows that cost VMs of the same profile their service, in the
	// order of the windows, until when that is remembered.
	Hurts []Hurt
	// Since is when the window in force was set, by the manager's clock. Zero: not known.
	Since time.Time
}

// Trial is what was seen of a VM while one window was in force and packets came fast
// enough to be held: means over Seconds.
type Trial struct {
	Window  time.Duration
	Seconds float64
	// Packets of both directions, and the share of those towards the VM that were lost on
	// the node.
	PacketsPerSecond units.PacketsPerSecond
	BitsPerSecond    units.BitsPerSecond
	DropShare        float64
	// WakeUpsPerPacket of the VM's threads, and CoresPerPacket that they used.
	WakeUpsPerPacket float64
	CoresPerPacket   float64
}

// Hurt is a window that was seen to cost service.
type Hurt struct {
	Window time.Duration
	Until  time.Time
	// Why names the sign, in words.
	Why string
}
