package guard

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
)

const (
	// away is how long a VM may be out of sight until all about it is forgotten: its
	// pod will not come back.
	away = 10 * time.Minute
	// several VMs, and one of few on which the lever acts, that trip within shortly tell
	// that it hurts on the node: a CPU that is crowded hurts several by itself.
	several = 3
	few     = 4
	shortly = time.Minute
	// fading halves what was seen of a symptom without the lever, which is taken off
	// twofold.
	fading  = 10 * time.Minute
	twofold = 2
	// MostTrips is how many are remembered at most: the newest.
	MostTrips = 1024
)

// key names a lever of a VM, or of all VMs of the node when the pod's UID is empty.
type key struct {
	podUID string
	lever  model.Lever
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

// New returns a Guard that remembers the trips of an earlier one. What no guard would
// have left, such as a trip of the future, is not taken over.
func New(trips []model.Trip, now time.Time) *Guard {
	g := &Guard{vms: map[string]*past{}, trips: map[key]model.Trip{}}
	for i := range trips {
		t := &trips[i]
		if t.Count < 1 || t.Time.After(now) || t.Until.Sub(t.Time) > model.LongestCoolDown || len(g.trips) >= MostTrips {
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

// See takes in a round, and returns the levers that are to be undone from now on.
func (g *Guard) See(r *Round) []model.Trip {
	var news []model.Trip
	for i := range r.VMs {
		vm := &r.VMs[i]
		p := g.vms[vm.PodUID]
		if p == nil {
			p = &past{symptoms: map[model.Symptom]history{}}
			g.vms[vm.PodUID] = p
		}
		p.seen = r.Time
		for _, reading := range r.readings(vm) {
			if p.hurts(r.Time, &reading) && !g.holds(key{vm.PodUID, reading.lever}, r.Time) {
				news = append(news, g.trip(vm, &reading, r.Time))
			}
		}
	}
	for _, lever := range []model.Lever{model.LeverAffinity, model.LeverBuffering} {
		if last, together := g.together(lever, r); together {
			news = append(news, g.trip(&VM{}, &reading{symptom: last.Symptom, lever: lever, value: last.Value, limit: last.Limit}, r.Time))
		}
	}
	g.forget(r.Time)
	return news
}

// hurts takes in a reading, and tells whether the lever is to be undone for it. What the
// VM has as much of without the lever is no symptom of it.
func (p *past) hurts(now time.Time, r *reading) bool {
	if p.symptoms == nil {
		p.symptoms = map[model.Symptom]history{}
	}
	h := p.symptoms[r.symptom]
	without := h.without * math.Exp2(-max(0, now.Sub(h.at).Seconds())/fading.Seconds())
	switch r.setting {
	case Off:
		h = history{without: max(without, r.value), at: now}
	case On:
		if r.value-twofold*without >= r.limit {
			h.rounds++
		} else {
			h.rounds = 0
		}
	default:
		h.rounds = 0
	}
	p.symptoms[r.symptom] = h
	return h.rounds >= r.rounds
}

// trip remembers that a lever is undone.
func (g *Guard) trip(vm *VM, r *reading, now time.Time) model.Trip {
	k := key{vm.PodUID, r.lever}
	before := g.trips[k]
	count := min(model.MostRemembered, 1+remembered(&before, now))
	t := model.Trip{
		PodUID: vm.PodUID, Namespace: vm.Namespace, Name: vm.Name, Lever: r.lever,
		Symptom: r.symptom, Value: r.value, Limit: r.limit, Time: now, Until: now.Add(model.CoolDown(count)), Count: count,
	}
	g.trips[k] = t
	return t
}

// remembered is how many trips of a lever still are, up to one.
func remembered(t *model.Trip, now time.Time) int {
	return model.Remembered(t.Count, now.Sub(t.Until))
}

// holds tells whether a lever is undone for a VM, or all VMs.
func (g *Guard) holds(k key, now time.Time) bool {
	t, known := g.trips[k]
	return known && now.Before(t.Until)
}

// together tells whether several VMs tripped shortly, after the node did last, and
// returns the last of these trips.
func (g *Guard) together(lever model.Lever, r *Round) (last model.Trip, so bool) {
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
		if vm := &r.VMs[i]; lever == model.LeverAffinity && vm.Affinity == On || lever == model.LeverBuffering && vm.Buffering == On {
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
	if len(g.trips) > MostTrips {
		for _, t := range g.Trips()[MostTrips:] {
			delete(g.trips, key{t.PodUID, t.Lever})
		}
	}
}

// Undone returns the trip for which a lever stays undone for a VM now: its own, or that of
// all VMs of the node.
func (g *Guard) Undone(podUID string, lever model.Lever, now time.Time) (model.Trip, bool) {
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
