package tuning

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

const us = time.Microsecond

func noon() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }

// every VM is known, and may be held from 10,000 packets/s on.
func every() Circumstances {
	return Circumstances{VM: func(string) (VM, bool) { return VM{LeastRate: 10_000}, true }}
}

// ratesOf a VM that gets 12,000 packets/s and sends 4,000, a quarter of which wake one of
// its threads, and is held in a window all the time. A window below 0: the agent does not
// tell of the lever.
func ratesOf(pod string, window time.Duration, changes ...func(*model.VMRates)) *model.NodeRates {
	vm := model.VMRates{
		PodUID: pod, Vhost: model.ThreadRates{RunCores: 0.16, SwitchesPerSecond: 4000},
		Taps: []model.TapRates{{
			ToVM:   model.TrafficRates{PacketsPerSecond: 12_000, BitsPerSecond: 12e6},
			FromVM: model.TrafficRates{PacketsPerSecond: 4_000, BitsPerSecond: 4e6},
		}},
	}
	if window >= 0 {
		drops := units.PacketsPerSecond(0)
		vm.Buffering = &model.BufferingRates{WindowMicroseconds: int(window / us), DropsPerSecond: &drops}
		if window > 0 {
			vm.Buffering.ActiveShare = 1
		}
	}
	for _, change := range changes {
		change(&vm)
	}
	return &model.NodeRates{Node: "n", IntervalSeconds: 1, VMs: []model.VMRates{vm}}
}

func drops(perSecond units.PacketsPerSecond) func(*model.VMRates) {
	return func(v *model.VMRates) { v.Buffering.DropsPerSecond = &perSecond }
}

// heardStore is a store with its clock.
type heardStore struct {
	*Store
	clock *testingclock.FakePassiveClock
}

func newHeard() *heardStore {
	clock := testingclock.NewFakePassiveClock(noon())
	return &heardStore{NewStore(clock, time.Minute), clock}
}

// hear takes in a round again and again, each 15 s, and reports how often there were news.
func (h *heardStore) hear(rounds int, rates *model.NodeRates, of Circumstances) (news int) {
	for range rounds {
		h.clock.SetTime(h.clock.Now().Add(15 * time.Second))
		if h.Add(rates, of) {
			news++
		}
	}
	return news
}

func TestTrials(t *testing.T) {
	h := newHeard()
	if diff := cmp.Diff(model.Tuning{}, h.Of("a"), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("an empty store knows something:\n%s", diff)
	}
	if news := h.hear(20, ratesOf("a", -1), every()); news != 1 {
		t.Errorf("%d news of 20 rounds without packets held, want 1", news)
	}
	since := h.clock.Now().Add(15 * time.Second)
	fewer := func(v *model.VMRates) { v.Vhost = model.ThreadRates{RunCores: 0.08, SwitchesPerSecond: 1000} }
	if news := h.hear(42, ratesOf("a", 250*us, fewer), every()); news != 1 {
		t.Errorf("%d news of 42 rounds with packets held, want 1", news)
	}
	want := model.Tuning{Since: since, Trials: []model.Trial{
		{Seconds: 20, PacketsPerSecond: 16_000, FastestPerSecond: 12_000, BitsPerSecond: 16e6, WakeUpsPerPacket: 0.25, CoresPerPacket: 1e-5},
		// The first two tell of drops before.
		{Window: 250 * us, Seconds: 40, PacketsPerSecond: 16_000, FastestPerSecond: 12_000, BitsPerSecond: 16e6, WakeUpsPerPacket: 0.0625, CoresPerPacket: 5e-6},
	}}
	near := cmpopts.EquateApprox(1e-9, 0)
	if diff := cmp.Diff(want, h.Of("a"), near, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	h.hear(1000, ratesOf("a", 250*us), every())
	if got := h.Of("a").Trials[1]; math.Abs(got.Seconds-600) > 1e-6 || got.WakeUpsPerPacket < 0.2 {
		t.Errorf("what is old does not fade: %+v", got)
	}
	h.clock.SetTime(h.clock.Now().Add(30 * time.Second))
	if got := h.Of("a").Trials; len(got) != 2 {
		t.Errorf("trials %+v of a VM that was heard of", got)
	}
	h.hear(24*60*4, ratesOf("a", 250*us), every())
	if got := h.Of("a").Trials; len(got) != 1 || got[0].Window != 250*us {
		t.Errorf("after a day: %+v, want the window in force alone", got)
	}
}

// Rounds that say nothing of a window leave no trace in trials.
func TestRoundsThatDoNotCount(t *testing.T) {
	slow := func(v *model.VMRates) { v.Taps[0].ToVM.PacketsPerSecond = 9_999 }
	for name, tc := range map[string]*model.NodeRates{
		"too slow to be held": ratesOf("a", 0, slow),
		"held for a part":     ratesOf("a", 250*us, func(v *model.VMRates) { v.Buffering.ActiveShare = 0.8 }),
		"a flood":             ratesOf("a", 250*us, drops(5000), func(v *model.VMRates) { v.Buffering.Flood = &model.Flood{} }),
		"no packets":          ratesOf("a", 250*us, func(v *model.VMRates) { v.Taps = nil }),
		"losses of a flood":   ratesOf("a", 0, drops(5000), slow),
	} {
		h := newHeard()
		h.hear(40, tc, every())
		if got := h.Of("a"); len(got.Trials)+len(got.Hurts) > 0 {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestWhoMaySpeak(t *testing.T) {
	h := newHeard()
	of := Circumstances{VM: func(pod string) (VM, bool) { return VM{LeastRate: 10_000}, pod == "a" }}
	h.hear(10, ratesOf("a", 0), of)
	other := ratesOf("a", 250*us, drops(5000))
	other.Node = "m"
	for range 10 {
		h.Add(other, of)
		h.Add(ratesOf("nobody's", 0), of)
	}
	if got := h.Of("a"); h.Len() != 1 || len(got.Trials) != 1 || got.Trials[0].Seconds != 10 || len(got.Hurts) > 0 {
		t.Errorf("%d VMs, %+v", h.Len(), got)
	}
	h.clock.SetTime(h.clock.Now().Add(61 * time.Second))
	if got := h.Of("a"); len(got.Trials) > 0 {
		t.Errorf("of a VM that was not heard of: %+v", got)
	}
	h.Sweep()
	if h.Len() != 0 {
		t.Errorf("%d VMs are followed", h.Len())
	}
}

// Packets that are lost with a window and not without bar it for an hour.
func TestLossHurts(t *testing.T) {
	none, tenth := 0.0, 0.1
	for name, tc := range map[string]struct {
		of     VM
		before *model.NodeRates
		lost   units.PacketsPerSecond
		hurts  bool
	}{
		"at the first sign":      {VM{}, ratesOf("a", 0), 12, true},
		"as many as it may lose": {VM{MaxDrops: &tenth}, ratesOf("a", 0), 1000, false},
		"more than it may lose":  {VM{MaxDrops: &tenth}, ratesOf("a", 0), 2000, true},
		"it may lose none":       {VM{MaxDrops: &none}, ratesOf("a", 0), 10, true},
		"a few packets":          {VM{}, ratesOf("a", 0), 1, false},
		"as many as without":     {VM{}, ratesOf("a", 0, drops(200)), 200, false},
		"many more than without": {VM{}, ratesOf("a", 0, drops(20)), 200, true},
	} {
		h := newHeard()
		of := Circumstances{VM: func(string) (VM, bool) {
			tc.of.LeastRate = 10_000
			return tc.of, true
		}}
		h.hear(20, tc.before, of)
		h.hear(2, ratesOf("a", 250*us), of)
		news := h.hear(1, ratesOf("a", 250*us, drops(tc.lost)), of)
		var want []model.Hurt
		if tc.hurts {
			want = []model.Hurt{{Window: 250 * us, Until: h.clock.Now().Add(time.Hour), Why: "packets were lost on the node"}}
		}
		if diff := cmp.Diff(want, h.Of("a").Hurts, cmpopts.EquateEmpty()); diff != "" || news != len(want) {
			t.Errorf("%s: %d news (-want +got):\n%s", name, news, diff)
		}
		if tc.hurts {
			if news := h.hear(59*4, ratesOf("a", 500*us, drops(500)), of); news != 0 {
				t.Errorf("%s: %d news of a window that is barred", name, news)
			}
			h.hear(8, ratesOf("a", 0), of)
			if got := h.Of("a").Hurts; len(got) > 0 {
				t.Errorf("%s: after an hour: %+v", name, got)
			}
		}
	}
}

// Throughput that falls by more than the profile allows, and by more than noise, bars a longer
// window.
func TestThroughputHurts(t *testing.T) {
	for name, tc := range map[string]struct {
		keep      float64
		with      float64
		disturbed bool
		hurts     bool
	}{
		"falls":                                    {0, 60, false, true},
		"falls while something else disturbs":      {0, 60, true, false},
		"falls by what the profile allows":         {0.5, 60, false, false},
		"falls by less than a tenth":               {0, 94, false, true},
		"falls by less than three hundredths":      {0, 98, false, false},
		"falls by more than is allowed, and noise": {0.99, 99, false, false},
		"falls by what the profile does not allow": {0.95, 85, false, true},
		"does not fall":                            {0, 100, false, false},
	} {
		h := newHeard()
		noise := rand.New(rand.NewPCG(1, 2))
		send := func(rounds int, window time.Duration, mbps float64) {
			of := Circumstances{VM: func(string) (VM, bool) {
				return VM{LeastRate: 10_000, KeepThroughput: tc.keep, Disturbed: tc.disturbed}, true
			}}
			for range rounds {
				h.hear(1, ratesOf("a", window, func(v *model.VMRates) {
					v.Taps[0].ToVM.BitsPerSecond = units.BitsPerSecond(mbps * 1e6 * (0.9 + 0.2*noise.Float64()))
					v.Taps[0].FromVM.BitsPerSecond = 0
				}), of)
			}
		}
		send(40, 250*us, 100)
		send(200, 500*us, tc.with) // of a second each
		if got := h.Of("a").Hurts; (len(got) > 0) != tc.hurts || tc.hurts && got[0].Why != "throughput fell" {
			t.Errorf("%s: hurts %+v", name, got)
		}
		// A window that held is not compared in each block of a trial.
		if !tc.hurts {
			send(40, 0, 100)
			send(40, 500*us, 50)
			if got := h.Of("a").Hurts; len(got) > 0 && !tc.disturbed {
				t.Errorf("%s: hurts %+v in a later block", name, got)
			}
		}
	}
}

// Agents tell of drops up to half a minute late: those of a flood count for no window.
func TestLossAfterAFlood(t *testing.T) {
	h := newHeard()
	h.hear(20, ratesOf("a", 250*us), every())
	h.hear(1, ratesOf("a", 250*us, func(v *model.VMRates) { v.Buffering.Flood = &model.Flood{} }), every())
	h.hear(2, ratesOf("a", 250*us, drops(500)), every())
	if got := h.Of("a").Hurts; len(got) > 0 {
		t.Errorf("in the half minute after: %+v", got)
	}
	h.hear(1, ratesOf("a", 250*us, drops(500)), every())
	if got := h.Of("a").Hurts; len(got) != 1 {
		t.Errorf("later: %+v", got)
	}
}

// A window for which the node's guard tripped is barred; each trip counts once, and old ones
// not at all.
func TestTrips(t *testing.T) {
	trip := func(pod string, lever v1alpha1.Lever, ago time.Duration) func(*model.NodeRates) {
		return func(r *model.NodeRates) {
			r.Time = noon()
			r.Trips = []model.Trip{{PodUID: pod, Lever: lever, Symptom: model.SymptomRingOverrun, Time: noon().Add(-ago)}}
		}
	}
	for name, tc := range map[string]struct {
		trip func(*model.NodeRates)
		// before is how many rounds without packets held there were.
		before int
		window time.Duration
		own    int
	}{
		"a shorter one is known":    {trip("a", v1alpha1.LeverBuffering, time.Second), 20, 250 * us, 1},
		"none is":                   {trip("a", v1alpha1.LeverBuffering, time.Second), 0, 250 * us, 1},
		"of another lever":          {trip("a", v1alpha1.LeverAffinity, time.Second), 20, 250 * us, 0},
		"of another VM":             {trip("b", v1alpha1.LeverBuffering, time.Second), 20, 250 * us, 0},
		"of the node":               {trip("", v1alpha1.LeverBuffering, time.Second), 20, 250 * us, 0},
		"of long ago":               {trip("a", v1alpha1.LeverBuffering, time.Hour), 20, 250 * us, 0},
		"of the future":             {trip("a", v1alpha1.LeverBuffering, -time.Hour), 20, 250 * us, 0},
		"without a window in force": {trip("a", v1alpha1.LeverBuffering, time.Second), 20, 0, 0},
	} {
		h := newHeard()
		h.hear(tc.before, ratesOf("a", 0), every())
		h.hear(5, ratesOf("a", tc.window), every())
		round := ratesOf("a", -1) // nothing is held any more
		tc.trip(round)
		news := h.hear(3, round, every())
		if got := h.Of("a").Hurts; len(got) != tc.own || tc.own > 0 && (got[0].Window != tc.window || got[0].Why != "the node's agent let go of the packets") {
			t.Errorf("%s: hurts %+v of the VM", name, got)
		}
		if (news > 0) != (tc.own > 0) || news > 1 {
			t.Errorf("%s: %d news", name, news)
		}
	}
}
