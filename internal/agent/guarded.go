package agent

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/agent/actuate"
	"github.com/joulevirt/joulevirt/internal/agent/guard"
	"github.com/joulevirt/joulevirt/internal/agent/publish"
	"github.com/joulevirt/joulevirt/internal/agent/sample"
	"github.com/joulevirt/joulevirt/internal/host"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/symptoms"
	"github.com/joulevirt/joulevirt/internal/units"
)

const (
	// leastGuardTime is the least time between two observations of the guard: what lasts for
	// less is no symptom. Rounds are a second apart, but for chance.
	leastGuardTime = 900 * time.Millisecond
	// mostTrips is how many trips the rates have, the newest.
	mostTrips = 256
	// mostlyHeld is the share of the time from which packets count as held.
	mostlyHeld = 0.5
)

// guarded is the guard, and what it needs of earlier rounds.
type guarded struct {
	*guard.Guard
	// save writes trips to disk, and saved are those that are there.
	save  func(trips []model.Trip) error
	saved []model.Trip
	// previous is the round that was observed last.
	previous *sample.Round
	// settings are those of levers of VMs. One that is missing is not known.
	settings map[vmLever]setting
	// poolCPUs are the CPUs that the plan in force keeps a VM from, by pod UID.
	poolCPUs map[string]units.CPUSet
	// counts of trips since the agent's start.
	counts map[publish.TripKind]uint64
}

// setting of a lever of a VM, since when.
type setting struct {
	on    bool
	since time.Time
}

func newGuarded(trips []model.Trip, save func([]model.Trip) error, now time.Time) guarded {
	return guarded{Guard: guard.New(trips, now), save: save, saved: trips}
}

// guardRound has the guard observe a round, and saves its trips. A lever that trips stays
// undone though the journal cannot be written: a next agent does not know of it, then.
func (a *Agent) guardRound(round *sample.Round) error {
	g := &a.guarded
	if g.previous == nil {
		g.previous = round
		return nil
	}
	if round.At.Sub(g.previous.At) < leastGuardTime {
		return nil
	}
	topology := a.machine.now()
	g.poolCPUs = poolCPUs(a.plan)
	for _, trip := range g.Observe(g.symptoms(g.previous, round, topology)) {
		a.opts.Log.Info("a lever hurts: undone", "namespace", trip.Namespace, "vmi", trip.Name, "lever", trip.Lever,
			"symptom", trip.Symptom, "evidence", trip.Evidence(), "until", trip.Until, "count", trip.Count)
		counts := maps.Clone(g.counts) // the last ones were published
		if counts == nil {
			counts = map[publish.TripKind]uint64{}
		}
		counts[publish.TripKind{Lever: trip.Lever, Symptom: trip.Symptom}]++
		g.counts = counts
	}
	g.previous = round
	trips := g.Trips()
	if slices.Equal(trips, g.saved) {
		return nil
	}
	if err := g.save(trips); err != nil {
		return fmt.Errorf("save which levers hurt: %w", err)
	}
	g.saved = trips
	return nil
}

// symptoms of a round, against the one before.
func (g *guarded) symptoms(previous, round *sample.Round, topology model.Topology) *symptoms.Round {
	out := &symptoms.Round{Time: round.At, Over: round.At.Sub(previous.At), Idle: idle(previous, round, topology)}
	for i := range round.VMs {
		vm := &round.VMs[i]
		one := symptoms.VM{PodUID: vm.PodUID, Namespace: vm.Namespace, Name: vm.Name, Cpuset: vm.Sample.Cpuset.Difference(g.poolCPUs[vm.PodUID])}
		if old := find(previous.VMs, i, func(o *sample.VM) bool { return o.Process == vm.Process }); old != nil {
			one.Affinity = g.setting(vm.PodUID, v1alpha1.LeverAffinity, old.At)
			one.Threads = threads(old, vm)
			one.Packets, one.Buffering = packets(old, vm, g.setting(vm.PodUID, v1alpha1.LeverBuffering, old.At))
		}
		out.VMs = append(out.VMs, one)
	}
	for _, unread := range round.Unread {
		out.VMs = append(out.VMs, symptoms.VM{PodUID: unread.PodUID, Namespace: unread.Namespace, Name: unread.Name})
	}
	return out
}

// setting of a lever since a time.
func (g *guarded) setting(podUID string, lever v1alpha1.Lever, since time.Time) symptoms.Setting {
	setting, known := g.settings[vmLever{podUID, lever}]
	switch {
	case !known || setting.since.After(since):
		return symptoms.Unsure
	case setting.on:
		return symptoms.On
	default:
		return symptoms.Off
	}
}

// recordSettings stores how levers are set from now on.
func (g *guarded) recordSettings(now time.Time, results map[vmLever]*actuate.Result) {
	next := make(map[vmLever]setting, len(g.settings))
	for key, r := range results {
		if key.lever != v1alpha1.LeverAffinity && key.lever != v1alpha1.LeverBuffering {
			continue
		}
		on := false
		switch r.Outcome {
		case actuate.Applied, actuate.Incomplete:
			on = true
		case actuate.Undone, actuate.Dedicated, actuate.NoAllowedCore, actuate.NoDevice, actuate.Unsupported:
		default:
			continue
		}
		was, known := g.settings[key]
		if !known || was.on != on {
			was = setting{on: on, since: now}
		}
		next[key] = was
	}
	g.settings = next
}

// poolCPUs are the CPUs that a plan keeps each VM from on purpose, by pod UID: those of pool
// Network from VMs of pool Compute, which may wait while they idle.
func poolCPUs(plan *v1alpha1.NodePlan) map[string]units.CPUSet {
	if plan == nil || plan.Spec.NetworkCPUs == "" {
		return nil
	}
	network, err := units.ParseCPUSet(plan.Spec.NetworkCPUs)
	if err != nil {
		return nil
	}
	from := map[string]units.CPUSet{}
	for i := range plan.Spec.VMs {
		if vm := &plan.Spec.VMs[i]; vm.Pool == v1alpha1.PoolCompute && vm.Affinity != nil {
			from[string(vm.PodUID)] = network
		}
	}
	return from
}

// find an element, first where it was in the other list.
func find[T any](list []T, at int, is func(*T) bool) *T {
	if at < len(list) && is(&list[at]) {
		return &list[at]
	}
	for i := range list {
		if is(&list[i]) {
			return &list[i]
		}
	}
	return nil
}

// idle is the share of the time that each CPU idled, by its number. The scheduler leaves
// isolated ones alone: they help nobody.
func idle(previous, round *sample.Round, topology model.Topology) []float64 {
	elapsed := round.At.Sub(previous.At)
	var idle []float64
	for i := range round.CPUs {
		now := &round.CPUs[i]
		old := find(previous.CPUs, i, func(o *host.CPUTimes) bool { return o.CPU == now.CPU })
		if old == nil || now.Idle < old.Idle || topology.Isolated.Contains(now.CPU) {
			continue
		}
		for len(idle) <= now.CPU {
			idle = append(idle, 0)
		}
		idle[now.CPU] = float64(min(1, units.Over(now.Idle-old.Idle, elapsed)))
	}
	return idle
}

// threads that work for a VM. Waiting that its CPU limit explains is none for a lever to answer for.
func threads(old, vm *sample.VM) []symptoms.Thread {
	elapsed := vm.At.Sub(old.At)
	if old.Sample.Throttling == nil && vm.Sample.Throttling != nil {
		return nil // what a limit that was just found explains is not known
	}
	throttled := sample.ThrottledCores(old.Sample.Throttling, vm.Sample.Throttling, elapsed)
	list := make([]symptoms.Thread, 0, len(vm.Sample.Threads)+len(vm.Sample.Workers))
	add := func(before, now []host.ThreadSample) {
		for i := range now {
			t := &now[i]
			was := find(before, i, func(o *host.ThreadSample) bool { return o.ID == t.ID })
			if was == nil || t.Wait < was.Wait || t.CPUs.IsEmpty() {
				continue
			}
			list = append(list, symptoms.Thread{
				CPUs: t.CPUs, Run: min(1, units.Over(t.Run-was.Run, elapsed)), Wait: max(0, min(1, units.Over(t.Wait-was.Wait, elapsed))-throttled),
			})
		}
	}
	add(old.Sample.Threads, vm.Sample.Threads)
	add(old.Sample.Workers, vm.Sample.Workers)
	return list
}

// packets towards a VM, and whether they were held.
func packets(old, vm *sample.VM, setting symptoms.Setting) (symptoms.Packets, symptoms.Setting) {
	const bits = 8
	var p symptoms.Packets
	elapsed := vm.At.Sub(old.At)
	for i := range vm.Sample.Taps {
		tap := &vm.Sample.Taps[i]
		was := find(old.Sample.Taps, i, func(o *host.TapSample) bool { return o.Name == tap.Name })
		if was == nil {
			continue
		}
		p.Handed += units.PacketsPerSecond(rateOf(was.ToVM.Packets, tap.ToVM.Packets, elapsed))
		p.Overrun += units.PacketsPerSecond(rateOf(was.ToVM.Drops, tap.ToVM.Drops, elapsed))
		p.Bits += bits * units.BitsPerSecond(rateOf(was.ToVM.Bytes, tap.ToVM.Bytes, elapsed))
		if tap.Backlog != nil {
			if p.Backlog == nil {
				p.Backlog = new(uint64)
			}
			*p.Backlog += *tap.Backlog
		}
	}
	for i := range vm.Buffered {
		b := &vm.Buffered[i]
		p.Window = max(p.Window, b.Window)
		if lost, known := vm.DropRates[b.Name]; known && b.Drops != nil {
			if p.Dropped == nil {
				p.Dropped = new(units.PacketsPerSecond)
			}
			*p.Dropped += lost
		}
	}
	if setting == symptoms.On {
		setting = holding(old, vm)
	}
	return p, setting
}

// holding is how packets were handled that may be held: those that came too slowly passed, and
// show how it is without. What is lost in floods shows nothing, for to undo what defends
// against them would leave the VM without when it needs it.
func holding(old, vm *sample.VM) symptoms.Setting {
	elapsed := vm.At.Sub(old.At)
	held, known := 0.0, false
	for i := range vm.Buffered {
		b := &vm.Buffered[i]
		was := find(old.Buffered, i, func(o *host.BufferSample) bool { return o.Name == b.Name })
		if was == nil || b.Active < was.Active {
			continue
		}
		if b.Flood != nil || was.Flood != nil {
			return symptoms.Unsure
		}
		known, held = true, max(held, float64(units.Over(b.Active-was.Active, elapsed)))
	}
	switch {
	case !known || held > 0 && held < mostlyHeld:
		return symptoms.Unsure
	case held > 0:
		return symptoms.On
	default:
		return symptoms.Off
	}
}

// rateOf a counter; 0 of one that started over.
func rateOf(old, now uint64, elapsed time.Duration) units.PerSecond {
	if now < old || elapsed <= 0 {
		return 0
	}
	return units.RateOf(now-old, elapsed)
}
