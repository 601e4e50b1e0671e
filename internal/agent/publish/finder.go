package publish

import (
	"errors"
	"fmt"
	"time"

	"k8s.io/utils/clock"

	"github.com/joulevirt/joulevirt/internal/agent/sample"
	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/units"
)

const (
	// topologyInterval is how long a topology is taken for true: CPUs are seldom
	// taken off line.
	topologyInterval = time.Minute
	// powerInterval is the time that power is a mean over, at least.
	powerInterval = 10 * time.Second
)

// Finder collects what a report is made of. It is used by one goroutine.
type Finder struct {
	host  host.Host
	clock clock.PassiveClock
	board *Board
	found Findings

	topologyAt time.Time
	zones      []host.EnergyZone
	zonesAt    time.Time
}

// NewFinder returns the Finder of a node. constant holds the findings that do
// not change: version, address, facts.
func NewFinder(h host.Host, c clock.PassiveClock, board *Board, constant Findings) (*Finder, error) {
	f := &Finder{host: h, clock: c, board: board, found: constant}
	var err error
	if f.found.Topology, err = h.Topology(); err != nil {
		return nil, err
	}
	f.topologyAt = c.Now()
	return f, nil
}

// Find returns false while there is nothing to report.
func (f *Finder) Find() (Findings, bool) {
	now := f.clock.Now()
	if now.Sub(f.topologyAt) >= topologyInterval {
		f.topologyAt = now
		// A failure keeps the last one: CPUs come and go while it is read.
		if topology, err := f.host.Topology(); err == nil {
			f.found.Topology = topology
		}
	}
	f.measure(now)
	f.found.State = f.board.Latest()
	return f.found, f.found.State != nil && f.found.State.Synced
}

// measure computes the power of the last interval, once that is over.
func (f *Finder) measure(now time.Time) {
	if now.Sub(f.zonesAt) < powerInterval {
		return
	}
	zones, err := f.host.EnergyZones()
	switch {
	case errors.Is(err, host.ErrUnsupported) && f.found.Topology.Nested:
		f.found.Watts, f.found.NoMeter = nil, "the node is a VM, and a VM has no energy counters"
	case errors.Is(err, host.ErrUnsupported):
		f.found.Watts, f.found.NoMeter = nil, "no energy counters in /sys/class/powercap: load the module for the processor, such as intel_rapl_msr"
	case err != nil:
		f.found.Watts, f.found.NoMeter = nil, fmt.Sprintf("energy counters cannot be read: %v", err)
	default:
		f.found.Watts, f.found.NoMeter = power(f.zones, zones, now.Sub(f.zonesAt)), ""
	}
	f.zones, f.zonesAt = zones, now
}

func power(previous, current []host.EnergyZone, elapsed time.Duration) *units.Watts {
	if watts, known := sample.Watts(previous, current, elapsed); known {
		return &watts
	}
	return nil
}
