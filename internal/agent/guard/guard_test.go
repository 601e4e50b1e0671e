package guard

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/symptoms"
	"github.com/joulevirt/joulevirt/internal/units"
)

func noon() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }

func number[T any](n T) *T { return &n }

// bound is a VM with a thread that is bound to CPU 0 of 0-3 and waits for so much.
func bound(wait units.Cores) symptoms.VM {
	return symptoms.VM{
		PodUID: "pod", Namespace: "shop", Name: "web", Affinity: symptoms.On, Cpuset: units.NewCPUSet(0, 1, 2, 3),
		Threads: []symptoms.Thread{{CPUs: units.NewCPUSet(0), Wait: wait}, {CPUs: units.NewCPUSet(0, 1, 2, 3), Wait: 0.9}},
	}
}

// held is a VM whose packets are held: 100,000 packets/s of 1,000 bytes for 1 ms.
func held(change func(*symptoms.Packets)) symptoms.VM {
	vm := symptoms.VM{PodUID: "pod", Buffering: symptoms.On, Packets: symptoms.Packets{Handed: 100_000, Bits: 8e8, Window: time.Millisecond}}
	change(&vm.Packets)
	return vm
}

func with(vm symptoms.VM, change func(*symptoms.VM)) symptoms.VM {
	change(&vm)
	return vm
}

// idling are four CPUs of which the first is busy.
func idling() []float64 { return []float64{0, 0.1, 0.2, 0.6} }

func TestSymptoms(t *testing.T) {
	for name, test := range map[string]struct {
		idle   []float64
		vm     symptoms.VM
		rounds int // of the same symptoms until it trips; 0: never
		want   model.Trip
	}{
		"nothing":                {idling(), symptoms.VM{PodUID: "pod", Affinity: symptoms.On, Buffering: symptoms.On}, 0, model.Trip{}},
		"no wait":                {idling(), bound(0), 0, model.Trip{}},
		"some wait":              {idling(), bound(0.24), 0, model.Trip{}},
		"waits":                  {idling(), bound(0.25), 1, model.Trip{Symptom: model.SymptomRunDelay, Value: 25, Limit: 25}},
		"waits all the time":     {idling(), bound(1), 1, model.Trip{Symptom: model.SymptomRunDelay, Value: 100, Limit: 25}},
		"only its own CPU idles": {[]float64{1, 0.1, 0.1, 0.1}, bound(0.9), 0, model.Trip{}},
		"no CPU idles":           {[]float64{0, 0, 0, 0}, bound(1), 0, model.Trip{}},
		"some CPU idles now and then": {[]float64{0, 0.25, 0.25, 0.25}, bound(0.5), 1,
			model.Trip{Symptom: model.SymptomRunDelay, Value: 50, Limit: 25}},
		"a CPU idles that is not its": {[]float64{0, 0, 0, 0, 1, 1}, bound(1), 0, model.Trip{}},
		"CPUs are not known":          {nil, bound(1), 0, model.Trip{}},
		"just bound":                  {idling(), with(bound(1), func(vm *symptoms.VM) { vm.Affinity = symptoms.Unsure }), 0, model.Trip{}},
		"not bound":                   {idling(), with(bound(1), func(vm *symptoms.VM) { vm.Affinity = symptoms.Off }), 0, model.Trip{}},

		"held": {nil, held(func(p *symptoms.Packets) {
			p.Dropped, p.Backlog = number(units.PacketsPerSecond(0)), number(uint64(100_000))
		}), 0, model.Trip{}},
		"the queue drops": {nil, held(func(p *symptoms.Packets) { p.Handed, p.Dropped = 99_800, number(units.PacketsPerSecond(200)) }), 1,
			model.Trip{Symptom: model.SymptomQueueDrops, Value: 2000, Limit: 1000}},
		"the queue drops all": {nil, held(func(p *symptoms.Packets) { p.Handed, p.Dropped = 0, number(units.PacketsPerSecond(500)) }), 1,
			model.Trip{Symptom: model.SymptomQueueDrops, Value: 1e6, Limit: 1000}},
		"the queue drops a few of few": {nil, held(func(p *symptoms.Packets) { p.Handed, p.Dropped = 100, number(units.PacketsPerSecond(9)) }), 0, model.Trip{}},
		"the ring overruns": {nil, held(func(p *symptoms.Packets) { p.Handed, p.Overrun = 98_000, 2000 }), 1,
			model.Trip{Symptom: model.SymptomRingOverrun, Value: 20_000, Limit: 10_000}},
		"the ring overruns, a vCPU has no time left": {nil, with(held(func(p *symptoms.Packets) { p.Overrun = 50_000 }),
			func(vm *symptoms.VM) { vm.Threads = []symptoms.Thread{{Run: 0.9}} }), 0, model.Trip{}},
		"the ring overruns, a thread lags": {nil, with(held(func(p *symptoms.Packets) { p.Overrun = 50_000 }),
			func(vm *symptoms.VM) { vm.Threads = []symptoms.Thread{{Wait: 0.1}} }), 0, model.Trip{}},
		"the ring overruns seldom": {nil, held(func(p *symptoms.Packets) { p.Handed, p.Overrun = 99_500, 500 }), 0, model.Trip{}},
		"the ring overruns, nothing is held": {nil, with(held(func(p *symptoms.Packets) { p.Overrun = 50_000 }),
			func(vm *symptoms.VM) { vm.Buffering = symptoms.Off }), 0, model.Trip{}},
		// 6 ms of 100 MB/s, and 128 KiB.
		"a backlog": {nil, held(func(p *symptoms.Packets) { p.Backlog = number(uint64(731_073)) }), 2,
			model.Trip{Symptom: model.SymptomBacklog, Value: 731_073, Limit: 731_072}},
		"a backlog that windows explain": {nil, held(func(p *symptoms.Packets) { p.Backlog = number(uint64(731_071)) }), 0, model.Trip{}},
	} {
		g := New(nil, noon())
		var trips []model.Trip
		rounds := 0
		for ; rounds < 5 && len(trips) == 0; rounds++ {
			trips = g.Observe(&symptoms.Round{Time: noon().Add(time.Duration(rounds) * time.Second), Over: time.Second, Idle: test.idle, VMs: []symptoms.VM{test.vm}})
		}
		if test.rounds == 0 {
			if len(trips) > 0 {
				t.Errorf("%s: tripped after %d rounds: %+v", name, rounds, trips)
			}
			continue
		}
		if len(trips) != 1 || rounds != test.rounds {
			t.Errorf("%s: after %d rounds %+v, want %d rounds", name, rounds, trips, test.rounds)
			continue
		}
		got := model.Trip{Symptom: trips[0].Symptom, Value: trips[0].Value, Limit: trips[0].Limit}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if trips[0].PodUID != "pod" || trips[0].Count != 1 {
			t.Errorf("%s: trip %+v", name, trips[0])
		}
	}
}

// A VM that its container's quota of CPU time throttles waits whether it is bound or not.
func TestWhatIsThereWithoutTheLeverIsNoSymptom(t *testing.T) {
	g := New(nil, noon())
	observe := func(at time.Duration, vm symptoms.VM) []model.Trip {
		return g.Observe(&symptoms.Round{Time: noon().Add(at), Over: time.Second, Idle: idling(), VMs: []symptoms.VM{vm}})
	}
	free := bound(0.4)
	free.Affinity, free.Threads = symptoms.Off, free.Threads[:1]
	observe(0, free)
	for s := range 60 {
		if trips := observe(time.Duration(1+s)*time.Second, bound(0.9)); len(trips) > 0 {
			t.Fatalf("tripped after %d s: %+v", s, trips)
		}
	}
	// Half of what was seen counts after 10 minutes, a quarter after 20, twofold.
	if trips := observe(20*time.Minute, bound(0.44)); len(trips) != 0 {
		t.Errorf("what was observed is forgotten too soon: %+v", trips)
	}
	if trips := observe(21*time.Minute, bound(0.46)); len(trips) != 1 {
		t.Errorf("what was observed long ago still counts: %+v", trips)
	}
}

func TestASymptomOfMomentsTakesTwoInARow(t *testing.T) {
	g := New(nil, noon())
	long := held(func(p *symptoms.Packets) { p.Backlog = number(uint64(10_000_000)) })
	short := held(func(p *symptoms.Packets) { p.Backlog = number(uint64(0)) })
	for s, vm := range []symptoms.VM{long, short, long, short, with(long, func(vm *symptoms.VM) { vm.Buffering = symptoms.Unsure }), long, short, long} {
		if trips := g.Observe(&symptoms.Round{Time: noon().Add(time.Duration(s) * time.Second), Over: time.Second, VMs: []symptoms.VM{vm}}); len(trips) > 0 {
			t.Errorf("tripped in round %d: %+v", s, trips)
		}
	}
}

func TestTheCoolDownDoubles(t *testing.T) {
	g, now := New(nil, noon()), noon()
	want := 5 * time.Minute
	for count := 1; count < 15; count++ {
		trips := g.Observe(&symptoms.Round{Time: now, Over: time.Second, Idle: idling(), VMs: []symptoms.VM{bound(1)}})
		if len(trips) != 1 || trips[0].Count != min(count, model.MostRemembered) || trips[0].Until.Sub(now) != want {
			t.Fatalf("trip %d: %+v, want %v", count, trips, want)
		}
		for _, at := range []time.Duration{0, want / 2, want - 1} {
			if trip, undone := g.Undone("pod", v1alpha1.LeverAffinity, now.Add(at)); !undone || trip != trips[0] {
				t.Errorf("trip %d after %v: %v, %+v", count, at, undone, trip)
			}
		}
		if _, undone := g.Undone("pod", v1alpha1.LeverBuffering, now); undone {
			t.Error("another lever is undone too")
		}
		if now = now.Add(want); g.undone("pod", now) {
			t.Errorf("trip %d: undone after its cool-down", count)
		}
		want = min(24*time.Hour, 2*want)
	}
	// Each hour without one forgets one.
	for hour := range model.MostRemembered + 1 {
		g.Observe(&symptoms.Round{Time: now, Over: time.Second, VMs: []symptoms.VM{bound(0)}})
		now = now.Add(time.Hour)
		if trips := g.Trips(); (len(trips) == 0) != (hour >= model.MostRemembered) {
			t.Errorf("remembered after %d hours: %+v", hour, trips)
		}
	}
}

func (g *Guard) undone(podUID string, now time.Time) bool {
	_, is := g.Undone(podUID, v1alpha1.LeverAffinity, now)
	return is
}

func TestSeveralVMsUndoTheLeverOnTheNode(t *testing.T) {
	g, now := New(nil, noon()), noon()
	observe := func(pods ...string) []model.Trip {
		r := &symptoms.Round{Time: now, Over: time.Second, Idle: idling()}
		for _, pod := range pods {
			r.VMs = append(r.VMs, with(bound(1), func(vm *symptoms.VM) { vm.PodUID = pod }))
		}
		now = now.Add(time.Second)
		return g.Observe(r)
	}
	observe("a", "b")
	now = now.Add(2 * time.Minute)
	if observe("c"); g.undone("other", now) {
		t.Error("three trips in two minutes undid the lever on the node")
	}
	observe("d")
	trips := observe("e")
	if len(trips) != 2 || trips[1].PodUID != "" || trips[1].Count != 1 || trips[1].Symptom != model.SymptomRunDelay || trips[1].Until.Sub(trips[1].Time) != 5*time.Minute {
		t.Errorf("trips %+v", trips)
	}
	if !g.undone("other", now) || g.undone("other", now.Add(5*time.Minute)) {
		t.Error("the lever is not undone on the node for 5 minutes")
	}
	now = now.Add(6 * time.Minute)
	if trips := observe("f", "g"); len(trips) != 2 {
		t.Errorf("earlier trips count again: %+v", trips)
	}
	if trips := observe("h"); len(trips) != 2 || trips[1].Count != 2 {
		t.Errorf("the node's second trip: %+v", trips)
	}
}

func TestARestartedGuardRemembers(t *testing.T) {
	g := New(nil, noon())
	g.Observe(&symptoms.Round{Time: noon(), Over: time.Second, Idle: idling(), VMs: []symptoms.VM{bound(1)}})
	trips := g.Trips()
	later := noon().Add(time.Minute)
	next := New(trips, later)
	if !next.undone("pod", later) || next.undone("pod", noon().Add(5*time.Minute)) {
		t.Error("the trip is not as it was")
	}
	next.Observe(&symptoms.Round{Time: later, Over: time.Second})
	if diff := cmp.Diff(trips, next.Trips()); diff != "" {
		t.Errorf("after a round without the VM (-want +got):\n%s", diff)
	}
	next.Observe(&symptoms.Round{Time: later.Add(11 * time.Minute), Over: time.Second})
	if trips := next.Trips(); len(trips) != 0 {
		t.Errorf("of a VM that is gone: %+v", trips)
	}
	future := trips[0]
	future.Time = later.Add(time.Second)
	if got := New([]model.Trip{future}, later).Trips(); len(got) != 0 {
		t.Errorf("a trip of the future is taken over: %+v", got)
	}
}

// Whatever rounds show: nothing trips that is below its limits, whatever hurts in full is
// undone after two rounds at most, and VMs that come and go leave nothing behind.
func TestProperties(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	g, now := New(nil, noon()), noon()
	for round := range 3000 {
		now = now.Add(time.Second)
		r := &symptoms.Round{Time: now, Over: time.Second, Idle: []float64{rng.Float64(), rng.Float64(), rng.Float64(), 1}}
		hurt := map[string]int{}
		for i := range 5 {
			pod := fmt.Sprintf("pod-%d-%d", i, round/(2+i))
			vm := bound(units.Cores(rng.Float64() * 0.249))
			vm.PodUID = pod
			if rng.IntN(200) == 0 && !g.undone(pod, now) {
				vm.Threads[0].Wait = units.Cores(0.25 + 0.75*rng.Float64())
				hurt[pod]++
			}
			if g.undone(pod, now) {
				vm.Affinity, vm.Threads[0].CPUs = symptoms.Off, vm.Cpuset
			}
			vm.Buffering, vm.Packets = symptoms.On, held(func(p *symptoms.Packets) {
				p.Overrun = units.PacketsPerSecond(rng.Float64() * 900)
				p.Backlog = number(rng.Uint64N(700_000))
			}).Packets
			r.VMs = append(r.VMs, vm)
		}
		for _, trip := range g.Observe(r) {
			if trip.PodUID != "" && hurt[trip.PodUID] == 0 {
				t.Fatalf("round %d: %+v was not hurt", round, trip)
			}
			delete(hurt, trip.PodUID)
		}
		if len(hurt) > 0 {
			t.Fatalf("round %d: %v were hurt and not undone", round, hurt)
		}
		// Those of ten minutes, the shortest-lived of which stay for 2 s.
		if most := 5 * 601; len(g.vms) > most || len(g.trips) > most {
			t.Fatalf("round %d: %d VMs and %d trips are remembered", round, len(g.vms), len(g.trips))
		}
	}
	if len(g.Trips()) == 0 {
		t.Error("nothing ever tripped")
	}
	g.Observe(&symptoms.Round{Time: now.Add(11 * time.Minute), Over: time.Second})
	for _, trip := range g.Trips() {
		if trip.PodUID != "" {
			t.Errorf("%+v of a VM that is gone is remembered", trip)
		}
	}
	if len(g.vms) > 0 {
		t.Errorf("%d VMs that are gone are remembered", len(g.vms))
	}
}
