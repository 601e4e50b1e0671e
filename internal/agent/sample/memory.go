package sample

import (
	"maps"
	"time"

	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

const (
	// factsEvery is how often facts of a VM's cgroups are read: they change seldom, and cost
	// more to read than all of its counters.
	factsEvery = 30 * time.Second
	// tapFactsFor is for how long a tap's backlog and the rate of its queue's drops count after
	// they were read: a host reads them in some rounds only, more often while there is traffic.
	tapFactsFor = 30 * time.Second
)

// memory is what is known of a VM for longer than a round.
type memory struct {
	cgroup host.CgroupFacts
	// due is when the facts are to be read again; zero: never read.
	due time.Time
	// wrote is how many bytes a second the VM wrote between the last two readings.
	wrote units.PerSecond
	read  time.Time
	// backlogs and drops by tap.
	backlogs map[string]backlog
	drops    map[string]drops
}

type backlog struct {
	bytes uint64
	at    time.Time
}

// drops of one tap's queue.
type drops struct {
	count uint64
	at    time.Time
	// rate between the last two readings. Nil: there was one, or the counter started over.
	rate *units.PacketsPerSecond
}

// remember completes a VM with what is read in some rounds only.
func (s *Sampler) remember(vm *VM) {
	past := s.known[vm.Process]
	if past == nil {
		past = &memory{backlogs: map[string]backlog{}, drops: map[string]drops{}}
	}
	s.seen[vm.Process] = past
	if !vm.At.Before(past.due) {
		s.readFacts(vm, past)
	}
	vm.Cgroup, vm.WriteRate = past.cgroup, past.wrote
	for _, tap := range vm.Sample.Taps {
		if tap.Backlog != nil {
			past.backlogs[tap.Name] = backlog{bytes: *tap.Backlog, at: vm.At}
		}
	}
	maps.DeleteFunc(past.backlogs, func(_ string, last backlog) bool { return vm.At.Sub(last.at) >= tapFactsFor })
	if len(past.backlogs) > 0 {
		vm.Backlogs = make(map[string]uint64, len(past.backlogs))
	}
	for name, last := range past.backlogs {
		vm.Backlogs[name] = last.bytes
	}
	past.rememberDrops(vm)
}

// rememberDrops adds the drops of the VM's buffered taps, and completes the VM with their rates.
func (m *memory) rememberDrops(vm *VM) {
	for i := range vm.Buffered {
		now := vm.Buffered[i].Drops
		if now == nil {
			continue
		}
		name := vm.Buffered[i].Name
		last, known := m.drops[name]
		elapsed := vm.At.Sub(last.at)
		if known && *now >= last.count && elapsed < shortest {
			continue
		}
		next := drops{count: *now, at: vm.At}
		if known && *now >= last.count {
			mean := units.PacketsPerSecond(rate(last.count, *now, elapsed))
			next.rate = &mean
		}
		m.drops[name] = next
	}
	for name, last := range m.drops {
		switch {
		case vm.At.Sub(last.at) >= tapFactsFor:
			delete(m.drops, name)
		case last.rate != nil:
			if vm.DropRates == nil {
				vm.DropRates = map[string]units.PacketsPerSecond{}
			}
			vm.DropRates[name] = *last.rate
		}
	}
}

// readFacts spreads the VMs over the time until they are read again. What cannot be read now
// stays as it was.
func (s *Sampler) readFacts(vm *VM, past *memory) {
	wait := factsEvery
	if past.due.IsZero() {
		wait = time.Second * time.Duration(1+vm.Process.PID%int(factsEvery/time.Second))
	}
	past.due = vm.At.Add(wait)
	facts, err := s.host.Cgroup(vm.Process)
	if err != nil {
		return
	}
	past.wrote = 0
	if was := past.cgroup.WrittenBytes; was != nil && facts.WrittenBytes != nil {
		past.wrote = rate(*was, *facts.WrittenBytes, vm.At.Sub(past.read))
	}
	past.cgroup, past.read = facts, vm.At
}

const (
	// sentSpan is what the means of what VMs send are taken over: a whole number of
	// the periods that turns can have, or they would swing with the turns.
	sentSpan = 64 * time.Second
	// sentLeast is the time from which on a mean is known: two of the longest periods.
	sentLeast = 16 * time.Second
	// sentStep is the least distance of two points that are remembered.
	sentStep = 900 * time.Millisecond
)

// SentMeans remembers what VMs sent, for means over more than a round. Its zero
// value remembers nothing. It is not safe for concurrent use.
type SentMeans struct {
	vms map[host.TaskID]sentPast
}

// sentPast is what one VM had sent at some moments, the oldest first.
type sentPast struct {
	taps   int
	points []sentPoint
}

type sentPoint struct {
	at    time.Time
	bytes uint64
}

// Add completes the rates, whose VMs are in the order of the round's. A VM whose
// taps were not read, or that has none, is left without a mean.
func (m *SentMeans) Add(rates *model.NodeRates, round *Round) {
	seen := make(map[host.TaskID]sentPast, len(round.VMs))
	for i := range round.VMs {
		vm := &round.VMs[i]
		past := m.vms[vm.Process]
		if taps := vm.Sample.Taps; vm.Sample.TapsErr == nil && len(taps) > 0 {
			now := sentPoint{at: vm.At}
			for _, tap := range taps {
				now.bytes += tap.FromVM.Bytes
			}
			past = past.with(now, len(taps))
			rates.VMs[i].Sent = past.mean(now)
		}
		seen[vm.Process] = past
	}
	m.vms = seen
}

// with adds a point. Counters that went back, or of another number of taps, have
// nothing to do with those before.
func (p sentPast) with(now sentPoint, taps int) sentPast {
	if n := len(p.points); n > 0 {
		last := p.points[n-1]
		if p.taps != taps || now.bytes < last.bytes || now.at.Before(last.at) {
			p.points = nil
		} else if now.at.Sub(last.at) < sentStep {
			return p
		}
	}
	p.taps, p.points = taps, append(p.points, now)
	for len(p.points) > 1 && now.at.Sub(p.points[1].at) >= sentSpan {
		p.points = p.points[1:]
	}
	return p
}

// mean is that since the oldest point. Nil: it is too young.
func (p sentPast) mean(now sentPoint) *model.Sent {
	const bitsPerByte = 8
	first := p.points[0]
	elapsed := now.at.Sub(first.at)
	if elapsed < sentLeast {
		return nil
	}
	return &model.Sent{
		BitsPerSecond: units.BitsPerSecond(bitsPerByte * rate(first.bytes, now.bytes, elapsed)),
		Seconds:       elapsed.Seconds(),
	}
}
