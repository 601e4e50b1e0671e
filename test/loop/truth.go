package loop

import (
	"errors"
	"sort"
	"time"
)

// truth is what no product knows of a node.
type truth struct {
	// times and joules of all hosts at each round.
	times  []time.Time
	joules []joules
	// checked counts VMs at checks five minutes apart, and broken those of them of which a lever
	// cost service.
	checked, broken int
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
	// checkInterval is how often VMs are checked.
	checkInterval = 5 * time.Minute
	// lossAllowed is the part of a VM's packets, and slowAllowed of its own work, that may be
	// lost more than without levers.
	lossAllowed, slowAllowed = 0.001, 0.05
)

// serve looks whether VMs do what they do without levers.
func (t *truth) serve(now time.Time, guests []guest, of *twins) error {
	if now.Sub(start())%checkInterval != 0 {
		return nil
	}
	for i := range guests {
		pod := guests[i].vm.PodUID
		with, err := of.of[actual].VMTruth(pod)
		without, second := of.of[withoutAny].VMTruth(pod)
		if err := errors.Join(err, second); err != nil {
			return err
		}
		t.checked++
		if with.Served < without.Served-lossAllowed || with.Computed < (1-slowAllowed)*without.Computed {
			t.broken++
		}
	}
	return nil
}
