package controllers

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/energy"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/observe/proofs"
	"github.com/joulevirt/joulevirt/internal/power"
	"github.com/joulevirt/joulevirt/internal/units"
	"github.com/joulevirt/joulevirt/internal/verify"
	"github.com/joulevirt/joulevirt/internal/verify/proof"
)

// TestALostMeter: for a day the node is what it was, so that no lever acts unproven that did
// not before; then it is one without a meter. A new leader, to which no meter is known either,
// takes the word of the last one.
func TestALostMeter(t *testing.T) {
	lost := energy.Choice{Source: model.SourceModel, LostSince: statusTime()}
	s := nodeSight{governedNode: governedNode{settings: []energy.Setting{{Type: model.SourceRAPL}, {Type: model.SourceModel}}}}
	var k knownNode
	for _, step := range []struct {
		name   string
		choice energy.Choice
		want   time.Duration
	}{
		{"metered", energy.Choice{Source: model.SourceRAPL, Metered: true}, 15 * time.Second},
		{"lost", lost, 15 * time.Second},
		{"for a day", energy.Choice{Source: model.SourceModel}, 0},
	} {
		s.choice = step.choice
		if k.update(&s, 15*time.Second, statusTime()); k.meter.Interval != step.want {
			t.Errorf("%s: the meter is %+v", step.name, k.meter)
		}
	}
	for metered, want := range map[bool]time.Duration{true: 15 * time.Second, false: 0} {
		scene := newProofScene(t)
		was := proof.New()
		unit := proof.Unit{Name: "n", Nodes: []string{"n"}, Class: verify.Class{CPUModel: "made up"}}
		if metered {
			unit.Meter = verify.Meter{Interval: 15 * time.Second, Freshness: 15 * time.Second}
		}
		was.Round([]proof.Unit{unit}, proof.Settings{}, scene.clock.Now())
		scene.must(scene.store.Load("p", nil, was.Save()))
		governed, err := governedNodes(t.Context(), scene.client)
		scene.must(err)
		governed[0].settings = s.settings
		got := scene.watch.see(governed[0], energy.Choice{Source: model.SourceModel}, nil, scene.clock.Now())
		if got.meter.Interval != want || got.choice.LostSince.IsZero() == metered {
			t.Errorf("after one to which it was metered %t: %+v, lost since %v", metered, got.meter, got.choice.LostSince)
		}
	}
}

// TestADoubtedMeter is told of once, on the node's report.
func TestADoubtedMeter(t *testing.T) {
	s := newProofScene(t)
	governed, err := governedNodes(t.Context(), s.client)
	s.must(err)
	joules, events := 0.0, ""
	for second := 0; second < 3600; second += 15 {
		watts := 100.0
		if second > 1800 {
			watts = 60
		}
		joules += 15 * (watts + math.Sin(float64(second)))
		now := statusTime().Add(time.Duration(second) * time.Second)
		s.clock.SetTime(now)
		own := model.Power{Source: model.SourceRAPL, Scope: model.ScopePackage, Time: now, IntervalSeconds: 1}
		s.rates.Put(&model.NodeRates{Node: "n", Time: now, Power: &own, Totals: totalsOf(second, joules)})
		s.watch.see(governed[0], energy.Choice{Source: model.SourceRAPL, Metered: true, Power: &own}, nil, now)
		events += s.events()
	}
	if strings.Count(events, v1alpha1.ReasonMeterSuspect) != 1 || !strings.Contains(events, "the meter of node n (RAPL) says -") {
		t.Errorf("events %q", events)
	}
	if verdict := s.store.Meter("n"); verdict.Since().IsZero() {
		t.Error("the meter is believed")
	}
}

func totalsOf(second int, joules float64) *model.Totals {
	return &model.Totals{
		Since: statusTime().Add(-time.Hour), Seconds: float64(second), MeteredSeconds: float64(second),
		BusyCoreSeconds: float64(second), Joules: units.Joules(joules),
	}
}

// TestANoisyMeter: by how much a server's figures scatter is known of a node's meter, and of a
// group's that has the node.
func TestANoisyMeter(t *testing.T) {
	s := newProofScene(t)
	for i := range 80 {
		s.pull()
		heard := proofs.Heard{Policy: "p", BusyCore: power.Estimate{Watts: 5, StdErr: 1}}
		heard.Rates, heard.Received = s.rates.Heard("n")
		heard.Rates.Power = nil
		heard.Power = &model.Power{
			Source: model.SourcePrometheus, Scope: model.ScopePackage, Watts: 100 + units.Watts(6*(i%2)), Time: s.clock.Now(), IntervalSeconds: 15,
		}
		s.store.Hear("n", heard, s.clock.Now())
		s.clock.SetTime(s.clock.Now().Add(15 * time.Second))
	}
	meter := verify.Meter{Interval: 15 * time.Second, Freshness: 15 * time.Second}
	// 6 W from one to the next of 103 W in the mean: each figure errs by 4 W.
	want := verify.RoundNoise(0.041)
	for what, nodes := range map[string][]string{"a node": {"n"}, "a group": {"other", "n"}} {
		if got := s.watch.noisy(meter, nodes...); got.Noise != want || got.Interval != meter.Interval {
			t.Errorf("%s: %+v, want noise %v", what, got, want)
		}
	}
	if got := s.watch.noisy(meter, "other"); got != meter {
		t.Errorf("without that node: %+v", got)
	}
	if got := s.watch.noisy(verify.Meter{}, "n"); got != (verify.Meter{}) {
		t.Errorf("no meter: %+v", got)
	}
}
