package tuning

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/planner/buffering"
	"github.com/joulevirt/joulevirt/internal/units"
)

// world is one VM whose packets are held as the planner says, over what the store saw.
type world struct {
	*heardStore
	vm    model.VM
	r     *rand.Rand
	noise float64
	// packetsPerSecond at a time, and what they cost with a window.
	packetsPerSecond func(at time.Duration) float64
	wakeUps          func(window time.Duration, packetsPerSecond float64) float64
	// lost is the share of packets that a window costs.
	lost func(window time.Duration) float64

	rounds, changes int
	current         model.Buffering
	spent           map[time.Duration]int
}

// bunched wakes a thread once for each bunch of packets. A thread is woken half as often
// again for what has nothing to do with packets held, and beyond most nothing is won: the
// ring batches by itself, or the guest looks for packets anyway.
func bunched(most time.Duration) func(time.Duration, float64) float64 {
	return func(window time.Duration, packetsPerSecond float64) float64 {
		bunch := max(1, packetsPerSecond*min(window, most).Seconds())
		return 1/bunch + 0.02
	}
}

func newWorld(seed uint64) *world {
	return &world{
		heardStore: newHeard(), r: rand.New(rand.NewPCG(seed, 1)), noise: 0.1,
		vm: model.VM{
			Namespace: "ns", Profile: "pr", PodUID: "a", TrafficClass: v1alpha1.TrafficThroughput,
			LatencyBudget: 2 * time.Millisecond, OnPackets: 10_000, DefendFloods: true,
		},
		packetsPerSecond: func(time.Duration) float64 { return 20_000 },
		wakeUps:          bunched(time.Second),
		lost:             func(time.Duration) float64 { return 0 },
		spent:            map[time.Duration]int{},
	}
}

func (w *world) noisy() float64 { return math.Max(0.1, 1+w.noise*w.r.NormFloat64()) }

// run takes rounds of 15 s for a while. A plan is made when there are news, and each
// quarter of an hour.
func (w *world) run(t *testing.T, during time.Duration) {
	t.Helper()
	of := Circumstances{VM: func(string) (VM, bool) { return VM{LeastRate: buffering.LeastRate(&w.vm)}, true }}
	for end := w.rounds + int(during/(15*time.Second)); w.rounds < end; w.rounds++ {
		w.clock.SetTime(w.clock.Now().Add(15 * time.Second))
		rates := w.round()
		if !w.Add(rates, of) && w.rounds%60 != 0 {
			continue
		}
		w.vm.Tuning = w.Of("a")
		choice := buffering.Choose(w.vm, &rates.VMs[0], w.current, w.clock.Now())
		if choice.Window > buffering.Longest(&w.vm) || choice.Window != 0 && !model.IsWindow(choice.Window) {
			t.Fatalf("window %v of a VM with budget %v", choice.Window, w.vm.LatencyBudget)
		}
		if choice.Window != w.current.Window {
			w.changes++
		}
		w.current = choice.Buffering
	}
}

func (w *world) round() *model.NodeRates {
	window := w.current.Window
	w.spent[window]++
	rate := w.packetsPerSecond(time.Duration(w.rounds) * 15 * time.Second)
	packets := rate * w.noisy()
	wakeUps := packets * w.wakeUps(window, rate) * w.noisy()
	return ratesOf("a", window, drops(units.PacketsPerSecond(packets*w.lost(window))), func(v *model.VMRates) {
		v.Taps[0].ToVM = model.TrafficRates{PacketsPerSecond: units.PacketsPerSecond(packets), BitsPerSecond: units.BitsPerSecond(4000 * packets)}
		v.Taps[0].FromVM = model.TrafficRates{}
		v.Vhost = model.ThreadRates{RunCores: units.Cores((wakeUps*5e-6 + packets*2e-6) * w.noisy()), SwitchesPerSecond: units.PerSecond(wakeUps)}
		if rate < float64(w.current.OnPackets) {
			v.Buffering.ActiveShare = 0
		}
	})
}

// In a world whose best window is known, that is the one in force most of the time.
func TestTheBestWindowIsFound(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*world)
		want   time.Duration
	}{
		"longer is better": {func(*world) {}, 1000 * us},
		"the budget":       {func(w *world) { w.vm.LatencyBudget = 1500 * us }, 500 * us},
		"the class":        {func(w *world) { w.vm.TrafficClass = v1alpha1.TrafficInteractive }, 250 * us},
		"no budget":        {func(w *world) { w.vm.LatencyBudget = 0 }, 0},
		"no more is won":   {func(w *world) { w.wakeUps = bunched(500 * us) }, 500 * us},
		"little is won":    {func(w *world) { w.wakeUps = bunched(250 * us) }, 250 * us},
		"nothing is won":   {func(w *world) { w.wakeUps = func(time.Duration, float64) float64 { return 0.2 } }, 0},
		"long ones cost":   {func(w *world) { w.lost = loses(1000 * us) }, 500 * us},
		"most cost":        {func(w *world) { w.lost = loses(500 * us) }, 250 * us},
		"all cost":         {func(w *world) { w.lost = loses(125 * us) }, 0},
		"all lose alike":   {func(w *world) { w.lost = loses(0) }, 250 * us},
		"packets are few":  {func(w *world) { w.packetsPerSecond = func(time.Duration) float64 { return 5_000 } }, 0},
		"no rate is set": {func(w *world) {
			w.vm.OnPackets, w.packetsPerSecond = 0, func(time.Duration) float64 { return 5_000 }
		}, 1000 * us},
		"no rate is set, and packets are few": {func(w *world) {
			w.vm.OnPackets, w.packetsPerSecond = 0, func(time.Duration) float64 { return 1_000 }
		}, 0},
		"they are at the rim": {func(w *world) { w.packetsPerSecond = func(time.Duration) float64 { return 16_384 } }, 1000 * us},
		"they come in tides": {func(w *world) {
			w.packetsPerSecond = func(at time.Duration) float64 { return 30_000 + 28_000*math.Sin(at.Hours()*2*math.Pi/24) }
		}, 1000 * us},
	} {
		for seed := range uint64(2) {
			w := newWorld(seed)
			tc.change(w)
			w.run(t, 6*time.Hour)
			clear(w.spent)
			const day = 24 * 60 * 4
			w.run(t, 24*time.Hour)
			if share := float64(w.spent[tc.want]) / day; share < 0.85 {
				t.Errorf("%s, seed %d: %v is in force for %.2f of a day: %v", name, seed, tc.want, share, w.spent)
			}
		}
	}
}

// loses a hundredth with a window or a longer one.
func loses(from time.Duration) func(time.Duration) float64 {
	return func(window time.Duration) float64 {
		if window >= from {
			return 0.01
		}
		return 0
	}
}

// Noise moves no window: in a world that stays as it is there are the steps to the best
// window, and each day one to a longer window and back.
func TestWindowsDoNotWaver(t *testing.T) {
	for name, change := range map[string]func(*world){
		"longer is better": func(*world) {},
		"no more is won":   func(w *world) { w.wakeUps = bunched(500 * us) },
		"a little is won": func(w *world) {
			// Each window wins 7.5 %: less than it takes to go on, and more than to go back.
			w.wakeUps = func(window time.Duration, _ float64) float64 {
				return 0.5 * math.Pow(0.925, float64(window/(125*us)))
			}
		},
		"nothing is won": func(w *world) { w.wakeUps = func(time.Duration, float64) float64 { return 0.2 } },
		"at the rim":     func(w *world) { w.packetsPerSecond = func(time.Duration) float64 { return 16_384 } },
	} {
		for seed := range uint64(2) {
			for _, noise := range []float64{0.1, 0.3} {
				w := newWorld(seed)
				w.noise = noise
				change(w)
				const days = 2
				w.run(t, days*24*time.Hour)
				if most := 3 + 2*days; w.changes > most {
					t.Errorf("%s, noise %v, seed %d: %d changes in %d days, want %d at most: %v", name, noise, seed, w.changes, days, most, w.spent)
				}
			}
		}
	}
}

// A new manager leaves windows as they are until it has seen enough.
func TestANewLeaderMovesNothing(t *testing.T) {
	w := newWorld(1)
	w.wakeUps = bunched(500 * us)
	w.run(t, 6*time.Hour)
	if w.current.Window != 500*us {
		t.Fatalf("window %v", w.current.Window)
	}
	w.heardStore = &heardStore{NewStore(w.clock, time.Minute), w.clock}
	changes := w.changes
	w.run(t, 7*time.Minute)
	if w.changes != changes {
		t.Errorf("%d changes at once", w.changes-changes)
	}
	w.run(t, 6*time.Hour)
	if w.current.Window != 500*us || w.changes > changes+2 {
		t.Errorf("window %v after %d changes, want one to a longer window and back", w.current.Window, w.changes-changes)
	}
}
