package lsq_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/joulevirt/joulevirt/internal/power/lsq"
)

// node is a model of a node's power: idle W, W per busy core, J per wake-up, W
// per awake core. The terms differ by five orders of magnitude.
func node() lsq.Options {
	return lsq.Options{
		Prior:       []float64{20, 5, 1e-5, 1},
		PriorStdDev: []float64{20, 5, 2e-5, 1},
		Memory:      240,
		Noise:       0.5,
	}
}

func start(t testing.TB, options lsq.Options) *lsq.Estimator {
	t.Helper()
	e, err := lsq.New(options)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func newRandom(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0)) }

// load draws a load of a node with 16 cores.
func load(random *rand.Rand) []float64 {
	return []float64{1, 16 * random.Float64(), 2e5 * random.Float64(), 8 * random.Float64()}
}

func dot(a, b []float64) float64 {
	sum := 0.0
	for i := range a {
		sum += a[i] * b[i]
	}
	return sum
}

func coefficients(e *lsq.Estimator, terms int) []float64 {
	c := make([]float64, terms)
	e.Coefficients(c)
	return c
}

func TestRecoversCoefficients(t *testing.T) {
	truth := []float64{31, 8, 3e-5, 2}
	e := start(t, node())
	random := newRandom(1)
	for range 2000 {
		x := load(random)
		e.Update(x, dot(x, truth)+random.NormFloat64(), 1)
	}
	// The information of a memory of 240 at a noise of 1 W allows these errors.
	tolerance := []float64{1, 0.1, 1e-5, 0.2}
	for i, c := range coefficients(e, 4) {
		if math.Abs(c-truth[i]) > tolerance[i] {
			t.Errorf("coefficient %d is %g, want %g within %g", i, c, truth[i], tolerance[i])
		}
	}
	if e.Residual() < 0.8 || e.Residual() > 1.25 {
		t.Errorf("residual %g W, want about the noise of 1 W", e.Residual())
	}
}

// TestStandardErrorCovers checks the promise of a standard error over many
// histories: predictions are off by at most 1.96 of it in 95 % of them.
func TestStandardErrorCovers(t *testing.T) {
	const histories = 1000
	covered := 0
	for history := range uint64(histories) {
		random := newRandom(history)
		options := node()
		// The truth is drawn from the prior, so that the prior is right too. It is
		// kept off the bounds, which the standard error does not know of.
		options.PriorStdDev = []float64{4, 1, 2e-6, 0.2}
		truth := make([]float64, 4)
		for i := range truth {
			truth[i] = options.Prior[i] + options.PriorStdDev[i]*random.NormFloat64()
		}
		e := start(t, options)
		for range 30 {
			x := load(random)
			e.Update(x, dot(x, truth)+0.5*random.NormFloat64(), 1)
		}
		x := load(random)
		mean, stdErr := e.Predict(x)
		if math.Abs(mean-dot(x, truth)) <= 1.96*stdErr {
			covered++
		}
	}
	// Huber's weights and forgetting cost a little.
	if share := float64(covered) / histories; share < 0.92 || share > 0.98 {
		t.Errorf("%.1f %% of the predictions are within 1.96 standard errors, want about 95 %%", 100*share)
	}
}

// TestUnexcited: what is never seen to vary keeps its prior, and the standard
// error of it.
func TestUnexcited(t *testing.T) {
	e := start(t, node())
	random := newRandom(3)
	for range 5000 {
		busy := 16 * random.Float64()
		e.Update([]float64{1, busy, 0, 0}, 31+8*busy+random.NormFloat64(), 1)
	}
	got := coefficients(e, 4)
	if diff := cmp.Diff([]float64{1e-5, 1}, got[2:]); diff != "" {
		t.Errorf("coefficients of terms that were always 0 (-prior +got):\n%s", diff)
	}
	for i, want := range map[int]float64{2: 2e-5, 3: 1} {
		x := make([]float64, 4)
		x[i] = 1
		if _, stdErr := e.Predict(x); math.Abs(stdErr-want) > 1e-12*want {
			t.Errorf("standard error of coefficient %d: %g, want the prior's %g", i, stdErr, want)
		}
	}
}

// TestConstantLoad: hours at one load say nothing of the coefficients apart,
// however the readings scatter; only their sum at that load is known.
func TestConstantLoad(t *testing.T) {
	e := start(t, node())
	random := newRandom(4)
	x := []float64{1, 4, 5e4, 3}
	for range 100000 {
		e.Update(x, 60+random.NormFloat64(), 1)
	}
	if mean, stdErr := e.Predict(x); math.Abs(mean-60) > 0.5 || stdErr > 0.2 {
		t.Errorf("at the load: %g +- %g W, want 60 W", mean, stdErr)
	}
	if _, stdErr := e.Predict([]float64{0, 1, 0, 0}); stdErr < 3 || stdErr > 5 {
		t.Errorf("standard error per busy core %g W, want nearly the prior's 5 W", stdErr)
	}
}

func TestKnownCoefficientStays(t *testing.T) {
	options := node()
	options.PriorStdDev[0] = 0
	e := start(t, options)
	random := newRandom(5)
	for range 500 {
		x := load(random)
		e.Update(x, 50+8*x[1], 1)
	}
	if got := coefficients(e, 4)[0]; got != 20 {
		t.Errorf("a coefficient with standard deviation 0 went from 20 to %g", got)
	}
}

func TestNewRefuses(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for name, change := range map[string]func(*lsq.Options){
		"no terms":               func(o *lsq.Options) { *o = lsq.Options{Memory: 10, Noise: 1} },
		"too many terms":         func(o *lsq.Options) { o.Prior, o.PriorStdDev = make([]float64, 9), make([]float64, 9) },
		"lengths":                func(o *lsq.Options) { o.PriorStdDev = o.PriorStdDev[:3] },
		"length of the bounds":   func(o *lsq.Options) { o.Lower = []float64{0} },
		"prior below its bound":  func(o *lsq.Options) { o.Prior[1] = -1 },
		"bound not a number":     func(o *lsq.Options) { o.Lower = []float64{nan, 0, 0, 0} },
		"bound above everything": func(o *lsq.Options) { o.Lower = []float64{inf, 0, 0, 0} },
		"prior not a number":     func(o *lsq.Options) { o.Prior[0] = nan },
		"infinite prior":         func(o *lsq.Options) { o.Prior[0] = inf },
		"infinite deviation":     func(o *lsq.Options) { o.PriorStdDev[0] = inf },
		"negative deviation":     func(o *lsq.Options) { o.PriorStdDev[0] = -1 },
		"no memory":              func(o *lsq.Options) { o.Memory = 1 },
		"endless memory":         func(o *lsq.Options) { o.Memory = inf },
		"memory not a number":    func(o *lsq.Options) { o.Memory = nan },
		"no noise":               func(o *lsq.Options) { o.Noise = 0 },
		"noise not a number":     func(o *lsq.Options) { o.Noise = nan },
		"noise whose square is 0": func(o *lsq.Options) {
			o.Noise = 1e-200
		},
		"noise whose square is infinite": func(o *lsq.Options) { o.Noise = 1e200 },
	} {
		options := node()
		change(&options)
		if e, err := lsq.New(options); err == nil || e != nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestOutcomeString(t *testing.T) {
	got := []string{lsq.Refused.String(), lsq.DownWeighted.String(), lsq.Used.String(), lsq.Outcome(7).String()}
	if diff := cmp.Diff([]string{"Refused", "DownWeighted", "Used", "Outcome(7)"}, got); diff != "" {
		t.Error(diff)
	}
}

func TestNoAllocation(t *testing.T) {
	e := start(t, node())
	random := newRandom(6)
	x, c := load(random), make([]float64, 4)
	if n := testing.AllocsPerRun(1000, func() {
		x[1], x[2] = 16*random.Float64(), 2e5*random.Float64()
		e.Update(x, 20+8*x[1], 1)
		e.Predict(x)
		e.Coefficients(c)
		_ = e.Residual()
	}); n != 0 {
		t.Errorf("%g allocations per update and prediction, want none", n)
	}
}
