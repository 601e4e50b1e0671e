package verify

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"gonum.org/v1/gonum/stat/distuv"
)

// simulatedFleet is units of a class whose truth is known.
type simulatedFleet struct {
	mean    float64
	truths  []float64
	effects []Effect
}

// drawFleet draws units with errors that differ between them and were themselves
// estimated, as those of trials are.
func drawFleet(random *rand.Rand, units int, between float64) simulatedFleet {
	fleet := simulatedFleet{mean: -0.05 + 0.03*random.NormFloat64()}
	for range units {
		truth := fleet.mean + between*random.NormFloat64()
		stdErr := 0.01 * (1 + 2*random.Float64())
		freedom := float64(10 + random.IntN(31))
		chi := distuv.ChiSquared{K: freedom, Src: random}.Rand()
		fleet.truths = append(fleet.truths, truth)
		fleet.effects = append(fleet.effects, Effect{
			Log: truth + stdErr*random.NormFloat64(), StdErr: stdErr * math.Sqrt(chi/freedom), Freedom: freedom,
			Units: 1, Pairs: int(freedom) + 1,
		})
	}
	return fleet
}

func covers(e Effect, truth float64) bool {
	low, high := e.Interval(0.95)
	return low <= truth && truth <= high
}

func TestPooledIntervalsCoverTheTruth(t *testing.T) {
	const fleets = 2500
	for _, units := range []int{2, 5, 30} {
		for _, between := range []float64{0, 0.01, 0.03} {
			t.Run(fmt.Sprintf("%d units, %g between", units, between), func(t *testing.T) {
				random := rand.New(rand.NewPCG(7, uint64(units)))
				means, single, news := 0, 0, 0
				for range fleets {
					fleet := drawFleet(random, units, between)
					pooled := Pool(fleet.effects)
					if covers(pooled.Mean, fleet.mean) {
						means++
					}
					at := random.IntN(units)
					if covers(pooled.Unit(fleet.effects[at]).Effect(), fleet.truths[at]) {
						single++
					}
					if covers(pooled.Unit(Effect{}).Effect(), fleet.mean+between*random.NormFloat64()) {
						news++
					}
				}
				share := func(count int) float64 { return 100 * float64(count) / fleets }
				t.Logf("simulated: mean %.1f %%, one unit %.1f %%, a new unit %.1f %%", share(means), share(single), share(news))
				if got := share(means); got < 93 || got > 97 {
					t.Errorf("the 95 %% interval of the mean covers the truth in %.1f %% of fleets, want 93 to 97", got)
				}
				if got := share(single); got < 93 {
					t.Errorf("the 95 %% interval of a unit covers its truth in %.1f %%, want 93 at least", got)
				}
				if got := share(news); got < 93 {
					t.Errorf("the 95 %% interval of a new unit covers its truth in %.1f %%, want 93 at least", got)
				}
			})
		}
	}
}

func TestPoolOfEqualErrorsIsThatOfTheSample(t *testing.T) {
	for name, test := range map[string]struct {
		logs    []float64
		stdErr  float64
		mean    Effect
		between float64
	}{
		// The standard error is the sample's standard deviation over the root of its size.
		"two":   {[]float64{-0.04, -0.06}, 0.001, Effect{Log: -0.05, StdErr: 0.01, Freedom: 1}, math.Sqrt(2e-4 - 1e-6)},
		"three": {[]float64{-0.03, -0.06, -0.09}, 0.01, Effect{Log: -0.06, StdErr: 0.03 / math.Sqrt(3), Freedom: 2}, math.Sqrt(9e-4 - 1e-4)},
		"alike": {[]float64{-0.05, -0.051}, 0.02, Effect{Log: -0.0505, StdErr: 0.0005, Freedom: 1}, 0},
	} {
		var effects []Effect
		for _, log := range test.logs {
			effects = append(effects, Effect{Log: log, StdErr: test.stdErr, Freedom: 20, Units: 1, Pairs: 21})
		}
		got := Pool(effects)
		if !near(got.Mean.Log, test.mean.Log) || !near(got.Mean.StdErr, test.mean.StdErr) ||
			got.Mean.Freedom != test.mean.Freedom || !near(got.Between, test.between) {
			t.Errorf("%s: Pool is %+v between %g, want %+v between %g", name, got.Mean, got.Between, test.mean, test.between)
		}
		if got.Mean.Units != len(test.logs) || got.Mean.Pairs != 21*len(test.logs) {
			t.Errorf("%s: %d units and %d pairs, want %d and %d", name, got.Mean.Units, got.Mean.Pairs, len(test.logs), 21*len(test.logs))
		}
	}
}

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-9 }

func TestPoolOfTooLittleKnowsNothing(t *testing.T) {
	one := Effect{Log: -0.05, StdErr: 0.01, Freedom: 12, Units: 1, Pairs: 13}
	for name, effects := range map[string][]Effect{
		"none": nil, "one": {one}, "one and a zero": {one, {}},
		"no number": {one, {Log: math.NaN(), StdErr: 0.1, Freedom: 3}}, "no end": {one, {Log: -0.1, StdErr: math.Inf(1), Freedom: 3}},
	} {
		pooled := Pool(effects)
		if pooled.Mean.IsKnown() {
			t.Errorf("%s: the class is known as %+v", name, pooled.Mean)
		}
		if got, want := pooled.Unit(one), (Shrunk{Log: -0.05, Own: 0.01, Freedom: 12}); got != want {
			t.Errorf("%s: a unit of it is %+v, want its own %+v", name, got, want)
		}
		if got := pooled.Unit(Effect{}); got.IsKnown() {
			t.Errorf("%s: a new unit is known as %+v", name, got)
		}
	}
}

func TestUnitsOfOneMindAreDrawnTogether(t *testing.T) {
	var alike, apart []Effect
	for i := range 12 {
		side := 0.01 * float64(2*(i%2)-1)
		alike = append(alike, Effect{Log: -0.05 + side, StdErr: 0.02, Freedom: 20})
		apart = append(apart, Effect{Log: -0.05 + 10*side, StdErr: 0.02, Freedom: 20})
	}
	if got := Pool(alike).Unit(alike[0]); math.Abs(got.Log+0.05) > 0.003 || got.Effect().StdErr > 0.012 {
		t.Errorf("a unit of alike ones is %+v, want it near the mean of -0.05", got)
	}
	if got := Pool(apart).Unit(apart[0]); math.Abs(got.Log-apart[0].Log) > 0.01 || got.Own < 0.015 {
		t.Errorf("a unit of those apart is %+v, want it near its own %g", got, apart[0].Log)
	}
}

func TestContradict(t *testing.T) {
	prior := KnownPool(Effect{Log: -0.06, StdErr: 0.005, Freedom: 11, Units: 12, Pairs: 200}, 0.01)
	for name, test := range map[string]struct {
		measured Effect
		want     bool
	}{
		"as foretold":         {Effect{Log: -0.055, StdErr: 0.01, Freedom: 20, Units: 1}, false},
		"one that is unusual": {Effect{Log: -0.02, StdErr: 0.01, Freedom: 20, Units: 1}, false},
		"the other way":       {Effect{Log: 0.03, StdErr: 0.01, Freedom: 20, Units: 1}, true},
		"several":             {Effect{Log: -0.02, StdErr: 0.005, Freedom: 20, Units: 5}, true},
		"not known":           {Effect{Log: 0.5}, false},
	} {
		if got := prior.Contradicts(test.measured); got != test.want {
			t.Errorf("%s: contradicts is %v, want %v", name, got, test.want)
		}
	}
}

func TestClasses(t *testing.T) {
	for release, want := range map[string]string{
		"6.12.3-arch1": "6.12", "6.1.0-28-amd64": "6.1", "5.14.0-427.el9.x86_64": "5.14", "6.12": "6.12", "6.12-rc1": "6.12",
		"": "", "linux": "linux", "6": "6", "v6.12": "v6.12", "6.x": "6.x",
	} {
		if got := KernelOf(release); got != want {
			t.Errorf("KernelOf(%q) is %q, want %q", release, got, want)
		}
	}
	seen := map[string]Class{}
	for _, class := range []Class{
		{}, {CPUModel: "a;kernel=b"}, {CPUModel: "a", Kernel: "b"}, {CPUModel: `a\`, Kernel: "b"}, {CPUModel: `a\;kernel=b`},
		{CPUModel: "Xeon", Kernel: "6.12", Idle: "C6", Clocks: "schedutil/follows", Workload: "Interactive"},
	} {
		text := class.String()
		if other, taken := seen[text]; taken {
			t.Errorf("%+v and %+v are both %s", class, other, text)
		}
		seen[text] = class
	}
	if want := "cpu=Xeon;kernel=6.12;idle=C6;clocks=schedutil/follows;workload=Interactive"; seen[want].CPUModel != "Xeon" {
		t.Errorf("no class is %s", want)
	}
}
