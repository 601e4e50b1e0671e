package tuning

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

const us = time.Microsecond

func noon() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }

func profile() types.NamespacedName { return types.NamespacedName{Namespace: "ns", Name: "pr"} }

// every VM is known, and may be held from 10,000 packets/s on.
func every() Circumstances {
	return Circumstances{VM: func(string) (VM, bool) { return VM{Profile: profile(), OnPackets: 10_000}, true }}
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

// hear takes in a round again and again, each 15 s, and tells how often there were news.
func (h *heardStore) hear(rounds int, rates *model.NodeRates, of Circumstances) (news int) {
	for range rounds {
		h.clock.SetTime(h.clock.Now().Add(15 * time.Second))
		if h.Add(rates, of).Plan {
			news++
		}
	}
	return news
}

func TestTrials(t *testing.T) {
	h := newHeard()
	if diff := cmp.Diff(model.Tuning{}, h.Of("a", profile()), cmpopts.EquateEmpty()); diff != "" {
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
		{Seconds: 20, PacketsPerSecond: 16_000, BitsPerSecond: 16e6, WakeUpsPerPacket: 0.25, CoresPerPacket: 1e-5},
		// The first two tell of drops before.
		{Window: 250 * us, Seconds: 40, PacketsPerSecond: 16_000, BitsPerSecond: 16e6, WakeUpsPerPacket: 0.0625, CoresPerPacket: 5e-6},
	}}
	near := cmpopts.EquateApprox(1e-9, 0)
	if diff := cmp.Diff(want, h.Of("a", profile()), near, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	h.hear(1000, ratesOf("a", 250*us), every())
	if got := h.Of("a", profile()).Trials[1]; math.Abs(got.Seconds-600) > 1e-6 || got.WakeUpsPerPacket < 0.2 {
		t.Errorf("what is old does not fade: %+v", got)
	}
	h.clock.SetTime(h.clock.Now().Add(30 * time.Second))
	if got := h.Of("a", profile()).Trials; len(got) != 2 {
		t.Errorf("trials %+v of a VM that was heard of", got)
	}
	h.hear(24*60*4, ratesOf("a", 250*us), every())
	if got := h.Of("a", profile()).Trials; len(got) != 1 || got[0].Window != 250*us {
		t.Errorf("after a day: %+v, want the window in force alone", got)
	}
}

// Rounds that say nothing of a window leave no trace in trials.
func TestRoundsThatDoNotCount(t *testing.T) {
	slow := func(v *model.VMRates) { v.Taps[0].ToVM.PacketsPerSecond = 9_999 }
	for name, tc := range map[string]*model.NodeRates{
		"too slow to be held":  ratesOf("a", 0, slow),
		"held for a part":      ratesOf("a", 250*us, func(v *model.VMRates) { v.Buffering.ActiveShare = 0.8 }),
		"a flood":              ratesOf("a", 250*us, drops(5000), func(v *model.VMRates) { v.Buffering.Flood = &model.Flood{} }),
		"no packets":           ratesOf("a", 250*us, func(v *model.VMRates) { v.Taps = nil }),
		"no window":            ratesOf("a", 300*us),
		"a window below 0":     ratesOf("a", 0, func(v *model.VMRates) { v.Buffering.WindowMicroseconds = -125 }),
		"not a number":         ratesOf("a", 250*us, drops(units.PacketsPerSecond(math.NaN()))),
		"less than nothing":    ratesOf("a", 250*us, func(v *model.VMRates) { v.Vhost.SwitchesPerSecond = -1 }),
		"more than there is":   ratesOf("a", 250*us, func(v *model.VMRates) { v.Taps[0].FromVM.BitsPerSecond = units.BitsPerSecond(math.Inf(1)) }),
		"an impossible share":  ratesOf("a", 250*us, func(v *model.VMRates) { v.Buffering.ActiveShare = math.NaN() }),
		"losses of a flood":    ratesOf("a", 0, drops(5000), slow),
		"a window of no sense": ratesOf("a", 0, func(v *model.VMRates) { v.Buffering.WindowMicroseconds = math.MaxInt }),
	} {
		h := newHeard()
		h.hear(40, tc, every())
		if got := h.Of("a", profile()); len(got.Trials)+len(got.Hurts) > 0 {
			t.Errorf("%s: %+v", name, got)
		}
	}
	for _, seconds := range []float64{0, -1, math.NaN(), math.Inf(1), 601} {
		h, rates := newHeard(), ratesOf("a", 250*us)
		rates.IntervalSeconds = seconds
		h.hear(40, rates, every())
		if got := h.Of("a", profile()); len(got.Trials) > 0 {
			t.Errorf("rounds of %v s: %+v", seconds, got)
		}
	}
}

// An agent that starts does not tell of its programs at once.
func TestSilenceOfTheAgent(t *testing.T) {
	h := newHeard()
	h.hear(35, ratesOf("a", 250*us), every())
	h.hear(2, ratesOf("a", -1), every())
	h.hear(5, ratesOf("a", 250*us), every())
	if got := h.Of("a", profile()); len(got.Trials) != 1 || got.Trials[0].Seconds != 40 || !got.Since.IsZero() {
		t.Errorf("after two silent rounds: %+v", got)
	}
	h.hear(12, ratesOf("a", -1), every())
	if got := h.Of("a", profile()); len(got.Trials) != 2 || got.Trials[0].Seconds != 8 {
		t.Errorf("after silence for good: %+v", got)
	}
}

// What packets cost is compared at like rates: those at which they commonly come.
func TestPaces(t *testing.T) {
	h := newHeard()
	fast := func(v *model.VMRates) { v.Taps[0].ToVM.PacketsPerSecond = 60_000 }
	h.hear(20, ratesOf("a", 0), every())
	h.hear(10, ratesOf("a", 0, fast), every())
	rate := func() units.PacketsPerSecond { return h.Of("a", profile()).Trials[0].PacketsPerSecond }
	if got := rate(); got != 16_000 {
		t.Errorf("told of %v packets/s, want those that were more common", got)
	}
	h.hear(14, ratesOf("a", 0, fast), every())
	if got := rate(); got != 16_000 {
		t.Errorf("told of %v packets/s, and others are hardly more common", got)
	}
	h.hear(26, ratesOf("a", 0, fast), every())
	if got := rate(); got != 64_000 {
		t.Errorf("told of %v packets/s, want those that are more common by now", got)
	}
	h.hear(20, ratesOf("a", 250*us, fast), every())
	if got := h.Of("a", profile()).Trials; len(got) != 2 || got[0].PacketsPerSecond != 64_000 || got[1].PacketsPerSecond != 64_000 {
		t.Errorf("trials of unlike rates: %+v", got)
	}
}

func TestLossHurts(t *testing.T) {
	none, tenth := 0.0, 0.1
	for name, tc := range map[string]struct {
		of     VM
		before *model.NodeRates
		lost   units.PacketsPerSecond
		want   time.Duration // remembered for the profile
	}{
		"at the first sign":      {VM{}, ratesOf("a", 0), 12, 250 * us},
		"as many as it may lose": {VM{MaxDrops: &tenth}, ratesOf("a", 0), 1000, 0},
		"more than it may lose":  {VM{MaxDrops: &tenth}, ratesOf("a", 0), 2000, 250 * us},
		"it may lose none":       {VM{MaxDrops: &none}, ratesOf("a", 0), 10, 250 * us},
		"a few packets":          {VM{}, ratesOf("a", 0), 1, 0},
		"as many as without":     {VM{}, ratesOf("a", 0, drops(200)), 200, 0},
		"many more than without": {VM{}, ratesOf("a", 0, drops(20)), 200, 250 * us},
	} {
		h := newHeard()
		of := Circumstances{VM: func(string) (VM, bool) {
			tc.of.Profile, tc.of.OnPackets = profile(), 10_000
			return tc.of, true
		}}
		h.hear(20, tc.before, of)
		h.hear(2, ratesOf("a", 250*us), of)
		news := h.hear(1, ratesOf("a", 250*us, drops(tc.lost)), of)
		var want []model.Hurt
		if tc.want > 0 {
			want = []model.Hurt{{Window: tc.want, Until: h.clock.Now().Add(24 * time.Hour), Why: signDrops}}
		}
		if diff := cmp.Diff(want, h.Of("another", profile()).Hurts, cmpopts.EquateEmpty()); diff != "" || news != len(want) {
			t.Errorf("%s: %d news (-want +got):\n%s", name, news, diff)
		}
		if got := h.Of("a", types.NamespacedName{Name: "another"}).Hurts; len(got) > 0 {
			t.Errorf("%s: another profile has %+v", name, got)
		}
	}
}

// Few drops in each round are a sign too, once there were enough of them.
func TestLittleLossHurtsLater(t *testing.T) {
	h := newHeard()
	h.hear(20, ratesOf("a", 0), every())
	rounds := 0
	for ; len(h.Of("a", profile()).Hurts) == 0 && rounds < 100; rounds++ {
		h.hear(1, ratesOf("a", 250*us, drops(2)), every())
	}
	if rounds != 7 {
		t.Errorf("2 of 12,000 packets lost each second hurt after %d rounds, want 7", rounds)
	}
}

// A window that hurt is remembered for a day, not tried for long by anybody else, and what
// is seen with it meanwhile neither counts nor prolongs it.
func TestHurtsAreForgotten(t *testing.T) {
	h := newHeard()
	h.hear(40, ratesOf("a", 125*us), every())
	h.hear(40, ratesOf("a", 250*us), every())
	h.hear(1, ratesOf("a", 250*us, drops(500)), every())
	if got := h.Of("a", profile()); len(got.Trials) != 1 || len(got.Hurts) != 1 {
		t.Errorf("what was seen with a window that hurt stays: %+v", got)
	}
	if news := h.hear(24*60*4-1, ratesOf("a", 500*us, drops(500)), every()); news != 0 {
		t.Errorf("%d news of a window that is not to be tried", news)
	}
	h.Sweep()
	if got := h.Of("b", profile()).Hurts; len(got) != 1 {
		t.Errorf("within a day: %+v", got)
	}
	h.hear(1, ratesOf("a", 125*us), every())
	h.Sweep()
	if got := h.Of("b", profile()).Hurts; len(got) != 0 {
		t.Errorf("after a day: %+v", got)
	}
	if len(h.profiles) != 0 {
		t.Errorf("profiles without a hurt are kept: %+v", h.profiles)
	}
}

// Loss of a VM that something else disturbs, or of which nothing is known but the window
// in force, counts for that VM, and not for long.
func TestLossThatMayBeOfSomethingElse(t *testing.T) {
	for name, tc := range map[string]struct {
		disturbed bool
		before    time.Duration
	}{
		"disturbed":             {true, 0},
		"nothing known without": {false, 250 * us},
	} {
		h := newHeard()
		of := Circumstances{VM: func(string) (VM, bool) {
			return VM{Profile: profile(), OnPackets: 10_000, Disturbed: tc.disturbed}, true
		}}
		h.hear(40, ratesOf("a", tc.before), of)
		h.hear(5, ratesOf("a", 250*us), of)
		h.hear(1, ratesOf("a", 250*us, drops(500)), of)
		want := []model.Hurt{{Window: 250 * us, Until: h.clock.Now().Add(time.Hour), Why: signDrops}}
		if diff := cmp.Diff(want, h.Of("a", profile()).Hurts, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if got := h.Of("b", profile()).Hurts; len(got) != 0 {
			t.Errorf("%s: another VM of the profile: %+v", name, got)
		}
	}
}

func TestWhoMaySpeak(t *testing.T) {
	h := newHeard()
	of := Circumstances{VM: func(pod string) (VM, bool) { return VM{Profile: profile(), OnPackets: 10_000}, pod == "a" }}
	h.hear(10, ratesOf("a", 0), of)
	other := ratesOf("a", 250*us, drops(5000))
	other.Node = "m"
	for range 10 {
		h.Add(other, of)
		h.Add(ratesOf("nobody's", 0), of)
	}
	if got := h.Of("a", profile()); h.Len() != 1 || len(got.Trials) != 1 || got.Trials[0].Seconds != 10 || len(got.Hurts) > 0 {
		t.Errorf("%d VMs, %+v", h.Len(), got)
	}
	h.clock.SetTime(h.clock.Now().Add(61 * time.Second))
	if got := h.Of("a", profile()); len(got.Trials) > 0 {
		t.Errorf("of a VM that was not heard of: %+v", got)
	}
	h.Sweep()
	if h.Len() != 0 {
		t.Errorf("%d VMs are followed", h.Len())
	}
}
