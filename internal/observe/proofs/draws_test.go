package proofs

import (
	"math"
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/verify/ledger"
)

// drawScene is one node, heard each 15 s.
type drawScene struct {
	*testing.T
	drawing drawing
	now     time.Time
	node    node
	// power is what the policy's sources say; nil: nothing.
	power func() *model.Power
	told  []drawn
}

func newDrawScene(t *testing.T) *drawScene {
	s := &drawScene{T: t, now: noon()}
	s.node = node{name: "n", source: v1alpha1.PowerRAPL, totals: model.Totals{Since: noon()}}
	s.power = func() *model.Power { return s.node.rates(s.now).Power }
	return s
}

// run lets a node draw 100 W and take 1 MB/s.
func (s *drawScene) run(length time.Duration) {
	for until := s.now.Add(length); s.now.Before(until); {
		s.now = s.now.Add(pullEvery)
		s.node.watts = 100
		t, seconds := &s.node.totals, pullEvery.Seconds()
		t.Seconds, t.MeteredSeconds, t.Bytes = t.Seconds+seconds, t.MeteredSeconds+seconds, t.Bytes+1e6*seconds
		t.Joules += 100 * 15
		h := Heard{}
		h.Rates, h.Received, h.Power = s.node.rates(s.now), s.now, s.power()
		for range 2 { // what was heard already counts once
			if told, whole := s.drawing.observe(&h, s.now); whole {
				s.told = append(s.told, told)
			}
		}
	}
}

func (s *drawScene) want(seconds, joules float64, cause ledger.Cause) {
	s.Helper()
	var got ledger.Measured
	for _, d := range s.told {
		got.Seconds, got.Joules, got.Bytes = got.Seconds+d.Seconds, got.Joules+d.Joules, got.Bytes+d.Bytes
		if d.Excluded != "" {
			got.Excluded = d.Excluded
		}
	}
	if math.Abs(got.Seconds-seconds) > 20 || math.Abs(float64(got.Joules)-joules) > 2000 || got.Excluded != cause {
		s.Errorf("%d stretches: %+v, want %v s and %v J, excluded for %q", len(s.told), got, seconds, joules, cause)
	}
	s.told = nil
}

// TestDraws: what a node drew is told each ten minutes, by any source. Figures of a server
// come late: those of the time before the first pull are left out.
func TestDraws(t *testing.T) {
	figure := func(s *drawScene, every, interval time.Duration) func() *model.Power {
		return func() *model.Power {
			at := s.now.Add(-40 * time.Second).Truncate(every)
			return &model.Power{Source: v1alpha1.PowerPrometheus, Watts: 100, Time: at, IntervalSeconds: interval.Seconds()}
		}
	}
	for name, tc := range map[string]struct {
		change          func(*drawScene)
		seconds, joules float64
		cause           ledger.Cause
	}{
		"by counters":               {func(*drawScene) {}, 1800, 180e3, ""},
		"by a model":                {func(s *drawScene) { s.node.source = v1alpha1.PowerModel }, 1800, 180e3, ""},
		"by a server":               {func(s *drawScene) { s.power = figure(s, 30*time.Second, 30*time.Second) }, 1740, 174e3, ""},
		"by moments of a server":    {func(s *drawScene) { s.power = figure(s, time.Minute, 0) }, 1680, 168e3, ""},
		"by intervals that lap":     {func(s *drawScene) { s.power = figure(s, 30*time.Second, 2*time.Minute) }, 1680, 168e3, ""},
		"by nobody":                 {func(s *drawScene) { s.power = func() *model.Power { return nil } }, 0, 0, ledger.MeterFailed},
		"figures with gaps between": {func(s *drawScene) { s.power = figure(s, 5*time.Minute, time.Minute) }, 300, 30e3, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newDrawScene(t)
			tc.change(s)
			s.run(30*time.Minute + pullEvery)
			if len(s.told) != 3 {
				t.Errorf("%d stretches", len(s.told))
			}
			s.want(tc.seconds, tc.joules, tc.cause)
		})
	}
}

// TestDrawsThatEndEarly: what an agent counted before it restarted stands, and of two
// sources nothing is told.
func TestDrawsThatEndEarly(t *testing.T) {
	s := newDrawScene(t)
	s.run(5*time.Minute + pullEvery)
	s.node.totals = model.Totals{Since: s.now}
	s.run(pullEvery)
	s.want(300, 30e3, "")
	s.run(5 * time.Minute)
	s.node.ahead = -time.Hour // its clock is set back
	s.run(pullEvery)
	s.want(300, 30e3, "")
	s.run(5 * time.Minute)
	s.node.source = v1alpha1.PowerModel
	s.run(5*time.Minute + pullEvery)
	s.want(600, 60e3, ledger.MeterChanged)
}
