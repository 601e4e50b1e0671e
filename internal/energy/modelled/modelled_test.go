package modelled

import (
	"math"
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/power"
	"github.com/joulevirt/joulevirt/internal/units"
)

func noon() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }

func prior() power.NodePrior {
	return power.NodePrior{
		Mean:   power.Coefficients{Idle: 20, PerBusyCore: 10, PerWakeUp: 1e-4, PerAwakeCore: 2},
		StdDev: power.Coefficients{Idle: 20, PerBusyCore: 10, PerWakeUp: 1e-4, PerAwakeCore: 2},
		Noise:  1,
	}
}

func TestPowerOfThePrior(t *testing.T) {
	m := New(prior(), v1alpha1.PowerScopePackage)
	got := m.Power(power.Load{BusyCores: 2, WakeUps: 10_000, AwakeCores: 3}, noon(), 1)
	const want = 20 + 2*10 + 1 + 3*2
	if got.Source != v1alpha1.PowerModel || got.Scope != v1alpha1.PowerScopePackage || math.Abs(float64(got.Watts)-want) > 1e-6 ||
		!got.Time.Equal(noon()) || got.IntervalSeconds != 1 {
		t.Errorf("%+v; want %v W", got, want)
	}
}

// What the meter said is known when it is gone.
func TestLearnsFromTheMeter(t *testing.T) {
	m := New(prior(), v1alpha1.PowerScopePackage)
	truth := func(busy float64) units.Watts { return units.Watts(50 + 8*busy) }
	for i := range 2000 {
		busy := float64(i % 5)
		m.Learn(power.Load{BusyCores: units.Cores(busy)}, model.Power{
			Source: v1alpha1.PowerRAPL, Scope: v1alpha1.PowerScopePackage, Watts: truth(busy), IntervalSeconds: 1,
		})
	}
	for busy := range 5 {
		got := m.Power(power.Load{BusyCores: units.Cores(busy)}, noon(), 1)
		if math.Abs(float64(got.Watts-truth(float64(busy)))) > 1 {
			t.Errorf("%d busy cores: %v W, want %v", busy, got.Watts, truth(float64(busy)))
		}
	}
	if m.Accuracy().Samples != 2000 {
		t.Errorf("%+v", m.Accuracy())
	}
}

// A model does not learn from what it said itself, nor from another part of the
// machine.
func TestDoesNotLearnFromOthers(t *testing.T) {
	m := New(prior(), v1alpha1.PowerScopePackage)
	for _, other := range []model.Power{
		{Source: v1alpha1.PowerModel, Scope: v1alpha1.PowerScopePackage, Watts: 500, IntervalSeconds: 1},
		{Source: v1alpha1.PowerRAPL, Scope: v1alpha1.PowerScopePlatform, Watts: 500, IntervalSeconds: 1},
	} {
		m.Learn(power.Load{}, other)
	}
	if n := m.Accuracy().Samples; n != 0 {
		t.Errorf("learned from %d readings", n)
	}
}
