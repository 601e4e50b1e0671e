package simulated

import (
	"errors"
	"slices"
	"time"

	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/sim"
	"github.com/joulevirt/joulevirt/internal/units"
)

// held is a host as its agent sees it, with a twin to which the same happens and the same is
// done; but what the agent does to a VM whose guard trips is done to the twin once the trip was
// judged. The twin tells what would have been, had the guard not undone the lever.
type held struct {
	*sim.Host
	twin *sim.Host
	// processes of VMs by pod, and pods by process and thread.
	processes map[string]host.TaskID
	pods      map[host.TaskID]string
	// changes that the twin has not got yet, in their order, and trips that are judged now.
	changes []change
	judging []judged
	seen    map[model.Trip]bool
}

// change is what the agent did to a VM.
type change struct {
	pod string
	do  func(*sim.Host) error
}

// judged is a trip, and what both hosts had counted of the VM when it was undone.
type judged struct {
	model.Trip
	until      time.Time
	was, would counted
}

// judging is for how long after a trip it is looked at what became of its symptom.
const judging = 3 * time.Second

// counted is what a host counted of a VM.
type counted struct {
	waits   map[host.TaskID]time.Duration
	packets host.TrafficCounters
	backlog uint64
}

func newHeld(h, twin *sim.Host, vms []sim.VM) (*held, error) {
	of := &held{Host: h, twin: twin, processes: map[string]host.TaskID{}, pods: map[host.TaskID]string{}, seen: map[model.Trip]bool{}}
	processes, err := h.Processes()
	if err != nil {
		return nil, err
	}
	for i, vm := range vms {
		process := processes[i].ID
		sample, err := h.Sample(process)
		if err != nil {
			return nil, err
		}
		of.processes[vm.PodUID], of.pods[process] = process, vm.PodUID
		for _, t := range slices.Concat(sample.Threads, sample.Workers) {
			of.pods[t.ID] = vm.PodUID
		}
	}
	return of, nil
}

func (h *held) change(of host.TaskID, do func(*sim.Host) error) error {
	h.changes = append(h.changes, change{h.pods[of], do})
	return do(h.Host)
}

// SetAffinity implements host.Host.
func (h *held) SetAffinity(thread host.TaskID, cpus units.CPUSet) error {
	return h.change(thread, func(of *sim.Host) error { return of.SetAffinity(thread, cpus) })
}

// ClearAffinity implements host.Host.
func (h *held) ClearAffinity(thread host.TaskID) error {
	return h.change(thread, func(of *sim.Host) error { return of.ClearAffinity(thread) })
}

// SetSlice implements host.Host.
func (h *held) SetSlice(thread host.TaskID, slice time.Duration) error {
	return h.change(thread, func(of *sim.Host) error { return of.SetSlice(thread, slice) })
}

// Buffer implements host.Host.
func (h *held) Buffer(process host.TaskID, tap string, as model.Buffering) error {
	return h.change(process, func(of *sim.Host) error { return of.Buffer(process, tap, as) })
}

// Unbuffer implements host.Host.
func (h *held) Unbuffer(process host.TaskID, tap string) error {
	return h.change(process, func(of *sim.Host) error { return of.Unbuffer(process, tap) })
}

// KeepBuffering implements host.Host.
func (h *held) KeepBuffering(valid time.Duration) error {
	return errors.Join(h.Host.KeepBuffering(valid), h.twin.KeepBuffering(valid))
}

// pass lets the time pass on the twin that passed on the host before the agent's round, which
// told of trips. tell is told of trips that were judged: what is left of the symptom, and what
// would have been with the lever held.
func (h *held) pass(d time.Duration, trips []model.Trip, tell func(trip model.Trip, left, would float64)) error {
	h.twin.Advance(d)
	now := h.Now()
	var open []judged
	for _, j := range h.judging {
		if now.Before(j.until) {
			open = append(open, j)
			continue
		}
		is, err := count(h.Host, h.processes[j.PodUID])
		with, second := count(h.twin, h.processes[j.PodUID])
		if err := errors.Join(err, second); err != nil {
			return err
		}
		tell(j.Trip, is.since(&j.was, j.Symptom), with.since(&j.would, j.Symptom))
	}
	h.judging = open
	for _, trip := range trips {
		if trip.PodUID == "" || h.seen[trip] || !trip.Time.Equal(now) {
			continue
		}
		h.seen[trip] = true
		was, err := count(h.Host, h.processes[trip.PodUID])
		would, second := count(h.twin, h.processes[trip.PodUID])
		if err := errors.Join(err, second); err != nil {
			return err
		}
		h.judging = append(h.judging, judged{trip, now.Add(judging), was, would})
	}
	var later []change
	for _, c := range h.changes {
		if slices.ContainsFunc(h.judging, func(j judged) bool { return j.PodUID == c.pod }) {
			later = append(later, c)
			continue
		}
		// What fails on one host fails on the other: the agent was told.
		_ = c.do(h.twin)
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
		return percent * most.Seconds() / judging.Seconds()
	case model.SymptomRingOverrun:
		drops, packets := float64(c.packets.Drops-was.packets.Drops), float64(c.packets.Packets-was.packets.Packets)
		return million * drops / max(1, drops+packets)
	case model.SymptomBacklog:
		return float64(c.backlog)
	default:
		return 0
	}
}
