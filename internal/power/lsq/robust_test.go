package lsq_test

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/joulevirt/joulevirt/internal/power/lsq"
)

// learned returns an estimator that knows a truth, and goes on with it.
func learned(t testing.TB, truth []float64, seed uint64) (*lsq.Estimator, func(change []float64) ([]float64, float64)) {
	t.Helper()
	e := start(t, node())
	random := newRandom(seed)
	observe := func(truth []float64) ([]float64, float64) {
		x := load(random)
		return x, dot(x, truth) + random.NormFloat64()
	}
	for range 500 {
		x, y := observe(truth)
		e.Update(x, y, 1)
	}
	return e, observe
}

func truth() []float64 { return []float64{31, 8, 3e-5, 2} }

// offAt returns how far predictions of a typical load are from a truth.
func offAt(e *lsq.Estimator, truth []float64) float64 {
	x := []float64{1, 8, 1e5, 4}
	mean, _ := e.Predict(x)
	return math.Abs(mean - dot(x, truth))
}

func TestUnusableChangesNothing(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	good := []float64{1, 4, 1e4, 2}
	for name, o := range map[string]struct {
		x         []float64
		y, weight float64
	}{
		"nothing":             {nil, 1, 1},
		"too few terms":       {good[:3], 60, 1},
		"too many terms":      {append(good, 1), 60, 1},
		"all terms 0":         {make([]float64, 4), 60, 1},
		"term not a number":   {[]float64{1, nan, 0, 0}, 60, 1},
		"infinite term":       {[]float64{1, inf, 0, 0}, 60, 1},
		"huge term":           {[]float64{1, 1e300, 0, 0}, 60, 1},
		"huge negative term":  {[]float64{1, -1e300, 0, 0}, 60, 1},
		"not a number":        {good, nan, 1},
		"infinite":            {good, inf, 1},
		"negative infinite":   {good, -inf, 1},
		"huge":                {good, 1e300, 1},
		"largest":             {good, math.MaxFloat64, 1},
		"no weight":           {good, 60, 0},
		"negative weight":     {good, 60, -1},
		"weight not a number": {good, 60, nan},
		"infinite weight":     {good, 60, inf},
	} {
		e, _ := learned(t, truth(), 1)
		before, residual := coefficients(e, 4), e.Residual()
		if got := e.Update(o.x, o.y, o.weight); got != lsq.Refused {
			t.Errorf("%s: %v, want Refused", name, got)
		}
		if diff := cmp.Diff(before, coefficients(e, 4)); diff != "" || e.Residual() != residual {
			t.Errorf("%s: residual %g -> %g, coefficients (-before +after):\n%s", name, residual, e.Residual(), diff)
		}
	}
}

// TestOutliers: readings that are 1,000 times too high, or 0, at random times do
// not move the estimate, whether they are one in a hundred or one in ten.
func TestOutliers(t *testing.T) {
	for _, share := range []float64{0.01, 0.1} {
		e, observe := learned(t, truth(), 2)
		random := newRandom(3)
		worst, refused, outliers := 0.0, 0, 0
		for range 3000 {
			x, y := observe(truth())
			if random.Float64() < share {
				outliers++
				y *= 1000 * float64(random.IntN(2))
			}
			if e.Update(x, y, 1) == lsq.Refused {
				refused++
			}
			worst = max(worst, offAt(e, truth()))
		}
		if worst > 1 {
			t.Errorf("%g of the readings are outliers: predictions are off by up to %g W, want at most the noise of 1 W", share, worst)
		}
		if refused < outliers || refused > outliers+30 {
			t.Errorf("%g of the readings are outliers: %d refused of %d", share, refused, outliers)
		}
	}
}

// TestBurstOfOutliers: a meter that says nonsense for a while, each time another,
// is not believed.
func TestBurstOfOutliers(t *testing.T) {
	e, observe := learned(t, truth(), 4)
	random := newRandom(5)
	for range 50 {
		x, _ := observe(truth())
		if got := e.Update(x, 1e5*random.Float64(), 1); got != lsq.Refused {
			t.Fatalf("nonsense is %v, want Refused", got)
		}
	}
	if off := offAt(e, truth()); off > 0.5 {
		t.Errorf("predictions are off by %g W", off)
	}
}

// TestChangeOfRegime: a node that is another from one reading to the next, by
// little or much, is learned anew: within 40 readings nine times in ten, for a
// small change is seen late when noise hides it, and within 340 always, with the
// noise as it was.
func TestChangeOfRegime(t *testing.T) {
	for name, after := range map[string][]float64{
		"4 W more":             {35, 8, 3e-5, 2},
		"15 W less":            {16, 8, 3e-5, 2},
		"100 W more":           {131, 8, 3e-5, 2},
		"1,000 W more":         {1031, 8, 3e-5, 2},
		"cores cost half":      {31, 4, 3e-5, 2},
		"wake-ups cost thrice": {31, 8, 9e-5, 2},
		"everything":           {60, 3, 9e-5, 5},
	} {
		const seeds = 100
		soon := 0
		for seed := range uint64(seeds) {
			e, observe := learned(t, truth(), seed)
			learn := func(readings int) {
				for range readings {
					x, y := observe(after)
					e.Update(x, y, 1)
				}
			}
			learn(40)
			if offAt(e, after) <= 1.5 {
				soon++
			}
			learn(300)
			if off := offAt(e, after); off > 0.5 {
				t.Errorf("%s, seed %d: after 340 readings predictions are off by %.2f W, want at most 0.5", name, seed, off)
			}
			if e.Residual() < 0.7 || e.Residual() > 1.4 {
				t.Errorf("%s, seed %d: residual %.2f W at the end, want about 1", name, seed, e.Residual())
			}
		}
		if soon < 0.9*seeds {
			t.Errorf("%s: after 40 readings predictions are within 1.5 W in %d of %d histories, want 90 %%", name, soon, seeds)
		}
	}
}

// TestChangeAmongOutliers: lone outliers do not hide that a node changed.
func TestChangeAmongOutliers(t *testing.T) {
	after := []float64{51, 8, 3e-5, 2}
	for seed := range uint64(10) {
		e, observe := learned(t, truth(), seed)
		random := newRandom(seed + 100)
		for range 100 {
			x, y := observe(after)
			if random.IntN(8) == 0 {
				y *= 1000
			}
			e.Update(x, y, 1)
		}
		if off := offAt(e, after); off > 1.5 {
			t.Errorf("seed %d: after 100 readings predictions are off by %.2f W, want at most 1.5", seed, off)
		}
	}
}

// TestJumpIsNoNoise: that a node jumped does not count as noise.
func TestJumpIsNoNoise(t *testing.T) {
	after := []float64{131, 8, 3e-5, 2}
	const seeds = 20
	mean := 0.0
	for seed := range uint64(seeds) {
		e, observe := learned(t, truth(), seed)
		for range 40 {
			x, y := observe(after)
			e.Update(x, y, 1)
		}
		mean += e.Residual() / seeds
	}
	if mean > 1.15 {
		t.Errorf("40 readings after a jump of 100 W the residual is %.2f W on average, but the noise is still 1 W", mean)
	}
}

// TestInfluenceIsBounded: a reading that is 5 standard deviations off counts no
// more than one that is 1.5 off, and both are said to count for less.
func TestInfluenceIsBounded(t *testing.T) {
	moved := func(deviations float64) float64 {
		e, _ := learned(t, truth(), 9)
		x := []float64{1, 8, 1e5, 4}
		before, stdErr := e.Predict(x)
		y := before + deviations*math.Hypot(e.Residual(), stdErr)
		if got := e.Update(x, y, 1); got != lsq.DownWeighted {
			t.Errorf("%g standard deviations off: %v, want DownWeighted", deviations, got)
		}
		after, _ := e.Predict(x)
		return after - before
	}
	if little, much := moved(1.5), moved(5); much > 1.05*little || much < 0.95*little {
		t.Errorf("a reading 1.5 standard deviations off moved the prediction by %g W, one 5 off by %g W", little, much)
	}
}

// TestMeansOfSeveral: the noise is that of one observation, also when means of
// several are observed.
func TestMeansOfSeveral(t *testing.T) {
	e := start(t, node())
	random := newRandom(10)
	for k := range 2000 {
		x, of := load(random), float64(1+k%16)
		e.Update(x, dot(x, truth())+2/math.Sqrt(of)*random.NormFloat64(), of)
	}
	if e.Residual() < 1.6 || e.Residual() > 2.6 {
		t.Errorf("residual %g W of one observation, want about the noise of 2 W", e.Residual())
	}
}

// TestNoiseIsFound: noise far above and far below what was assumed.
func TestNoiseIsFound(t *testing.T) {
	for _, noise := range []float64{0.5, 1, 5, 20} {
		e := start(t, node())
		random := newRandom(7)
		for range 2000 {
			x := load(random)
			e.Update(x, dot(x, truth())+noise*random.NormFloat64(), 1)
		}
		if ratio := e.Residual() / noise; ratio < 0.75 || ratio > 1.35 {
			t.Errorf("noise %g W is estimated as %g W", noise, e.Residual())
		}
	}
}

// TestShortReadings: sixty readings of a quarter's weight teach and fade as
// fifteen of full weight.
func TestShortReadings(t *testing.T) {
	whole, parts := start(t, node()), start(t, node())
	random := newRandom(8)
	for range 60 {
		x := load(random)
		y := dot(x, []float64{22, 5.5, 1e-5, 1})
		whole.Update(x, y, 1)
		for range 4 {
			parts.Update(x, y, 0.25)
		}
	}
	want, got := coefficients(whole, 4), coefficients(parts, 4)
	for i, sd := range node().PriorStdDev {
		if math.Abs(want[i]-got[i]) > 0.02*sd {
			t.Errorf("coefficient %d: %g from whole readings, %g from parts", i, want[i], got[i])
		}
	}
}
