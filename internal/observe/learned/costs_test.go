package learned

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/joulevirt/joulevirt/internal/energy/stream"
	"github.com/joulevirt/joulevirt/internal/model"
)

// Before anything is metered, costs are those of the priors to half a step.
func TestCostsOfPriors(t *testing.T) {
	models := newModels(t)
	prior := models.priors.Node(eightCores()).Mean
	got := models.Costs("n", eightCores())
	for name, pair := range map[string][2]float64{
		"busy core": {float64(got.PerBusyCore), float64(prior.PerBusyCore)},
		"wake-up":   {float64(got.PerWakeUp), float64(prior.PerWakeUp)},
		"awake":     {float64(got.PerAwakeCore), float64(prior.PerAwakeCore)},
	} {
		if off := math.Abs(math.Log(pair[0]/pair[1])) / math.Log(costStep); !(off <= 0.5+1e-9) {
			t.Errorf("%s costs %v, the prior says %v: %v steps", name, pair[0], pair[1], off)
		}
	}
	if !(got.Pinned > got.Separated && got.Separated > 0 && got.Pinned < 1) {
		t.Errorf("pins save %v, separation %v", got.Pinned, got.Separated)
	}
}

// Costs follow a meter.
func TestCostsAreLearned(t *testing.T) {
	models := newModels(t)
	m := newMachine(3)
	for range 40 * 60 {
		m.second()
		if len(m.history)%15 == 0 {
			models.Observe("n", Sample{
				Processor: Processor{Cores: 8}, Topology: func() (model.Topology, error) { return eightCores(), nil },
				Sample: stream.Sample{Power: m.rates().Power, Rates: m.rates(), Received: at(float64(len(m.history))), Now: at(float64(len(m.history)))},
			})
		}
	}
	learned, known := coefficients(models, "n")
	if !known {
		t.Fatal("nothing was learned")
	}
	got := models.Costs("n", model.Topology{})
	if off := math.Abs(math.Log(float64(got.PerBusyCore/learned.PerBusyCore))) / math.Log(costStep); !(off <= 0.5+1e-9) {
		t.Errorf("a busy core costs %v, learned %v: %v steps", got.PerBusyCore, learned.PerBusyCore, off)
	}
}

// A figure that wavers by a tenth around any value changes what is reported once at most.
func TestCostsDoNotWaver(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		value := math.Exp(random.Float64()*20 - 10)
		reported := step(0, value)
		changes := 0
		for range 100 {
			next := step(reported, value*(1+0.1*(2*random.Float64()-1)))
			if next != reported {
				changes++
			}
			reported = next
		}
		if changes > 1 {
			t.Fatalf("%v was reported %d times", value, changes)
		}
	}
	for _, bad := range []float64{0, -1, math.NaN()} {
		if got := step(5, bad); got != 0 {
			t.Errorf("%v is reported as %v", bad, got)
		}
	}
	if got := step(1, 100); math.Abs(got/100-1) > 0.13 {
		t.Errorf("100 after 1 is reported as %v", got)
	}
}
