package credible

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// TestEffectsOfLeversAreBelieved, whatever they are: no day of simulated nodes, whose load
// steps and wanders, has a doubt, in trials as in hold-backs, by both kinds of meters.
func TestEffectsOfLeversAreBelieved(t *testing.T) {
	t.Parallel()
	for _, server := range []time.Duration{0, time.Minute} {
		for _, effect := range []float64{math.Log(0.65), -0.1, 0, 0.1, math.Log(1.35)} {
			for seed := range uint64(4) {
				w := newWorld(seed)
				w.effect, w.server, w.heldBack = effect, server, seed%2 == 1
				if o := w.run(24); len(o.spans) > 0 {
					t.Errorf("simulated: server %v, effect %.2f, seed %d: the meter is doubted: %v", server, effect, seed, o.spans)
				}
			}
		}
	}
}

// TestLiesAreSeen for all of their time, whatever the lever does, and soon.
func TestLiesAreSeen(t *testing.T) {
	t.Parallel()
	const seeds = 12
	for _, server := range []time.Duration{0, time.Minute} {
		for _, tc := range []struct {
			lie float64
			// least that are seen.
			least int
		}{{0.5, seeds}, {2. / 3, seeds}, {0.8, seeds - 3}, {0.9, 0}, {1.1, 0}, {1.2, seeds - 3}, {1.5, seeds}} {
			seen, covered := 0, 0
			var delay, longest, besides time.Duration
			for seed := range uint64(seeds) {
				w := newWorld(seed)
				w.effect, w.server, w.heldBack = 0.3*(w.random.Float64()-0.5), server, seed%2 == 1
				w.lies(tc.lie)
				o := w.run(7)
				if o.delay < 0 {
					continue
				}
				all, more := w.covers(o.spans)
				if all {
					covered++
				}
				seen, delay, longest, besides = seen+1, delay+o.delay, max(longest, o.delay), besides+more
			}
			t.Logf("simulated: server %v, factor %.2f: %d of %d are seen, after %v, at most %v; of %d all, and %v besides",
				server, tc.lie, seen, seeds, delay/time.Duration(max(1, seen)), longest, covered, besides/time.Duration(max(1, seen)))
			if seen < tc.least || tc.least == seeds && covered < seeds {
				t.Errorf("simulated: server %v, factor %.2f: %d of %d are seen, %d for all of their time", server, tc.lie, seen, seeds, covered)
			}
		}
	}
}

// TestDoubtsTakeNoSide: of the time of lies, and of what is doubted besides, blocks with the
// lever on are as large a part as those with it off.
func TestDoubtsTakeNoSide(t *testing.T) {
	t.Parallel()
	var on, off float64
	for seed := range uint64(60) {
		w := newWorld(seed)
		w.effect = math.Log(0.75)
		w.lies([]float64{0.6, 1.5}[seed%2])
		s := w.run(6)
		for b := range w.schedule.On {
			from := w.schedule.Start.Add(time.Duration(b) * w.schedule.Block)
			v := Verdict{Suspect: s.spans}
			if !v.Doubts(from.Add(w.schedule.WashOut), from.Add(w.schedule.Block)) {
				continue
			}
			if w.schedule.On[b] {
				on++
			} else {
				off++
			}
		}
	}
	// Pairs are nearly always doubted as a whole: only those at the ends are drawn by a coin,
	// two for each lie.
	if off == 0 || math.Abs(on-off) > 3*math.Sqrt(2*60)/2 {
		t.Errorf("simulated: %v blocks with the lever on are doubted, and %v with it off", on, off)
	}
}

// TestNewNormal: what does not go back is believed in time.
func TestNewNormal(t *testing.T) {
	t.Parallel()
	w := newWorld(1)
	w.lies(0.7)
	w.to = w.to.Add(100 * time.Hour)
	o := w.run(9)
	if len(o.spans) != 1 || o.spans[0].To.IsZero() || o.spans[0].To.Sub(o.spans[0].From) > accepted+15*time.Minute {
		t.Errorf("simulated: a meter that stays at another level is doubted in %v", o.spans)
	}
}

// TestSecondMeters show smaller lies, and that what the load does not explain is so.
func TestSecondMeters(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		both, apart bool
		lie, dearer float64
		doubted     bool
	}{
		"one meter, a small lie":                     {lie: 0.9, dearer: 1},
		"two of the same part, a small lie":          {both: true, lie: 0.9, dearer: 1, doubted: true},
		"two of different parts, a small lie":        {both: true, apart: true, lie: 0.9, dearer: 1, doubted: true},
		"one meter, work that no load tells":         {lie: 1, dearer: 1.3, doubted: true},
		"two of the same part, work no load tells":   {both: true, lie: 1, dearer: 1.3, doubted: true},
		"two of different parts, work no load tells": {both: true, apart: true, lie: 1, dearer: 1.3},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(4) {
				w := newWorld(seed)
				w.server, w.both, w.apart, w.dearer, w.effect = time.Minute, tc.both, tc.apart, tc.dearer, -0.1
				w.lies(tc.lie)
				if o := w.run(6); len(o.spans) > 0 != tc.doubted {
					t.Errorf("simulated: seed %d: the meter is doubted in %v", seed, o.spans)
				}
			}
		})
	}
}

// TestOtherMetersAndClocks: another meter is compared with nothing, and nor is what is by
// another clock.
func TestOtherMetersAndClocks(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(s *Sight){
		"another scope":         func(s *Sight) { s.Power.Scope, s.Rates.Totals.Joules = model.ScopePlatform, 2*s.Rates.Totals.Joules },
		"the node's clock":      func(s *Sight) { s.Rates.Time = s.Rates.Time.Add(time.Hour) },
		"the node's clock back": func(s *Sight) { s.Rates.Time = s.Rates.Time.Add(-time.Hour) },
		"ours":                  func(s *Sight) { s.Received = s.Received.Add(-time.Hour) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(3)
			w.draw(5)
			var watch Watch
			for round := range 5 * int(time.Hour/pull) {
				s := w.pass()
				if round > 600 {
					change(&s)
				}
				if v := watch.Look(s, w.now); len(v.Suspect) > 0 {
					t.Fatalf("simulated: round %d: the meter is doubted: %+v", round, v)
				}
			}
		})
	}
}

// TestRestartsWithoutAPast: a meter that lies when nothing is known of it yet cannot be seen;
// what it then says is what is compared with, and the truth is doubted for a while.
func TestRestartsWithoutAPast(t *testing.T) {
	t.Parallel()
	w := newWorld(4)
	w.lie, w.from, w.to = 0.6, noon(), noon().Add(time.Hour)
	o := w.run(5)
	if len(o.spans) != 1 || o.spans[0].From.Before(w.to.Add(ahead-time.Minute)) || o.spans[0].To.IsZero() {
		t.Errorf("simulated: the meter is doubted in %v", o.spans)
	}
}

// TestHostileFigures are no reason to fail, and spans follow one another.
func TestHostileFigures(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(3, 3))
	values := []float64{math.NaN(), math.Inf(1), -1, 0, 1, 1e18, 1e300}
	value := func() float64 { return values[random.IntN(len(values))] }
	spoil := []func(s *Sight){
		func(s *Sight) { s.Rates.Totals.Joules = units.Joules(value()) },
		func(s *Sight) { s.Rates.Totals.MeteredSeconds = value() },
		func(s *Sight) { s.Rates.Totals.Seconds = value() },
		func(s *Sight) { s.Rates.Totals.BusyCoreSeconds = value() },
		func(s *Sight) { s.Rates.Totals = nil },
		func(s *Sight) { s.Rates = nil },
		func(s *Sight) { s.Rates.Time = s.Rates.Time.Add(time.Duration(random.Int64N(1 << 62))) },
		func(s *Sight) { s.Rates.Switches = nil },
		func(s *Sight) { s.Power = nil },
		func(s *Sight) { s.Power.Watts, s.Power.IntervalSeconds = units.Watts(value()), value() },
		func(s *Sight) { s.BusyCore.Watts, s.BusyCore.StdErr = units.Watts(value()), units.Watts(value()) },
	}
	for seed := range uint64(10) {
		w := newWorld(seed)
		w.server = time.Duration(seed%2) * time.Minute
		w.draw(4)
		var watch Watch
		for range 4 * int(time.Hour/pull) {
			s := w.pass()
			if s.Power != nil {
				figure := *s.Power
				s.Power = &figure
			}
			if random.IntN(20) == 0 && s.Power != nil {
				spoil[random.IntN(len(spoil))](&s)
			}
			v := watch.Look(s, w.now)
			for i, span := range v.Suspect {
				if i > 0 && span.From.Before(v.Suspect[i-1].To) || !span.To.IsZero() && span.To.Before(span.From) {
					t.Fatalf("seed %d: %+v", seed, v)
				}
			}
		}
	}
}
