package verify_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/units"
	"github.com/joulevirt/joulevirt/internal/verify"
	"github.com/joulevirt/joulevirt/test/trials"
)

func TestHoldingGoesOnOverSchedules(t *testing.T) {
	world := trials.Worlds()[0]
	var h verify.Holding
	strata := 0
	for number := range 3 {
		schedule, err := verify.DrawHoldBack(verify.Timing{
			Lever: v1alpha1.LeverAffinity, Seed: int64(number), Start: time.Unix(0, 0), Block: trials.BlockLength, WashOut: time.Minute,
		}, 0.05)
		if err != nil {
			t.Fatal(err)
		}
		outcomes := world.Node("n", &schedule, trials.Truth{Effect: -0.05}, uint64(number))
		// The last stratum is left in its middle: of it nothing, or one difference, counts.
		for b := range 70 {
			h.Add(&outcomes[b], schedule.On, 20)
		}
		h.Close()
		strata += 3
		if h.Strata() < strata || h.Strata() > strata+1 {
			t.Errorf("after %d schedules: %d strata, want %d or one more", number+1, h.Strata(), strata)
		}
		strata = h.Strata()
	}
	if energy, _ := h.Effects(); !energy.IsKnown() || math.Abs(energy.Log+0.05) > 5*energy.StdErr {
		t.Errorf("effect %v, want about -0.05", energy)
	}
}

// TestHoldingForgets is of a lever that saved 10 % and then nothing.
func TestHoldingForgets(t *testing.T) {
	var h verify.Holding
	world := trials.Worlds()[0]
	for number, effect := range []float64{-0.1, 0, 0, 0} {
		schedule, err := verify.DrawHoldBack(verify.Timing{
			Lever: v1alpha1.LeverAffinity, Seed: int64(number), Start: time.Unix(0, 0), Block: trials.BlockLength, WashOut: time.Minute,
		}, 0.1)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range world.Node("n", &schedule, trials.Truth{Effect: effect}, uint64(number)) {
			h.Add(&o, schedule.On, 10)
		}
		h.Close()
		if energy, _ := h.Effects(); energy.Pairs > 64 {
			t.Errorf("%d strata count", energy.Pairs)
		}
	}
	if energy, _ := h.Effects(); math.Abs(energy.Log) > 5*energy.StdErr || energy.Log < -0.015 || h.Strata() != 408 {
		t.Errorf("effect %v after %d strata, want about 0", energy, h.Strata())
	}
}

// held goes through as many strata of 20 blocks, of which missing ones are excluded, and gives
// after how many of them nothing was shown.
func held(t *testing.T, seed int64, strata int, h *verify.Holding, missing func(stratum int, on bool) bool) (dark int) {
	t.Helper()
	const stratum = 20
	at := verify.Timing{Lever: v1alpha1.LeverAffinity, Seed: seed, Start: time.Unix(0, 0), Block: trials.BlockLength, WashOut: time.Minute}
	schedule, err := verify.DrawHoldBack(at, 0.05)
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(uint64(seed), 6))
	for b := range strata * stratum {
		number := b % (len(schedule.On) / stratum * stratum)
		o := verify.Outcome{Block: number, On: schedule.On[number], Seconds: 1, Joules: units.Joules(math.Exp(0.01 * random.NormFloat64())), Work: 1}
		if missing(b/stratum, o.On) {
			o.Excluded = "AgentRestarted"
		}
		h.Add(&o, schedule.On, stratum)
		if number%stratum == stratum-1 {
			h.Close()
			if energy, _ := h.Effects(); h.Strata() > 1 && !energy.IsKnown() {
				dark++
			}
		}
	}
	return dark
}

// TestHoldingSeesMissingBlocks: a hold-back whose blocks are missing with the lever on, and not
// with it off, shows nothing any more, and compares no strata, until they are missing no more.
func TestHoldingSeesMissingBlocks(t *testing.T) {
	for name, c := range map[string]struct {
		on, off float64
		dark    bool
	}{
		"none":                           {0, 0, false},
		"a third, whether on or off":     {0.3, 0.3, false},
		"more with the lever off":        {0.05, 0.5, false},
		"a third with the lever on":      {0.3, 0, true},
		"half, and a twentieth when off": {0.5, 0.05, true},
	} {
		random := rand.New(rand.NewPCG(7, 8))
		var h verify.Holding
		missing := func(stratum int, on bool) bool {
			share := c.off
			if on {
				share = c.on
			}
			return stratum < 100 && random.Float64() < share
		}
		held(t, 9, 100, &h, missing)
		strata := h.Strata()
		energy, work := h.Effects()
		if dark := !energy.IsKnown() && !work.IsKnown(); dark != c.dark {
			t.Errorf("%s: nothing is shown: %v, want %v", name, dark, c.dark)
		}
		held(t, 10, 1, &h, func(int, bool) bool { return false })
		if grew := h.Strata() > strata; grew == c.dark {
			t.Errorf("%s: %d strata, and one more: %d", name, strata, h.Strata())
		}
		held(t, 11, 400, &h, func(int, bool) bool { return false })
		if energy, _ := h.Effects(); !energy.IsKnown() || h.Strata() < strata+100 {
			t.Errorf("%s: nothing is shown long after: %v, %d strata", name, energy, h.Strata())
		}
	}
}

func TestWith(t *testing.T) {
	a := verify.Effect{Log: -0.1, StdErr: 0.01, Freedom: 9, Units: 1, Pairs: 30}
	b := verify.Effect{Log: -0.2, StdErr: 0.02, Freedom: 4, Units: 1, Pairs: 10}
	if got := a.With(verify.Effect{}); got != a {
		t.Errorf("with nothing: %v", got)
	}
	if got := (verify.Effect{}).With(a); got != a {
		t.Errorf("nothing with: %v", got)
	}
	got := a.With(b)
	if math.Abs(got.Log+0.125) > 1e-12 || got.Pairs != 40 || got.Units != 1 || math.Abs(got.StdErr-math.Hypot(0.0075, 0.005)) > 1e-12 {
		t.Errorf("got %+v", got)
	}
}

// TestChanceOfStrata: what strata differ by is chance, and a lever that saves more by day is
// not; the last stratum's difference is of just its blocks.
func TestChanceOfStrata(t *testing.T) {
	const strata, noise = 60, 0.01
	random := rand.New(rand.NewPCG(3, 4))
	at := verify.Timing{Lever: v1alpha1.LeverAffinity, Seed: 5, Start: time.Unix(0, 0), Block: trials.BlockLength, WashOut: time.Minute}
	schedule, err := verify.DrawHoldBack(at, 0.1)
	if err != nil {
		t.Fatal(err)
	}
	var h verify.Holding
	for b := range strata * 10 {
		log, effect := noise*random.NormFloat64(), -0.1-0.1*math.Sin(float64(b/10)*2*math.Pi/strata)
		if schedule.On[b] {
			log += effect
		}
		h.Add(&verify.Outcome{Block: b, On: schedule.On[b], Seconds: 1, Joules: units.Joules(math.Exp(log)), Work: 1}, schedule.On, 10)
		if last, precision := h.Last(); b%10 == 9 && (math.Abs(last-effect) > 6*noise || precision < 1 || precision > 2) {
			t.Errorf("stratum %d shows %v, want about %v; precision %v", b/10, last, effect, precision)
		}
	}
	// A pair of blocks has twice the variance of one.
	if variance, steps := h.Chance(); steps != strata-1 || math.Abs(math.Sqrt(variance/2)/noise-1) > 0.25 {
		t.Errorf("by chance %v in %d steps, want %v", math.Sqrt(variance/2), steps, noise)
	}
}
