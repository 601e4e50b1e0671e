package power_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/joulevirt/joulevirt/internal/power"
	"github.com/joulevirt/joulevirt/internal/units"
)

// believed is a prior for a node that is typical, which draws less than half.
var believed = power.NodePrior{
	Mean:   power.Coefficients{Idle: 15, PerBusyCore: 5, PerWakeUp: 1e-5, PerAwakeCore: 1},
	StdDev: power.Coefficients{Idle: 15, PerBusyCore: 4, PerWakeUp: 2e-5, PerAwakeCore: 1},
	Noise:  0.5,
}

// day draws loads as a node with 16 cores has them: awake cores go with the busy
// ones, wake-ups with both, none is independent.
func day(random *rand.Rand, hours float64) power.Load {
	busy := 1 + 5*(1-math.Cos(2*math.Pi*hours/24)) + random.Float64()
	return power.Load{
		BusyCores:  units.Cores(busy),
		WakeUps:    units.PerSecond(1e4 * busy * (0.5 + random.Float64())),
		AwakeCores: units.Cores(min(16, 1.5*busy+random.Float64())),
	}
}

func TestNodeModelLearnsANode(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 0))
	m := power.NewNodeModel(believed)
	var load power.Load
	for round := range 24 * 240 {
		load = day(random, float64(round)/240)
		m.Update(load, typical.At(load)+units.Watts(random.NormFloat64()), 15)
	}
	for _, hours := range []float64{0, 1} {
		load = day(random, hours)
		if got := m.Predict(load); math.Abs(float64(got.Watts-typical.At(load))) > 1 {
			t.Errorf("at %+v: %+v, want %v W", load, got, typical.At(load))
		}
	}
	accuracy := m.Accuracy()
	if accuracy.Samples != 24*240 || accuracy.MeanRelativeError > 0.03 || accuracy.MeanRelativeError == 0 {
		t.Errorf("accuracy %+v, want an error of some percent, which the noise makes", accuracy)
	}
	if accuracy.Residual < 0.75 || accuracy.Residual > 1.3 {
		t.Errorf("residual %v W, want about the noise of 1 W", accuracy.Residual)
	}
}

// TestAccuracyIsOfTheUnseen: the error is of predictions that were made before
// the reading was learned from.
func TestAccuracyIsOfTheUnseen(t *testing.T) {
	m := power.NewNodeModel(believed)
	load := power.Load{BusyCores: 3}
	m.Update(load, 60, 15)
	// The prior says 30 W.
	want := power.Accuracy{MeanRelativeError: 0.5, Samples: 1, Residual: m.Accuracy().Residual}
	if diff := cmp.Diff(want, m.Accuracy()); diff != "" {
		t.Errorf("after one reading (-want +got):\n%s", diff)
	}
	predicted := m.Predict(load).Watts
	m.Update(load, 50, 15)
	if got, want := m.Accuracy().MeanRelativeError, (0.5+math.Abs(float64(predicted)-50)/50)/2; math.Abs(got-want) > 1e-12 {
		t.Errorf("after two readings the mean relative error is %g, want %g", got, want)
	}
	m.Update(load, 0, 15)
	if got := m.Accuracy().MeanRelativeError; got > 1 {
		t.Errorf("a reading of 0 W makes a mean relative error of %g", got)
	}
}

// TestNodeModelWithoutWakeUps: on a node without wake-ups, and with awake cores
// that always go with busy ones, the sum is learned and what cannot be reported
// apart is divided as the prior does.
func TestNodeModelWithoutWakeUps(t *testing.T) {
	random := rand.New(rand.NewPCG(2, 0))
	m := power.NewNodeModel(believed)
	for range 2000 {
		busy := units.Cores(8 * random.Float64())
		load := power.Load{BusyCores: busy, AwakeCores: busy}
		m.Update(load, 30+12*units.Watts(busy)+units.Watts(0.5*random.NormFloat64()), 15)
	}
	c := m.Coefficients()
	if sum := c.PerBusyCore + c.PerAwakeCore; math.Abs(float64(sum-12)) > 0.2 {
		t.Errorf("a core that is busy and awake costs %v W, want 12 W", sum)
	}
	if c.PerWakeUp != believed.Mean.PerWakeUp {
		t.Errorf("a wake-up costs %v J, want the prior's %v J: there was none", c.PerWakeUp, believed.Mean.PerWakeUp)
	}
	// 6 W more than the prior, by variances of 16 and 1.
	if want := 5 + 6*16.0/17; math.Abs(float64(c.PerBusyCore)-want) > 0.2 {
		t.Errorf("a busy core costs %v W, want %.2f W", c.PerBusyCore, want)
	}
	// A change of both together is known, one of either alone is not.
	together := m.Change(power.Load{BusyCores: 2, AwakeCores: 2}, power.Load{BusyCores: 4, AwakeCores: 4})
	alone := m.Change(power.Load{BusyCores: 2, AwakeCores: 2}, power.Load{BusyCores: 2, AwakeCores: 4})
	if math.Abs(float64(together.Watts-24)) > 0.4 || together.StdErr > 0.31*24 {
		t.Errorf("two cores more, busy and awake: %+v, want 24 W, as sure as the model's form allows", together)
	}
	if alone.StdErr < 1.5 {
		t.Errorf("two cores more awake, as busy: %+v, want nearly the prior's 2 W of error", alone)
	}
}

// TestMorning: a night at one load does not make a node forget what busy cores
// cost by day, also when something else changes in the night. What that is
// cannot be reported from one load: of each watt the prior gives the busy and awake
// cores, whose variances there are 16 + 4 of 245 W^2, what makes 0.77 W at noon.
func TestMorning(t *testing.T) {
	for name, c := range map[string]struct {
		drift func(hours float64) float64
		most  float64
	}{
		"all else equal":       {func(float64) float64 { return 0 }, 0},
		"4 W less at midnight": {func(hours float64) float64 { return -4 * math.Round(hours/10) }, 4},
		"10 W more":            {func(hours float64) float64 { return 10 * math.Round(hours/10) }, 10},
		"slowly 6 W less":      {func(hours float64) float64 { return -0.6 * hours }, 6},
		"the room's cooling":   {func(hours float64) float64 { return 2 * math.Sin(4*math.Pi*hours) }, 2},
	} {
		random := rand.New(rand.NewPCG(4, 0))
		m := power.NewNodeModel(believed)
		read := func(load power.Load, more float64) {
			m.Update(load, typical.At(load)+units.Watts(more+random.NormFloat64()), 15)
		}
		for round := range 14 * 240 {
			read(day(random, 5+float64(round)/240), 0)
		}
		night, noon := power.Load{BusyCores: 1, WakeUps: 1e4, AwakeCores: 2}, power.Load{BusyCores: 11, WakeUps: 1.1e5, AwakeCores: 16}
		for round := range 10 * 240 {
			night.BusyCores = units.Cores(1 + 0.1*random.Float64())
			read(night, c.drift(float64(round)/240))
		}
		want := float64(typical.At(noon) - typical.At(night))
		got := m.Change(night, noon)
		if miss := math.Abs(float64(got.Watts) - want); miss > 0.02*want+0.77*c.most {
			t.Errorf("%s: after a night, noon is expected to draw %+v more, want %v W", name, got, want)
		}
	}
}

func TestChangeCancels(t *testing.T) {
	m := power.NewNodeModel(believed)
	from, to := power.Load{BusyCores: 2, WakeUps: 1e5, AwakeCores: 3}, power.Load{BusyCores: 2, WakeUps: 5e4, AwakeCores: 3}
	if got, want := m.Change(from, from), (power.Estimate{}); got != want {
		t.Errorf("no change is %+v", got)
	}
	// 50,000 wake-ups/s less, at 10 +- 20 uJ each, and 30 % for the form.
	got, wantErr := m.Change(from, to), math.Hypot(1, 0.3*0.5)
	if math.Abs(float64(got.Watts+0.5)) > 1e-12 || math.Abs(float64(got.StdErr)-wantErr) > 1e-12 {
		t.Errorf("%+v, want -0.5 W +- %v W", got, wantErr)
	}
}

// TestRoundsOfAnyLength: a node read each second is learned as one read each 15
// s, and what each of the many readings says is not taken for news.
func TestRoundsOfAnyLength(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 0))
	slow, fast := power.NewNodeModel(believed), power.NewNodeModel(believed)
	for round := range 960 {
		load := day(random, float64(round)/40)
		watts := typical.At(load) + units.Watts(random.NormFloat64())
		slow.Update(load, watts, 15)
		for range 15 {
			fast.Update(load, watts, 1)
		}
	}
	load := power.Load{BusyCores: 6, WakeUps: 6e4, AwakeCores: 9}
	a, b := slow.Predict(load), fast.Predict(load)
	if math.Abs(float64(a.Watts-b.Watts)) > 0.5 {
		t.Errorf("%+v by rounds of 15 s, %+v by rounds of 1 s", a, b)
	}
	if ratio := b.StdErr / a.StdErr; ratio < 0.7 || ratio > 1.4 {
		t.Errorf("standard error %v W by rounds of 15 s, %v W by rounds of 1 s", a.StdErr, b.StdErr)
	}
}
