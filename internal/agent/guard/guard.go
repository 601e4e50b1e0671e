// Package guard decides when a lever hurts a VM on the node, from what each round of
// samples showed, and for how long the lever stays undone then. It is pure: no clock, no
// I/O. Only symptoms count that the lever can cause: see docs/design/symptoms-and-guards.md.
package guard

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/symptoms"
)

const (
	// away is how long a VM may be absent until all about it is forgotten: its
	// pod will not come back.
	away = 10 * time.Minute
	// several VMs, and one of few on which the lever acts, that trip within shortly show
	// that it hurts on the node: a CPU that is crowded hurts several by itself.
	several = 3
	few     = 4
	shortly = time.Minute
	// fading halves what was seen of a symptom without the lever, which is subtracted
	// twofold.
	fading  = 10 * time.Minute
	twofold = 2
	// mostTrips is how many are remembered at most: the newest.
	mostTrips = 1024
)

// key names a lever of a VM, or of all VMs of the node when the pod's UID is empty.
type key struct {
	podUID string
	lever  v1alpha1.Lever
}

// past is what is known of a VM from earlier rounds.
type past struct {
	seen     time.Time
	symptoms map[model.Symptom]history
}

// history is that of one symptom.
type history struct {
	// rounds in a row in which it was there with the lever on.
	rounds int
	// without is what was seen of it without the lever, at that time.
	without float64
	at      time.Time
}

// Guard remembers what it saw and what tripped. It is used by one goroutine at a time.
type Guard struct {
	vms   map[string]*past
	trips map[key]model.Trip
}

// New returns a Guard that remembers the trips of an earlier one, newest first. Trips of the
// future, of a clock that was set back, are dropped.
func New(trips []model.Trip, now time.Time) *Guard {
	g := &Guard{vms: map[string]*past{}, trips: map[key]model.Trip{}}
	for i := range trips {
		t := &trips[i]
		if t.Time.After(now) {
			continue
		}
		k := key{t.PodUID, t.Lever}
		if _, newer := g.trips[k]; newer {
			continue
		}
		g.trips[k] = *t
		if t.PodUID != "" {
			g.vms[t.PodUID] = &past{seen: now}
		}
	}
	return g
}

// Observe records a round, and returns the levers that are to be undone from now on.
func (g *Guard) Observe(r *symptoms.Round) []model.Trip {
	var tripped []model.Trip
	for i := range r.VMs {
		vm := &r.VMs[i]
		p := g.vms[vm.PodUID]
		if p == nil {
			p = &past{symptoms: map[model.Symptom]history{}}
			g.vms[vm.PodUID] = p
		}
		p.seen = r.Time
		for _, reading := range r.Readings(vm) {
			if p.hurts(r.Time, &reading) && !g.holds(key{vm.PodUID, reading.Lever}, r.Time) {
				tripped = append(tripped, g.trip(vm, &reading, r.Time))
			}
		}
	}
	for _, lever := range []v1alpha1.Lever{v1alpha1.LeverAffinity, v1alpha1.LeverBuffering} {
		if last, together := g.together(lever, r); together {
			tripped = append(tripped, g.trip(&symptoms.VM{}, &symptoms.Reading{Symptom: last.Symptom, Lever: lever, Value: last.Value, Limit: last.Limit}, r.Time))
		}
	}
	g.forget(r.Time)
	return tripped
}

// hurts records a reading, and reports whether the lever is to be undone for it. What the
// VM has as much of without the lever is no symptom of it.
func (p *past) hurts(now time.Time, r *symptoms.Reading) bool {
	if p.symptoms == nil {
		p.symptoms = map[model.Symptom]history{}
	}
	h := p.symptoms[r.Symptom]
	without := h.without * math.Exp2(-max(0, now.Sub(h.at).Seconds())/fading.Seconds())
	switch r.Setting {
	case symptoms.Off:
		h = history{without: max(without, r.Value), at: now}
	case symptoms.On:
		if r.Value-twofold*without >= r.Limit {
			h.rounds++
		} else {
			h.rounds = 0
		}
	default:
		h.rounds = 0
	}
	p.symptoms[r.Symptom] = h
	return h.rounds >= r.Rounds
}

// trip remembers that a lever is undone.
func (g *Guard) trip(vm *symptoms.VM, r *symptoms.Reading, now time.Time) model.Trip {
	k := key{vm.PodUID, r.Lever}
	before := g.trips[k]
	count := min(model.MostRemembered, 1+remembered(&before, now))
	t := model.Trip{
		PodUID: vm.PodUID, Namespace: vm.Namespace, Name: vm.Name, Lever: r.Lever,
		Symptom: r.Symptom, Value: r.Value, Limit: r.Limit, Time: now, Until: now.Add(model.CoolDown(count)), Count: count,
	}
	g.trips[k] = t
	return t
}

// remembered is how many trips of a lever still are, up to one.
func remembered(t *model.Trip, now time.Time) int {
	return model.Remembered(t.Count, now.Sub(t.Until))
}

// holds reports whether a lever is undone for a VM, or all VMs.
func (g *Guard) holds(k key, now time.Time) bool {
	t, known := g.trips[k]
	return known && now.Before(t.Until)
}

// together reports whether several VMs tripped shortly, after the node did last, and
// returns the last of these trips.
func (g *Guard) together(lever v1alpha1.Lever, r *symptoms.Round) (last model.Trip, so bool) {
	now, node := r.Time, g.trips[key{"", lever}]
	if now.Before(node.Until) {
		return last, false
	}
	count := 0
	for k, t := range g.trips {
		if k.podUID == "" || k.lever != lever || now.Sub(t.Time) > shortly || t.Time.Before(node.Until) {
			continue
		}
		if count++; last.Time.IsZero() || compare(t, last) < 0 {
			last = t
		}
	}
	on := 0
	for i := range r.VMs {
		if vm := &r.VMs[i]; lever == v1alpha1.LeverAffinity && vm.Affinity == symptoms.On || lever == v1alpha1.LeverBuffering && vm.Buffering == symptoms.On {
			on++
		}
	}
	return last, count >= several && few*count >= on
}

// forget drops what is too old to matter, and the oldest of too many trips.
func (g *Guard) forget(now time.Time) {
	for podUID, p := range g.vms {
		if now.Sub(p.seen) > away {
			delete(g.vms, podUID)
		}
	}
	for k, t := range g.trips {
		if k.podUID != "" && g.vms[k.podUID] == nil || remembered(&t, now) == 0 {
			delete(g.trips, k)
		}
	}
	if len(g.trips) > mostTrips {
		for _, t := range g.Trips()[mostTrips:] {
			delete(g.trips, key{t.PodUID, t.Lever})
		}
	}
}

// Undone returns the trip for which a lever stays undone for a VM now: its own, or that of
// all VMs of the node.
func (g *Guard) Undone(podUID string, lever v1alpha1.Lever, now time.Time) (model.Trip, bool) {
	for _, uid := range []string{podUID, ""} {
		if k := (key{uid, lever}); g.holds(k, now) {
			return g.trips[k], true
		}
	}
	return model.Trip{}, false
}

// Trips returns those that are remembered, the newest first.
func (g *Guard) Trips() []model.Trip {
	list := make([]model.Trip, 0, len(g.trips))
	for _, t := range g.trips {
		list = append(list, t)
	}
	slices.SortFunc(list, compare)
	return list
}

// compare orders trips: newer ones first.
func compare(a, b model.Trip) int {
	return cmp.Or(b.Time.Compare(a.Time), cmp.Compare(a.PodUID, b.PodUID), cmp.Compare(a.Lever, b.Lever))
}
