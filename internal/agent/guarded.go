package agent

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/agent/actuate/affinity"
	"github.com/joulevirt/joulevirt/internal/agent/actuate/buffer"
	"github.com/joulevirt/joulevirt/internal/agent/actuate/thread"
	"github.com/joulevirt/joulevirt/internal/agent/guard"
	"github.com/joulevirt/joulevirt/internal/agent/publish"
	"github.com/joulevirt/joulevirt/internal/agent/sample"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

const (
	// leastLook is the least time between two looks of the guard: what lasts for less is
	// no symptom. Rounds are a second apart, but for chance.
	leastLook = 900 * time.Millisecond
	// mostTripsTold is how many trips the rates tell, the newest.
	mostTripsTold = 256
)

// tripStore keeps trips on disk. journal.Journal is one.
type tripStore interface {
	Trips() []model.Trip
	SaveTrips(trips []model.Trip) error
}

// guarded is the guard, and what it has of earlier rounds.
type guarded struct {
	*guard.Guard
	store tripStore
	// saved is what is on disk.
	saved []model.Trip
	// previous is the round that was looked at last.
	previous *sample.Round
	// stands is how levers of VMs stand. A VM's lever that is missing is not known.
	stands map[refusal]stand
	// closed are the CPUs that the plan in force keeps a VM from, by pod UID.
	closed map[string]units.CPUSet
	// counts of trips since the agent's start.
	counts map[publish.TripKind]uint64
}

// stand is how a lever of a VM stands, since when.
type stand struct {
	on    bool
	since time.Time
}

func newGuarded(store tripStore, now time.Time) guarded {
	saved := store.Trips()
	return guarded{Guard: guard.New(saved, now), store: store, saved: saved}
}

// watchOver shows the guard a round, and keeps what it remembers. A lever that trips stays
// undone though the journal cannot be written: a next agent does not know of it, then.
func (a *Agent) watchOver(round *sample.Round) error {
	g := &a.guarded
	if g.previous == nil {
		g.previous = round
		return nil
	}
	if round.At.Sub(g.previous.At) < leastLook {
		return nil
	}
	topology, _ := a.machine.now()
	g.closed = closed(a.plan)
	for _, trip := range g.See(g.sight(g.previous, round, topology)) {
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
	if err := g.store.SaveTrips(trips); err != nil {
		return fmt.Errorf("keep which levers hurt: %w", err)
	}
	g.saved = trips
	return nil
}

// sight is what a round shows, against the one before.
func (g *guarded) sight(previous, round *sample.Round, topology model.Topology) *guard.Round {
	sight := &guard.Round{Time: round.At, Over: round.At.Sub(previous.At), Idle: idle(previous, round, topology)}
	for i := range round.VMs {
		vm := &round.VMs[i]
		one := guard.VM{PodUID: vm.PodUID, Namespace: vm.Namespace, Name: vm.Name, Cpuset: vm.Cpuset.Difference(g.closed[vm.PodUID])}
		if old := find(previous.VMs, i, func(o *sample.VM) bool { return o.Process == vm.Process }); old != nil {
			one.Affinity = g.setting(vm.PodUID, v1alpha1.LeverAffinity, old.At)
			one.Threads = threads(old, vm)
			one.Packets, one.Buffering = packets(old, vm, g.setting(vm.PodUID, v1alpha1.LeverBuffering, old.At))
		}
		sight.VMs = append(sight.VMs, one)
	}
	for _, unread := range round.Unread {
		sight.VMs = append(sight.VMs, guard.VM{PodUID: unread.PodUID, Namespace: unread.Namespace, Name: unread.Name})
	}
	return sight
}

// setting of a lever since a time.
func (g *guarded) setting(podUID string, lever v1alpha1.Lever, since time.Time) guard.Setting {
	stand, known := g.stands[refusal{podUID, lever}]
	switch {
	case !known || stand.since.After(since):
		return guard.Unsure
	case stand.on:
		return guard.On
	default:
		return guard.Off
	}
}

// note takes in how levers stand from now on.
func (g *guarded) note(now time.Time, done *applied) {
	next := make(map[refusal]stand, len(g.stands))
	set := func(podUID string, lever v1alpha1.Lever, on bool) {
		key := refusal{podUID, lever}
		was, known := g.stands[key]
		if !known || was.on != on {
			was = stand{on: on, since: now}
		}
		next[key] = was
	}
	for i := range done.pins {
		switch r := &done.pins[i]; r.Outcome {
		case thread.Applied, thread.Incomplete:
			set(r.PodUID, v1alpha1.LeverAffinity, true)
		case thread.Undone, thread.Dedicated, thread.NoAllowedCore:
			set(r.PodUID, v1alpha1.LeverAffinity, false)
		}
	}
	for i := range done.buffers {
		switch r := &done.buffers[i]; r.Outcome {
		case buffer.Applied:
			set(r.PodUID, v1alpha1.LeverBuffering, true)
		case buffer.Undone, buffer.NoTap, buffer.Unsupported:
			set(r.PodUID, v1alpha1.LeverBuffering, false)
		}
	}
	g.stands = next
}

// withhold orders nothing for as long as the guard keeps a lever undone.
func (o *orders) withhold(g *guard.Guard, now time.Time) {
	drop := func(podUID string, lever v1alpha1.Lever) bool {
		trip, undone := g.Undone(podUID, model.Lever(lever), now)
		if undone {
			o.tripped[refusal{podUID, lever}] = tripWords(&trip)
		}
		return undone
	}
	for podUID := range o.pins {
		if drop(podUID, v1alpha1.LeverAffinity) {
			o.pins[podUID] = affinity.Pins{}
		}
	}
	for podUID := range o.buffering {
		if drop(podUID, v1alpha1.LeverBuffering) {
			o.buffering[podUID] = model.Buffering{}
		}
	}
}

// tripWords stay the same for as long as the lever is undone.
func tripWords(t *model.Trip) string {
	of := ""
	if t.PodUID == "" {
		of = " for all VMs of the node, several of which it hurt"
	}
	return fmt.Sprintf("undone%s from %s to %s, trip %d that is remembered: %s", of,
		t.Time.UTC().Format(time.RFC3339), t.Until.UTC().Format(time.RFC3339), t.Count, t.Evidence())
}

// tellTrips puts what the guard remembers into what is published.
func (a *Agent) tellTrips(rates *model.NodeRates) {
	trips := a.guarded.Trips()
	rates.Trips = trips[:min(len(trips), mostTripsTold)]
	a.state.Trips = a.guarded.counts
}
