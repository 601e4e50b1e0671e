package sample

import (
	"time"

	"github.com/joulevirt/joulevirt/internal/host"
)

const (
	// factsEvery is how long facts of a VM's cgroups are taken for true: they change
	// seldom, and cost more to read than all of its counters.
	factsEvery = 10 * time.Second
	// backlogFor is how long a tap's backlog is told after it was looked at. A host
	// looks more often while there is traffic.
	backlogFor = 30 * time.Second
)

// slow is what is known of a VM for longer than a round.
type slow struct {
	cgroup host.CgroupFacts
	// due is when the facts are to be read again; zero: never read.
	due      time.Time
	backlogs map[string]backlog
	// drops of buffered taps.
	drops map[string]drops
}

type backlog struct {
	bytes uint64
	at    time.Time
}

// addSlow completes a VM with what is read in some rounds only.
func (s *Sampler) addSlow(vm *VM) {
	past := s.slow[vm.Process]
	if past == nil {
		past = &slow{backlogs: map[string]backlog{}}
	}
	s.seen[vm.Process] = past
	if !vm.At.Before(past.due) {
		s.readFacts(vm, past)
	}
	vm.Cgroup = past.cgroup
	for _, tap := range vm.Sample.Taps {
		if tap.Backlog != nil {
			past.backlogs[tap.Name] = backlog{bytes: *tap.Backlog, at: vm.At}
		}
	}
	for name, last := range past.backlogs {
		if vm.At.Sub(last.at) >= backlogFor {
			delete(past.backlogs, name)
			continue
		}
		if vm.Backlogs == nil {
			vm.Backlogs = map[string]uint64{}
		}
		vm.Backlogs[name] = last.bytes
	}
}

// readFacts spreads the VMs over the time until they are read again. What cannot be
// read now is kept as it was.
func (s *Sampler) readFacts(vm *VM, past *slow) {
	wait := factsEvery
	if past.due.IsZero() {
		wait = time.Second * time.Duration(1+vm.Process.PID%int(factsEvery/time.Second))
	}
	past.due = vm.At.Add(wait)
	if facts, err := s.host.Cgroup(vm.Process); err == nil {
		past.cgroup = facts
	}
}
