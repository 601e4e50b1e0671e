package loop

import (
	"errors"
	"sort"
	"time"

	"github.com/joulevirt/joulevirt/internal/units"
)

// truth is what no product knows of a node.
type truth struct {
	// times and joules of all hosts at each round.
	times  []time.Time
	joules []joules
	// minutes of VMs that were looked at, and those of them in which a lever cost service.
	looked, broken int
	// waits at the last rounds, the newest last.
	waits []waits
}

func (t *truth) add(now time.Time, is joules) {
	t.times, t.joules = append(t.times, now), append(t.joules, is)
}

// at is what was drawn up to a time.
func (t *truth) at(when time.Time) joules {
	i := sort.Search(len(t.times), func(i int) bool { return !t.times[i].Before(when) })
	switch {
	case i == 0:
		return t.joules[0]
	case i == len(t.times):
		return t.joules[i-1]
	}
	from, to := t.times[i-1], t.times[i]
	part := when.Sub(from).Seconds() / to.Sub(from).Seconds()
	var j joules
	for h := range j {
		j[h] = t.joules[i-1][h] + part*(t.joules[i][h]-t.joules[i-1][h])
	}
	return j
}

// drawn is what all hosts drew between two times.
func (t *truth) drawn(from, to time.Time) joules {
	j, before := t.at(to), t.at(from)
	for h := range j {
		j[h] -= before[h]
	}
	return j
}

const (
	// looking is how often VMs are looked at.
	looking = 5 * time.Minute
	// lossAllowed is the part of a VM's packets, and slowAllowed of its own work, that may be
	// lost more than without levers.
	lossAllowed, slowAllowed = 0.001, 0.05
)

// waits are for how long the VMs of a node waited for CPUs up to a time, by pod.
type waits struct {
	at time.Time
	of map[string]waited
}

// waited is for how long a VM did on the node and on twins.
type waited struct{ with, withoutAffinity, withoutAny time.Duration }

// wait notes how long VMs waited up to now. It remembers what serve looks back at.
func (t *truth) wait(now time.Time, slots []slot, of *twins) error {
	is := waits{now, make(map[string]waited, len(slots))}
	var errs []error
	for i := range slots {
		if slots[i].absent {
			continue
		}
		pod := slots[i].vm.PodUID
		with, err := of.of[actual].Waited(pod)
		withoutAffinity, second := of.of[withoutAffinity].Waited(pod)
		withoutAny, third := of.of[withoutAny].Waited(pod)
		errs = append(errs, err, second, third)
		is.of[pod] = waited{with, withoutAffinity, withoutAny}
	}
	t.waits = append(t.waits, is)
	for t.waits[0].at.Before(now.Add(-looking)) {
		t.waits = t.waits[1:]
	}
	return errors.Join(errs...)
}

// waited is the share of the time since so long ago, or since the VM came or this began, for
// which a VM waited: on the node, without lever Affinity, and without any.
func (t *truth) waited(pod string, since time.Duration) (with, withoutAffinity, withoutAny units.Cores) {
	last := len(t.waits) - 1
	now, is := t.waits[last].at, t.waits[last].of[pod]
	from, was := now, is
	for i := last - 1; i >= 0 && !t.waits[i].at.Before(now.Add(-since)); i-- {
		before, there := t.waits[i].of[pod]
		if !there {
			break
		}
		from, was = t.waits[i].at, before
	}
	share := func(is, was time.Duration) units.Cores {
		return units.Cores((is - was).Seconds() / max(1, now.Sub(from).Seconds()))
	}
	return share(is.with, was.with), share(is.withoutAffinity, was.withoutAffinity), share(is.withoutAny, was.withoutAny)
}

// serve looks whether VMs do what they do without levers, and wait no longer than their
// profiles bear where without levers they do not.
func (t *truth) serve(now time.Time, slots []slot, of *twins) error {
	if now.Sub(start())%looking != 0 {
		return nil
	}
	for i := range slots {
		if slots[i].absent {
			continue
		}
		pod, most := slots[i].vm.PodUID, slots[i].profile.MaxSteal
		with, err := of.of[actual].VMTruth(pod)
		without, second := of.of[withoutAny].VMTruth(pod)
		if err := errors.Join(err, second); err != nil {
			return err
		}
		waits, _, waitsWithout := t.waited(pod, looking)
		t.looked++
		if with.Served < without.Served-lossAllowed || with.Computed < (1-slowAllowed)*without.Computed || waits > most && waitsWithout <= most {
			t.broken++
		}
	}
	return nil
}
