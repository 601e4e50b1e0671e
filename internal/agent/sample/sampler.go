// Package sample turns two rounds of counters into rates. Reading the
// counters (Sampler) and computing with them (Rates) are apart.
package sample

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/utils/clock"

	"github.com/joulevirt/joulevirt/internal/agent/discover"
	"github.com/joulevirt/joulevirt/internal/energy/powercap"
	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/units"
)

// VM is one VM with its counters at one moment.
type VM struct {
	discover.VM
	// Unread says why the VM, which runs, could not be read: then no more is known of it.
	Unread error
	// At is when its counters were read.
	At     time.Time
	Sample host.ProcessSample
	// Cgroup is some seconds old at most.
	Cgroup host.CgroupFacts
	// WriteRate in bytes a second to storage, between the last two times that Cgroup was read.
	WriteRate units.PerSecond
	// Backlogs are the bytes that wait in front of taps, by tap, as they were when
	// read last. One that was not read for long is missing.
	Backlogs map[string]uint64
	// Buffered taps, or why they could not be read.
	Buffered    []host.BufferSample
	BufferedErr error
	// DropRates of the queues in front of buffered taps, by tap: between the last two times
	// that they were read. One that was not read for long is missing.
	DropRates map[string]units.PacketsPerSecond
}

// Round is the counters of the whole node, read one after the other.
// It is immutable.
type Round struct {
	At   time.Time
	CPUs []host.CPUTimes
	// Energy is read right after the CPU times, because power is explained by
	// them. That it fails is no failure of the round: many nodes have no counters.
	Energy powercap.Counters
	// VMs whose processes could be read.
	VMs []VM
	// Unread are VMs that run and whose processes could not be read.
	Unread []VM
}

// All returns the VMs, the unread ones last.
func (r *Round) All() []VM {
	if len(r.Unread) == 0 {
		return r.VMs
	}
	return slices.Concat(r.VMs, r.Unread)
}

// Sampler reads counters of a node. It is used by one goroutine at a time.
type Sampler struct {
	host  host.Host
	clock clock.PassiveClock
	// known is what is known of VMs from earlier rounds, and seen that of those that
	// are in the present one.
	known, seen map[host.TaskID]*memory
}

// New returns a Sampler.
func New(h host.Host, c clock.PassiveClock) *Sampler { return &Sampler{host: h, clock: c} }

// Read makes a Round. What fails for one VM fails for it alone: the Round is
// valid also when an error is returned, which joins the failures. It is nil
// when not even the processes could be listed.
func (s *Sampler) Read(inventory *discover.Inventory) (*Round, error) {
	round := &Round{At: s.clock.Now()}
	var failures []error
	cpus, err := s.host.CPUTimes()
	if err != nil {
		failures = append(failures, err)
	}
	round.CPUs = cpus
	round.Energy.Time = s.clock.Now()
	round.Energy.Zones, round.Energy.Err = s.host.EnergyZones()
	processes, err := s.host.Processes()
	if err != nil {
		return nil, errors.Join(append(failures, err)...)
	}
	vms := discover.All(processes, inventory)
	round.VMs = make([]VM, 0, len(vms))
	s.seen = make(map[host.TaskID]*memory, len(vms))
	defer func() { s.known = s.seen }()
	for _, vm := range vms {
		one, err := s.readVM(vm)
		if errors.Is(err, host.ErrGone) {
			continue // it ended since it was listed
		}
		if err != nil {
			failures = append(failures, fmt.Errorf("VM %s/%s: %w", vm.Namespace, vm.Name, err))
			round.Unread = append(round.Unread, VM{VM: vm, Unread: err})
			continue
		}
		round.VMs = append(round.VMs, one)
		for _, err := range []error{one.Sample.CpusetErr, one.Sample.TapsErr, one.BufferedErr} {
			if err != nil && !errors.Is(err, host.ErrGone) {
				failures = append(failures, fmt.Errorf("VM %s/%s: %w", vm.Namespace, vm.Name, err))
			}
		}
	}
	return round, errors.Join(failures...)
}

func (s *Sampler) readVM(vm discover.VM) (VM, error) {
	one := VM{VM: vm, At: s.clock.Now()}
	var err error
	if one.Sample, err = s.host.Sample(vm.Process); err != nil {
		return VM{}, err
	}
	one.Buffered, one.BufferedErr = s.host.Buffered(vm.Process)
	s.remember(&one)
	return one, nil
}
