package simulated

import (
	"errors"
	"slices"
	"time"

	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
	"github.com/joulevirt/joulevirt/test/sim"
)

// twin is a host as its agent sees it, with another to which the same happens and the same is
// done; but what the agent does to a VM whose guard trips is done to the other once the trip was
// evaluated. The other shows what would have been, had the guard not reverted the lever.
type twin struct {
	*sim.Host
	other *sim.Host
	// processes of VMs by pod, and pods by process and thread.
	processes map[string]host.TaskID
	pods      map[host.TaskID]string
	// changes that the other has not got yet, in their order, and trips that are evaluated now.
	changes []change
	open    []tripped
	seen    map[model.Trip]bool
}

// change is what the agent did to a VM.
type change struct {
	pod string
	do  func(*sim.Host) error
}

// tripped is a trip, and what both hosts had counted of the VM when it was undone.
type tripped struct {
	model.Trip
	until      time.Time
	was, would counted
}

// evaluating is for how long after a trip its symptom is observed.
const evaluating = 3 * time.Second

// counted is what a host counted of a VM.
type counted struct {
	waits   map[host.TaskID]time.Duration
	packets host.TrafficCounters
	backlog uint64
}

// of makes it the twin of a machine's host.
func (h *twin) of(m machine, is *sim.Host, vms []sim.VM) (err error) {
	*h = twin{Host: is, processes: map[string]host.TaskID{}, pods: map[host.TaskID]string{}, seen: map[model.Trip]bool{}}
	if h.other, _, err = m.start(); err != nil {
		return err
	}
	processes, err := is.Processes()
	if err != nil {
		return err
	}
	for i, vm := range vms {
		process := processes[i].ID
		sample, err := is.Sample(process)
		if err != nil {
			return err
		}
		h.processes[vm.PodUID], h.pods[process] = process, vm.PodUID
		for _, t := range slices.Concat(sample.Threads, sample.Workers) {
			h.pods[t.ID] = vm.PodUID
		}
	}
	return nil
}

func (h *twin) change(of host.TaskID, do func(*sim.Host) error) error {
	h.changes = append(h.changes, change{h.pods[of], do})
	return do(h.Host)
}

// SetAffinity implements host.Host.
func (h *twin) SetAffinity(thread host.TaskID, cpus units.CPUSet) error {
	return h.change(thread, func(of *sim.Host) error { return of.SetAffinity(thread, cpus) })
}

// ClearAffinity implements host.Host.
func (h *twin) ClearAffinity(thread host.TaskID) error {
	return h.change(thread, func(of *sim.Host) error { return of.ClearAffinity(thread) })
}

// SetSlice implements host.Host.
func (h *twin) SetSlice(thread host.TaskID, slice time.Duration) error {
	return h.change(thread, func(of *sim.Host) error { return of.SetSlice(thread, slice) })
}

// Buffer implements host.Host.
func (h *twin) Buffer(process host.TaskID, tap string, as model.Buffering) error {
	return h.change(process, func(of *sim.Host) error { return of.Buffer(process, tap, as) })
}

// Unbuffer implements host.Host.
func (h *twin) Unbuffer(process host.TaskID, tap string) error {
	return h.change(process, func(of *sim.Host) error { return of.Unbuffer(process, tap) })
}

// ExtendLease implements host.Host.
func (h *twin) ExtendLease(valid time.Duration) error {
	return errors.Join(h.Host.ExtendLease(valid), h.other.ExtendLease(valid))
}

// pass lets the time pass on the other host that passed before the agent's round, which reported
// trips. evaluated gets what was evaluated: what is left of the symptom, and what would have been
// without the guard.
func (h *twin) pass(d time.Duration, trips []model.Trip, evaluated func(trip model.Trip, left, would float64)) error {
	h.other.Advance(d)
	now := h.Now()
	var open []tripped
	for _, j := range h.open {
		if now.Before(j.until) {
			open = append(open, j)
			continue
		}
		is, err := count(h.Host, h.processes[j.PodUID])
		with, second := count(h.other, h.processes[j.PodUID])
		if err := errors.Join(err, second); err != nil {
			return err
		}
		evaluated(j.Trip, is.since(&j.was, j.Symptom), with.since(&j.would, j.Symptom))
	}
	h.open = open
	for _, trip := range trips {
		if trip.PodUID == "" || h.seen[trip] || !trip.Time.Equal(now) {
			continue
		}
		h.seen[trip] = true
		was, err := count(h.Host, h.processes[trip.PodUID])
		would, second := count(h.other, h.processes[trip.PodUID])
		if err := errors.Join(err, second); err != nil {
			return err
		}
		h.open = append(h.open, tripped{trip, now.Add(evaluating), was, would})
	}
	var later []change
	for _, c := range h.changes {
		if slices.ContainsFunc(h.open, func(j tripped) bool { return j.PodUID == c.pod }) {
			later = append(later, c)
			continue
		}
		// What fails on one host fails on the other: the agent was reported.
		_ = c.do(h.other)
	}
	h.changes = later
	return nil
}

func count(h *sim.Host, process host.TaskID) (c counted, err error) {
	sample, err := h.Sample(process)
	if err != nil {
		return c, err
	}
	c = counted{waits: map[host.TaskID]time.Duration{}, packets: sample.Taps[0].ToVM}
	for _, t := range slices.Concat(sample.Threads, sample.Workers) {
		c.waits[t.ID] = t.Wait
	}
	if backlog := sample.Taps[0].Backlog; backlog != nil {
		c.backlog = *backlog
	}
	return c, nil
}

// since is what is seen of a symptom, in its unit, since something else was counted. Drops of
// the queue are not simulated.
func (c *counted) since(was *counted, symptom model.Symptom) float64 {
	const percent, million = 100, 1e6
	switch symptom {
	case model.SymptomRunDelay:
		most := time.Duration(0)
		for thread, wait := range c.waits {
			most = max(most, wait-was.waits[thread])
		}
		return percent * most.Seconds() / evaluating.Seconds()
	case model.SymptomRingOverrun:
		drops, packets := float64(c.packets.Drops-was.packets.Drops), float64(c.packets.Packets-was.packets.Packets)
		return million * drops / max(1, drops+packets)
	case model.SymptomBacklog:
		return float64(c.backlog)
	default:
		return 0
	}
}
