package sample

import (
	"errors"
	"fmt"
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
	// At is when its counters were read.
	At time.Time
	// Cpuset is the effective cpuset of its container. Empty when it could not
	// be read, and then CpusetErr says why.
	Cpuset    units.CPUSet
	CpusetErr error
	Sample    host.ProcessSample
	// Cgroup is some seconds old at most.
	Cgroup host.CgroupFacts
	// Backlogs are the bytes that wait in front of taps, by tap, as they were when
	// looked at last. One that was not looked at for long is missing.
	Backlogs map[string]uint64
	// Buffered taps, or why they could not be read.
	Buffered    []host.BufferSample
	BufferedErr error
	// DropRates of the queues in front of buffered taps, by tap: between the two times
	// that they were looked at last. One that was not looked at for long is missing.
	DropRates map[string]units.PacketsPerSecond
}

// UnreadVM is a VM that runs and whose process could not be read.
type UnreadVM struct {
	discover.VM
	Err error
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
	Unread []UnreadVM
	// Unknown counts the processes that run a VM which is not known, by why.
	Unknown map[discover.Verdict]int
}

// Sampler reads counters of a node. It is used by one goroutine at a time.
type Sampler struct {
	host  host.Host
	clock clock.PassiveClock
	// slow is what is known of VMs from earlier rounds, and seen that of those that
	// are in the present one.
	slow, seen map[host.TaskID]*slow
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
	vms, unknown := discover.All(processes, inventory)
	round.Unknown = unknown
	s.seen = make(map[host.TaskID]*slow, len(vms))
	defer func() { s.slow = s.seen }()
	for _, vm := range vms {
		one, err := s.readVM(vm)
		if errors.Is(err, host.ErrGone) {
			continue // it ended since it was listed
		}
		if err != nil {
			failures = append(failures, fmt.Errorf("VM %s/%s: %w", vm.Namespace, vm.Name, err))
			round.Unread = append(round.Unread, UnreadVM{VM: vm, Err: err})
			continue
		}
		round.VMs = append(round.VMs, one)
		for _, err := range []error{one.CpusetErr, one.Sample.TapsErr, one.BufferedErr} {
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
	one.Cpuset, one.CpusetErr = s.host.Cpuset(vm.Process)
	s.addSlow(&one)
	s.addBuffered(&one)
	return one, nil
}
