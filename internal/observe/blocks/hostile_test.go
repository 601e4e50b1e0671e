package blocks

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
)

// TestMetersOfAllKinds: figures without an interval, and figures whose intervals overlap,
// have nothing of another block's either.
func TestMetersOfAllKinds(t *testing.T) {
	for name, tc := range map[string]struct {
		server int
		change func(w *world, second int, s *Sight)
	}{
		"no interval": {30, func(_ *world, _ int, s *Sight) { s.Power.IntervalSeconds = 0 }},
		"overlapping": {10, func(w *world, second int, s *Sight) {
			end := second / 10 * 10
			s.Power.IntervalSeconds, s.Power.Time = 40, at(float64(end))
			s.Power.Watts = units.Watts((w.joules[end] - w.joules[max(0, end-40)]) / 40)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(8)
			w.server = tc.server
			for i := range w.joules[1:] {
				// The wash-out allows for as much, and the meter's interval.
				watts := 100.0
				if w.schedule.At(theirs(float64(i - 20))).On {
					watts = 90
				}
				w.joules[i+1] = w.joules[i] + watts
			}
			for _, b := range w.run(func(second int, s *Sight) bool {
				if s.Power != nil {
					tc.change(w, second, s)
				}
				return true
			}) {
				want := 100.0
				if b.On {
					want = 90
				}
				if got := float64(b.Joules) / b.Seconds; b.Excluded != "" && b.Excluded != MeterFailed || math.Abs(got-want) > 1e-9 || b.Seconds < 150 {
					t.Errorf("block %d, on: %v, has %v W in %v s (%s), want %v", b.Block, b.On, got, b.Seconds, b.Excluded, want)
				}
			}
		})
	}
}

// TestHostileAgents tell what they like: each block is told of once at most, and what counts
// is of no more time than there was, and no negative energy. Plans that come and go make it
// worse: a block may be told of once more then, which verify counts as not told.
func TestHostileAgents(t *testing.T) {
	random := rand.New(rand.NewPCG(10, 10))
	values := []float64{math.NaN(), math.Inf(1), -1, 0, 1, 1e18, 1e300}
	value := func() float64 { return values[random.IntN(len(values))] }
	spoil := []func(s *Sight){
		func(s *Sight) { s.Rates.Totals.Joules = units.Joules(value()) },
		func(s *Sight) { s.Rates.Totals.MeteredSeconds = value() },
		func(s *Sight) { s.Rates.Totals.Seconds = value() },
		func(s *Sight) { s.Rates.Totals.Bytes = value() },
		func(s *Sight) { s.Rates.Totals = nil },
		func(s *Sight) { s.Rates.Totals.Since = time.Time{} },
		func(s *Sight) { s.Rates.Time = s.Rates.Time.Add(time.Duration(random.Int64N(1 << 62))) },
		func(s *Sight) { s.Rates.Time = s.Rates.Time.Add(-time.Duration(random.Int64N(1 << 43))) },
		func(s *Sight) { s.Received = s.Received.Add(-time.Duration(random.Int64N(1 << 43))) },
		func(s *Sight) { s.Rates.Switches = nil },
		func(s *Sight) { s.Power = nil },
		func(s *Sight) {
			s.Power = &model.Power{
				Source: model.SourcePrometheus, Watts: units.Watts(value()),
				IntervalSeconds: value(), Time: at(value()),
			}
		},
		func(s *Sight) { s.Schedules = []model.Schedule{{Lever: model.LeverAffinity}} },
		func(s *Sight) { s.Schedules = append(s.Schedules, s.Schedules[0]) },
	}
	for round := range 60 {
		w := newWorld(uint64(round))
		w.server = round % 2 * 10
		kinds := len(spoil)
		if round%4 < 2 {
			kinds -= 2
		}
		seen := map[int]bool{}
		for _, b := range w.run(func(_ int, s *Sight) bool {
			if random.IntN(20) == 0 {
				spoil[random.IntN(kinds)](s)
			}
			return true
		}) {
			if seen[b.Block] && kinds < len(spoil) {
				t.Errorf("round %d: block %d is told of twice", round, b.Block)
			}
			seen[b.Block] = true
			truth := w.truth(b.Block)
			if !(b.Seconds >= 0 && b.Joules >= 0 && b.Work >= 0) || b.Excluded == "" && !isNear(b.Outcome, truth) {
				t.Errorf("round %d: block %d is %+v, want about %+v", round, b.Block, b.Outcome, truth)
			}
		}
	}
}
