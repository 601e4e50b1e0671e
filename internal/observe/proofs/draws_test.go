package proofs

import (
	"math"
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/observe/credible"
	"github.com/joulevirt/joulevirt/internal/power"
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
	// meter is when it is to be believed. Nil: always.
	meter func() credible.Verdict
	told  []drawn
}

func newDrawScene(t *testing.T) *drawScene {
	s := &drawScene{T: t, now: noon()}
	s.node = node{name: "n", source: model.SourceRAPL, totals: model.Totals{Since: noon()}}
	s.power = func() *model.Power { return s.node.rates(s.now).Power }
	return s
}

// run lets a node draw 100 W, take 1 MB/s, and its agent use a tenth of a core.
func (s *drawScene) run(length time.Duration) {
	for until := s.now.Add(length); s.now.Before(until); {
		s.now = s.now.Add(pullEvery)
		s.node.watts = 100
		t, seconds := &s.node.totals, pullEvery.Seconds()
		t.Seconds, t.MeteredSeconds, t.Bytes = t.Seconds+seconds, t.MeteredSeconds+seconds, t.Bytes+1e6*seconds
		t.Joules, t.AgentSeconds = t.Joules+100*15, t.AgentSeconds+0.1*seconds
		h := Heard{}
		h.Rates, h.Power = s.node.rates(s.now), s.power()
		if s.meter != nil {
			h.Meter = s.meter()
		}
		for range 2 { // what was heard already counts once
			s.told = append(s.told, s.drawing.hear(&h, s.now)...)
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
		if d.Excluded == "" && math.Abs(d.cpuSeconds/d.to.Sub(d.from).Seconds()-0.1) > 1e-9 {
			s.Errorf("%v s of the agent in %v", d.cpuSeconds, d.to.Sub(d.from))
		}
	}
	if math.Abs(got.Seconds-seconds) > 20 || math.Abs(float64(got.Joules)-joules) > 2000 || got.Excluded != cause {
		s.Errorf("%d stretches: %+v, want %v s and %v J, excluded for %q", len(s.told), got, seconds, joules, cause)
	}
	s.told = nil
}

// TestDraws: what a node drew is told each ten minutes, by any source.
func TestDraws(t *testing.T) {
	figure := func(s *drawScene, every, interval time.Duration) func() *model.Power {
		return func() *model.Power {
			at := s.now.Add(-40 * time.Second).Truncate(every)
			return &model.Power{Source: model.SourcePrometheus, Watts: 100, Time: at, IntervalSeconds: interval.Seconds()}
		}
	}
	for name, tc := range map[string]struct {
		change          func(*drawScene)
		seconds, joules float64
		cause           ledger.Cause
	}{
		"by counters":               {func(*drawScene) {}, 1800, 180e3, ""},
		"by a model":                {func(s *drawScene) { s.node.source = model.SourceModel }, 1800, 180e3, ""},
		"by a server":               {func(s *drawScene) { s.power = figure(s, 30*time.Second, 30*time.Second) }, 1800, 180e3, ""},
		"by moments of a server":    {func(s *drawScene) { s.power = figure(s, time.Minute, 0) }, 1800, 180e3, ""},
		"by intervals that lap":     {func(s *drawScene) { s.power = figure(s, 30*time.Second, 2*time.Minute) }, 1800, 180e3, ""},
		"by nobody":                 {func(s *drawScene) { s.power = func() *model.Power { return nil } }, 1800, 180e3, ledger.MeterFailed},
		"figures with gaps between": {func(s *drawScene) { s.power = figure(s, 5*time.Minute, time.Minute) }, 360, 36e3, ""},
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
	s.node.source = model.SourceModel
	s.run(5*time.Minute + pullEvery)
	s.want(600, 60e3, ledger.MeterChanged)
}

// TestOwn: what the manager used is booked against its policies by their nodes.
func TestOwn(t *testing.T) {
	s := NewStore()
	for _, policy := range []string{testPolicy, "q", "of no node"} {
		if err := s.Load(policy, nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	shares := map[string]Share{
		testPolicy: {Nodes: 3, BusyCore: power.Estimate{Watts: 5, StdErr: 0.5}},
		"q":        {Nodes: 1, BusyCore: power.Estimate{Watts: 7}, Modelled: true}, "unknown": {Nodes: 1}, "of no node": {},
	}
	now, used := noon(), time.Hour
	own := func(pass, uses time.Duration) {
		now, used = now.Add(pass), used+uses
		s.Own(used, shares, now)
	}
	own(0, 0)
	for range 40 {
		own(time.Minute, time.Second)
	}
	own(-time.Hour, 0) // the clock is set back
	own(time.Hour, 0)
	own(3*time.Hour, time.Hour) // nobody knows when
	want := func(what string, seconds float64) {
		t.Helper()
		if all, causes := booked(t, s, false); math.Abs(all.Own.Value-seconds*5*3/5) > 1e-3 || len(causes) > 1 {
			t.Errorf("%s: %+v are booked, not %v", what, all.Own, causes)
		}
	}
	want("since its start", 3600+40)
	s.Own(0, shares, now.Add(9*time.Minute)) // not told
	own(10*time.Minute, time.Second)
	want("with the next", 3600+40+3600+1)
}
