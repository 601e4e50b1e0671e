package blocks

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/verify"
)

// TestBlocksAreMeasured by counters and by figures of servers that are late: each is near
// the truth, and what was before the first is told with it.
func TestBlocksAreMeasured(t *testing.T) {
	for _, server := range []int{0, 10, 30} {
		w := newWorld(uint64(server))
		w.server = server
		told := w.run(nil)
		w.checkReported(t, told, nil)
		for i, b := range told {
			stretch := verify.Outcome{Unit: nodeName, Block: -1, Seconds: b.Before.Seconds, Joules: b.Before.Joules, Work: b.Before.Work}
			if i == 0 && !isNear(stretch, w.truth(-1)) {
				t.Errorf("figures each %d s: before the first block %+v, want about %+v", server, b.Before, w.truth(-1))
			}
			if i > 0 && b.Before != (verify.Stretch{}) {
				t.Errorf("figures each %d s: before block %d, that is after one of the schedule: %+v", server, i, b.Before)
			}
			if source := w.sight(60).Power.Source; b.Source != source || b.Guarded {
				t.Errorf("figures each %d s: block %d is by %q, guarded: %v", server, i, b.Source, b.Guarded)
			}
		}
	}
}

// TestNothingAtTheEdges: what blocks differ by is all there: no other block's power is in.
func TestNothingAtTheEdges(t *testing.T) {
	for _, server := range []int{0, 30} {
		w := newWorld(11)
		w.server = server
		for i := range w.joules[1:] {
			watts := 0.0
			// The minute in which the block before ends still has its power.
			if w.schedule.At(theirs(float64(i - 25))).On {
				watts = 50
			}
			w.joules[i+1] = w.joules[i] + watts
		}
		for _, b := range w.run(nil) {
			want := 0.0
			if b.On {
				want = 50
			}
			if got := float64(b.Joules) / b.Seconds; math.Abs(got-want) > 1e-9 {
				t.Errorf("figures each %d s: block %d, on: %v, has %v W, want %v", server, b.Block, b.On, got, want)
			}
		}
	}
}

// TestExcluded: what happens in block 3 excludes it, with a cause, and no other.
func TestExcluded(t *testing.T) {
	in := func(second int) bool { return within(second, 3, 150, 180) }
	after := func(second int) bool { return within(second, 3, 150, hours*3600) }
	for name, tc := range map[string]struct {
		change func(second int, s *Sight) bool
		want   map[int]string
	}{
		"agent is not heard": {func(second int, s *Sight) bool {
			if within(second, 3, 200, 330) {
				s.Rates = nil
			}
			return true
		}, map[int]string{3: NotWatched}},
		"manager does not look": {func(second int, _ *Sight) bool { return !within(second, 3, 200, 330) }, map[int]string{3: NotWatched}},
		"agent restarts": {func(second int, s *Sight) bool {
			if after(second) {
				s.Rates.Totals.Since = theirs(600 + 900 + 140)
				s.Rates.Totals.Seconds -= 1500
			}
			return true
		}, map[int]string{3: AgentRestarted}},
		"meter fails": {func(second int, s *Sight) bool {
			if within(second, 3, 150, 260) {
				s.Power = nil
			}
			return true
		}, map[int]string{3: MeterFailed}},
		"meter counts nothing": {func(second int, s *Sight) bool {
			if after(second) {
				s.Rates.Totals.MeteredSeconds -= min(100, float64(second-600-900-150))
			}
			return true
		}, map[int]string{3: MeterFailed}},
		"power is modelled": {func(second int, s *Sight) bool {
			if within(second, 3, 100, 300) {
				s.Rates.Power.Source, s.Rates.Power.Scope = v1alpha1.PowerModel, v1alpha1.PowerScopePlatform
			}
			return true
		}, map[int]string{3: MeterFailed}},
		"meter changes": {func(second int, s *Sight) bool {
			if after(second) {
				s.Rates.Power.Scope = v1alpha1.PowerScopePlatform
			}
			return true
		}, map[int]string{3: MeterChanged}},
		"meter changes, counts start over": {func(second int, s *Sight) bool {
			if after(second) {
				s.Rates.Power.Scope, s.Rates.Totals.Since = v1alpha1.PowerScopePlatform, theirs(600+900+140)
			}
			return true
		}, map[int]string{3: MeterChanged}},
		"totals go back": {func(second int, s *Sight) bool {
			if after(second) {
				s.Rates.Totals.Joules -= 50_000
			}
			return true
		}, map[int]string{3: Contradictory}},
		"bytes go back": {func(second int, s *Sight) bool {
			if after(second) {
				s.Rates.Totals.Bytes -= 500_000
			}
			return true
		}, map[int]string{3: Contradictory}},
		"joules jump": {func(second int, s *Sight) bool {
			if in(second) {
				s.Rates.Totals.Joules += 1e9
			}
			return true
		}, map[int]string{3: Contradictory}},
		"lever is not switched": {func(second int, s *Sight) bool {
			if in(second) {
				s.Rates.Switches[1].On = !s.Rates.Switches[1].On
			}
			return true
		}, map[int]string{3: NotAsScheduled}},
		"lever was switched late": {func(second int, s *Sight) bool {
			if within(second, 3, 0, 300) {
				s.Rates.Switches[1].Since = theirs(600 + 900 + 65)
			}
			return true
		}, map[int]string{3: NotAsScheduled}},
		"another schedule is followed": {func(second int, s *Sight) bool {
			if in(second) {
				s.Rates.Switches[1].Seed++
			}
			return true
		}, map[int]string{3: NotAsScheduled}},
		"nothing is told of the lever": {func(second int, s *Sight) bool {
			if in(second) {
				s.Rates.Switches = s.Rates.Switches[:1]
			}
			return true
		}, map[int]string{3: NotAsScheduled}},
		"plan is away": {func(second int, s *Sight) bool {
			if in(second) {
				s.Schedules = nil
			}
			return true
		}, map[int]string{3: Replaced}},
		// What follows excludes nothing.
		"all of that in the wash-out": {func(second int, s *Sight) bool {
			if within(second, 3, 10, 45) {
				s.Rates, s.Power = nil, nil
			}
			return true
		}, nil},
		"agent restarts in the wash-out": {func(second int, s *Sight) bool {
			if within(second, 3, 30, hours*3600) {
				s.Rates.Totals.Since = theirs(600 + 900 + 20)
			}
			return true
		}, nil},
		"rates twice, and out of order": {func(second int, s *Sight) bool {
			if in(second) {
				s.Rates = newWorld(1).rates(600 + 900 + 140 - second%20)
			}
			return true
		}, nil},
		"a pull is missed": {func(second int, _ *Sight) bool { return !in(second) }, nil},
		"VMs come and go": {func(second int, s *Sight) bool {
			if in(second) {
				s.Rates.VMs = []model.VMRates{{PodUID: "new"}}
			}
			return true
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(1)
			w.checkReported(t, w.run(tc.change), tc.want)
		})
	}
}

// TestExcludedByServer: a block is of one meter.
func TestExcludedByServer(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(second int, s *Sight) bool
		want   map[int]string
	}{
		"power is of another part": {func(second int, s *Sight) bool {
			if within(second, 3, 150, 210) {
				s.Power.Scope = v1alpha1.PowerScopePackage
			}
			return true
		}, map[int]string{3: MeterChanged}},
		"the agent's counters stand in": {func(second int, s *Sight) bool {
			if within(second, 3, 150, 210) {
				s.Power = &model.Power{Source: v1alpha1.PowerRAPL, Scope: v1alpha1.PowerScopePackage}
				s.Rates.Power = s.Power
			}
			return true
		}, map[int]string{3: MeterChanged}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(2)
			w.server = 10
			w.checkReported(t, w.run(tc.change), tc.want)
		})
	}
}

// TestBefore: what is before the first block counts only where the lever is off and no
// lever was switched.
func TestBefore(t *testing.T) {
	other := model.Schedule{Lever: v1alpha1.LeverSlice, Start: theirs(400), Block: time.Minute, On: []bool{true, false}}
	for name, tc := range map[string]struct {
		change func(w *world, second int, s *Sight)
		known  bool
	}{
		"off": {func(*world, int, *Sight) {}, true},
		"schedule comes late": {func(_ *world, second int, s *Sight) {
			if second < 500 {
				s.Schedules = nil
			}
		}, false},
		"another lever is switched": {func(_ *world, _ int, s *Sight) { s.Schedules = append(s.Schedules, other) }, false},
		"lever was on": {func(_ *world, second int, s *Sight) {
			if second < 450 {
				s.Rates.Switches[1].On = true
			}
		}, false},
		"lever is on otherwise": {func(w *world, _ int, s *Sight) { s.Schedules[0].Otherwise = true }, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(5)
			told := w.run(func(second int, s *Sight) bool {
				tc.change(w, second, s)
				return true
			})
			told = slices.DeleteFunc(told, func(b Block) bool { return b.Lever != w.schedule.Lever })
			w.checkReported(t, told, nil)
			if got := told[0].Before.Seconds > 0; got != tc.known {
				t.Errorf("before the first block: %+v", told[0].Before)
			}
		})
	}
}

// TestStateIsForgotten: nodes without schedules take no memory.
func TestStateIsForgotten(t *testing.T) {
	w := newWorld(6)
	store := NewStore()
	look := func(name string, second int, schedules []model.Schedule) {
		s := w.sight(second)
		s.Schedules = schedules
		store.Look(name, s, at(float64(second)))
	}
	all := []model.Schedule{w.schedule}
	look("none", 30, nil)
	look("left", 30, all)
	look("gone", 30, all)
	look("kept", 30, all)
	store.Retain(map[string]bool{"left": true, "kept": true, "none": true})
	for second := 700; second < 1200; second += 15 {
		look("left", second, nil)
	}
	if len(store.nodes) != 1 || store.nodes["kept"] == nil {
		t.Errorf("%d nodes are kept, want one", len(store.nodes))
	}
}
