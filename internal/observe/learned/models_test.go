package learned

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/energy/stream"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/power"
	"github.com/joulevirt/joulevirt/internal/power/curve"
	"github.com/joulevirt/joulevirt/internal/power/prior"
	"github.com/joulevirt/joulevirt/internal/power/whatif"
	"github.com/joulevirt/joulevirt/internal/units"
)

func newModels(t *testing.T) *Models {
	t.Helper()
	priors, err := prior.Default()
	if err != nil {
		t.Fatal(err)
	}
	return New(priors)
}

func noon() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }

func at(s float64) time.Time { return noon().Add(time.Duration(s * float64(time.Second))) }

func steadyLoad() power.Load { return power.Load{BusyCores: 2, WakeUps: 100, AwakeCores: 3} }

// round is what an agent reports at a second that ran since noon with a steady load, and drew
// 80 W.
func round(s float64, source v1alpha1.PowerSource) *model.NodeRates {
	return &model.NodeRates{
		Node: "n", Time: at(s), IntervalSeconds: 1,
		Totals: &model.Totals{
			Since: noon(), Seconds: s, BusyCoreSeconds: 2 * s, AwakeCoreSeconds: 3 * s, WakeUps: 100 * s,
			Joules: units.Joules(80 * s), MeteredSeconds: s,
		},
		Power: &model.Power{Source: source, Scope: v1alpha1.PowerScopePackage, Watts: 80, Time: at(s), IntervalSeconds: 1},
	}
}

func predict(models *Models, node string, load power.Load) (estimate power.Estimate, known bool) {
	known = models.WhatIf(node, func(host whatif.Host) { estimate = host.Model.Predict(load) })
	return estimate, known
}

func coefficients(models *Models, node string) (c power.Coefficients, known bool) {
	known = models.WhatIf(node, func(host whatif.Host) { c = host.Model.Coefficients() })
	return c, known
}

func eightCores() model.Topology {
	var topology model.Topology
	for i := range 8 {
		topology.Cores = append(topology.Cores, model.Core{CPUs: units.NewCPUSet(i)})
	}
	return topology
}

// machine is a node whose load changes now and then, and its true power.
type machine struct {
	truth  power.Coefficients
	random *rand.Rand
	load   power.Load
	totals model.Totals
	// history of the true power, a second each.
	history []units.Watts
}

func newMachine(seed uint64) *machine {
	return &machine{
		truth:  power.Coefficients{Idle: 45, PerBusyCore: 10, PerWakeUp: 3e-5, PerAwakeCore: 0.8},
		random: rand.New(rand.NewPCG(seed, 5)), totals: model.Totals{Since: noon()},
	}
}

func (m *machine) second() {
	if len(m.history)%100 == 0 {
		busy := m.random.Float64() * 7
		m.load = power.Load{
			BusyCores: units.Cores(busy), AwakeCores: units.Cores(math.Min(8, busy+m.random.Float64()*3)),
			WakeUps: units.PerSecond(m.random.Float64() * 40_000),
		}
	}
	watts := m.truth.At(m.load) + units.Watts(m.random.NormFloat64())
	m.history = append(m.history, watts)
	m.totals.Seconds++
	m.totals.BusyCoreSeconds += float64(m.load.BusyCores)
	m.totals.AwakeCoreSeconds += float64(m.load.AwakeCores)
	m.totals.WakeUps += float64(m.load.WakeUps)
	m.totals.Joules += units.Joules(watts)
	m.totals.MeteredSeconds++
}

// mean power of the last seconds.
func (m *machine) mean(last int) units.Watts {
	var sum units.Watts
	for _, watts := range m.history[len(m.history)-last:] {
		sum += watts
	}
	return sum / units.Watts(last)
}

func (m *machine) rates() *model.NodeRates {
	now := at(float64(len(m.history)))
	totals := m.totals
	return &model.NodeRates{
		Node: "n", Time: now, Totals: &totals,
		Power: &model.Power{Source: v1alpha1.PowerRAPL, Scope: v1alpha1.PowerScopePackage, Watts: m.history[len(m.history)-1], Time: now, IntervalSeconds: 1},
	}
}

// Three hours of a machine, metered by its own counters, or by a server whose
// figures are a minute's mean, come late, and at other times than the rates: in
// both cases the model predicts power, and the energy is what was drawn.
func TestModelsLearn(t *testing.T) {
	for name, step := range map[string]func(m *machine, last *model.Power) *model.Power{
		"RAPL": func(m *machine, _ *model.Power) *model.Power { return m.rates().Power },
		"Prometheus": func(m *machine, last *model.Power) *model.Power {
			if now := len(m.history); now%37 == 0 && now > 60 {
				return &model.Power{Source: v1alpha1.PowerPrometheus, Scope: v1alpha1.PowerScopePackage, Watts: m.mean(60), Time: at(float64(now)), IntervalSeconds: 60}
			}
			return last
		},
	} {
		t.Run(name, func(t *testing.T) {
			models, m := newModels(t), newMachine(1)
			var figure *model.Power
			var sight Sample
			for s := range 3 * 3600 {
				m.second()
				figure = step(m, figure)
				if s%15 == 0 {
					sight = Sample{
						Processor: Processor{Cores: 8}, Topology: func() (model.Topology, error) { return eightCores(), nil },
						Sample: stream.Sample{Power: figure, Rates: m.rates(), Received: at(float64(len(m.history))).Add(300 * time.Millisecond), Now: at(float64(len(m.history))).Add(300 * time.Millisecond)},
					}
					models.Observe("n", sight)
				}
			}
			for _, load := range []power.Load{{BusyCores: 1, AwakeCores: 2, WakeUps: 5000}, {BusyCores: 6, AwakeCores: 8, WakeUps: 30_000}} {
				got, known := predict(models, "n", load)
				want := m.truth.At(load)
				if !known || math.Abs(float64(got.Watts-want)) > 0.03*float64(want) {
					t.Errorf("at %+v: %+v, is %v W", load, got, want)
				}
			}
			accuracy, known := models.Accuracy("n")
			if !known || accuracy.MeanRelativeError > 0.05 {
				t.Errorf("accuracy %+v", accuracy)
			}
			drawn := models.Energy("n")
			if len(drawn) != 1 || math.Abs(float64(drawn[0].Joules/m.totals.Joules)-1) > 0.02 {
				t.Errorf("energy %+v, drawn %v J", drawn, m.totals.Joules)
			}
			if c, known := coefficients(models, "n"); !known || c.Idle < 40 || c.Idle > 50 {
				t.Errorf("coefficients %+v, are %+v", c, m.truth)
			}
		})
	}
}

// What VMs cost is learned apart while their packets are held, and nothing is learned of a
// flood.
func TestModelsLearnByWindow(t *testing.T) {
	models, m := newModels(t), newMachine(1)
	rounds := map[string]*model.BufferingRates{
		"plain": nil, "slow": {WindowMicroseconds: 250, ActiveShare: 0.1},
		"held":    {WindowMicroseconds: 250, ActiveShare: 1},
		"flooded": {WindowMicroseconds: 1000, ActiveShare: 1, Flood: &model.Flood{}},
	}
	for range 20 {
		m.second()
		rates := m.rates()
		rates.IntervalSeconds = 1
		for name, buffering := range rounds {
			rates.VMs = append(rates.VMs, model.VMRates{
				PodUID: name, Buffering: buffering, VCPUs: []model.VCPURates{{ThreadRates: model.ThreadRates{RunCores: 0.5}}},
				Taps: []model.TapRates{{ToVM: model.TrafficRates{PacketsPerSecond: 2e4, BitsPerSecond: 2e7}}},
			})
		}
		models.Observe("n", Sample{
			Processor: Processor{Cores: 8}, Topology: func() (model.Topology, error) { return eightCores(), nil },
			Sample: stream.Sample{Rates: rates, Received: rates.Time, Now: rates.Time},
		})
	}
	seconds := map[time.Duration]float64{}
	models.Basis("n", func(host whatif.Host) {
		for _, window := range []time.Duration{0, 250 * time.Microsecond, time.Millisecond} {
			seconds[window] = host.Curves.Seconds(curve.Key{Class: curve.ClassOf(1, false), Window: window})
		}
	})
	if held := seconds[250*time.Microsecond]; held == 0 || seconds[0] != 2*held || seconds[time.Millisecond] != 0 {
		t.Errorf("seconds by window %v: want those of two VMs without one, of one with 250us, and of no flood", seconds)
	}
}

func TestModelsKeepNodesAndSourcesApart(t *testing.T) {
	models := newModels(t)
	look := func(name string, s float64, source v1alpha1.PowerSource) {
		rates := round(s, source)
		models.Observe(name, Sample{
			Processor: Processor{Cores: 8}, Topology: func() (model.Topology, error) { return eightCores(), nil },
			Sample: stream.Sample{Power: rates.Power, Rates: rates, Received: at(s), Now: at(s)},
		})
	}
	look("a", 0, v1alpha1.PowerModel)
	look("a", 15, v1alpha1.PowerModel)
	if _, known := models.Accuracy("a"); known {
		t.Error("a model of a node that nothing measured")
	}
	look("a", 30, v1alpha1.PowerRAPL)
	look("a", 45, v1alpha1.PowerRAPL)
	look("b", 45, v1alpha1.PowerRAPL)
	want := []Energy{{Source: v1alpha1.PowerModel, Joules: 1200}, {Source: v1alpha1.PowerRAPL, Joules: 1200}}
	if diff := cmp.Diff(want, models.Energy("a")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if _, known := predict(models, "b", steadyLoad()); known {
		t.Error("a node learned from another")
	}
	models.Retain(map[string]bool{"b": true})
	if _, known := predict(models, "a", steadyLoad()); known || models.Energy("a") != nil || len(models.Energy("b")) != 1 {
		t.Error("a node that went is known, or another is not")
	}
}

// Another processor, or another part of the node that is measured, has another
// model.
func TestModelsStartAnew(t *testing.T) {
	models := newModels(t)
	s := 0.0
	look := func(cores int, scope v1alpha1.PowerScope, topology error) int {
		t.Helper()
		for range 2 {
			s += 15
			rates := round(s, v1alpha1.PowerRAPL)
			rates.Power.Scope = scope
			models.Observe("n", Sample{
				Processor: Processor{Cores: cores}, Topology: func() (model.Topology, error) { return eightCores(), topology },
				Sample: stream.Sample{Power: rates.Power, Rates: rates, Received: at(s), Now: at(s)},
			})
		}
		accuracy, _ := models.Accuracy("n")
		return accuracy.Samples
	}
	for _, step := range []struct {
		cores    int
		scope    v1alpha1.PowerScope
		topology error
		want     int
	}{
		{8, v1alpha1.PowerScopePackage, errors.New("unreadable"), 0},
		{8, v1alpha1.PowerScopePackage, nil, 2},
		{8, v1alpha1.PowerScopePackage, errors.New("not asked again"), 4},
		{8, v1alpha1.PowerScopePlatform, nil, 1},
		{8, v1alpha1.PowerScopePackage, nil, 5}, // as while a server was out
		{8, v1alpha1.PowerScopePlatform, nil, 2},
		{8, "Rack", nil, 1},
		{8, v1alpha1.PowerScopePlatform, nil, 3},
		{8, v1alpha1.PowerScopePackage, nil, 1}, // what held before the last is forgotten
		{16, v1alpha1.PowerScopePackage, nil, 2},
		{0, v1alpha1.PowerScopePackage, errors.New("not known now"), 4},
		{0, v1alpha1.PowerScopePlatform, nil, 0}, // of another scope, and nothing to start with
		{16, v1alpha1.PowerScopePackage, nil, 5},
	} {
		if got := look(step.cores, step.scope, step.topology); got != step.want {
			t.Errorf("%d cores, %s: learned from %d readings, want %d", step.cores, step.scope, got, step.want)
		}
	}
}

// A pull stands for the time since the one before, as long as that is known.
func TestStandsFor(t *testing.T) {
	pull := func(seconds float64, since time.Time) *model.NodeRates {
		return &model.NodeRates{IntervalSeconds: 1, Totals: &model.Totals{Since: since, Seconds: seconds}}
	}
	for name, tc := range map[string]struct {
		before, now *model.NodeRates
		want        float64
	}{
		"the first":                   {nil, pull(900, noon()), 1},
		"15 s later":                  {pull(900, noon()), pull(915, noon()), 15},
		"after a gap":                 {pull(900, noon()), pull(9000, noon()), 60},
		"the agent restarted":         {pull(900, noon()), pull(915, at(900)), 1},
		"totals that went back":       {pull(900, noon()), pull(800, noon()), 1},
		"an agent that has no totals": {&model.NodeRates{}, &model.NodeRates{IntervalSeconds: 5}, 5},
	} {
		if got := standsFor(tc.before, tc.now); got != tc.want {
			t.Errorf("%s: %v s, want %v", name, got, tc.want)
		}
	}
}

// What is learned of VMs' costs serves without a meter too, on the priors of the
// node's power.
func TestBasisNeedsNoMeter(t *testing.T) {
	models, m := newModels(t), newMachine(1)
	asked := func(name string) (known bool, coefficients power.Coefficients) {
		known = models.Basis(name, func(host whatif.Host) { coefficients = host.Model.Coefficients() })
		return known, coefficients
	}
	if known, _ := asked("n"); known {
		t.Error("something is known of a node that nobody looked at")
	}
	m.second()
	rates := m.rates()
	rates.Power = nil
	models.Observe("n", Sample{
		Processor: Processor{Name: "x", Cores: 8}, Topology: func() (model.Topology, error) { return eightCores(), nil },
		Sample: stream.Sample{Rates: rates, Received: rates.Time, Now: rates.Time},
	})
	known, coefficients := asked("n")
	if !known || !(coefficients.PerBusyCore > 0) {
		t.Errorf("known %t, %+v", known, coefficients)
	}
	if models.WhatIf("n", func(whatif.Host) {}) {
		t.Error("a node without a meter counts as metered")
	}
}
