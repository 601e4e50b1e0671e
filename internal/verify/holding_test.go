package verify_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
	"github.com/joulevirt/joulevirt/internal/verify"
	"github.com/joulevirt/joulevirt/test/trials"
)

// TestHoldingIsJudgeHoldBack holds sums against all blocks at once, on one schedule.
func TestHoldingIsJudgeHoldBack(t *testing.T) {
	for _, share := range []float64{0.05, 0.1, 0.3, 0.5} {
		for i, world := range trials.Worlds() {
			schedule, err := verify.DrawHoldBack(verify.Timing{
				Lever: model.LeverAffinity, Seed: int64(i), Start: time.Unix(0, 0),
				Block: trials.BlockLength, WashOut: time.Minute,
			}, share)
			if err != nil {
				t.Fatal(err)
			}
			outcomes := world.Node("n", &schedule, trials.Truth{Effect: -0.05, Work: -0.01}, uint64(i))
			for b := range outcomes {
				outcomes[b].Before = verify.Stretch{}
				if b%37 == 5 {
					outcomes[b].Excluded = "MeterFailed"
				}
			}
			// What is added to the work is of the blocks before, and not of all: of a random walk
			// they differ.
			most := 0.02
			if world.Work.Memory >= 1 {
				most = 0.2
			}
			stratum := verify.StratumBlocks(share)
			// From there on the old counts less.
			outcomes = outcomes[:min(len(outcomes), 60*stratum)]
			var h verify.Holding
			for b := range outcomes {
				h.Add(&outcomes[b], schedule.On, stratum)
			}
			want := verify.JudgeHoldBack(outcomes, stratum)
			energy, work := h.Effects()
			for _, c := range []struct {
				name      string
				got, want verify.Effect
			}{{"energy", energy, want.Effect}, {"work", work, want.Work}} {
				if c.got.Pairs != c.want.Pairs || h.Strata() != c.want.Pairs {
					t.Errorf("%s, %v, %s: %d pairs, want %d", world.Name, share, c.name, c.got.Pairs, c.want.Pairs)
				}
				if off := math.Abs(c.got.Log - c.want.Log); off > most*c.want.StdErr {
					t.Errorf("%s, %v, %s: %v, want %v", world.Name, share, c.name, c.got, c.want)
				}
				// The elasticity's error is without a lag, which is a small part of it.
				if ratio := c.got.StdErr / c.want.StdErr; math.Abs(ratio-1) > max(0.05, most) {
					t.Errorf("%s, %v, %s: error %v, want %v", world.Name, share, c.name, c.got.StdErr, c.want.StdErr)
				}
			}
		}
	}
}

func TestHoldingGoesOnOverSchedules(t *testing.T) {
	world := trials.Worlds()[0]
	var h verify.Holding
	strata := 0
	for number := range 3 {
		schedule, err := verify.DrawHoldBack(verify.Timing{
			Lever: model.LeverAffinity, Seed: int64(number), Start: time.Unix(0, 0), Block: trials.BlockLength, WashOut: time.Minute,
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
			Lever: model.LeverAffinity, Seed: int64(number), Start: time.Unix(0, 0), Block: trials.BlockLength, WashOut: time.Minute,
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

func TestHoldingTakesBadBlocks(t *testing.T) {
	var h verify.Holding
	on := []bool{true, false, true, true}
	for _, o := range []verify.Outcome{
		{Block: -1}, {Block: 4}, {Block: 0, On: true, Seconds: -1}, {Block: 1, Seconds: 1, Joules: 1, Work: math.NaN()},
		{Block: 2, On: true, Seconds: 1, Joules: 1, Work: 1, Excluded: "MeterFailed"},
	} {
		h.Add(&o, on, 4)
	}
	if h.Anew() != (verify.Holding{}) || h.Strata() != 0 {
		t.Errorf("got %+v, want nothing", h)
	}
	if energy, work := h.Effects(); energy.IsKnown() || work.IsKnown() {
		t.Errorf("effects %v %v of nothing", energy, work)
	}
}

// held goes through as many strata of 20 blocks, of which missing ones are excluded, and gives
// after how many of them nothing was shown.
func held(t *testing.T, seed int64, strata int, h *verify.Holding, missing func(stratum int, on bool) bool) (dark int) {
	t.Helper()
	const stratum = 20
	at := verify.Timing{Lever: model.LeverAffinity, Seed: seed, Start: time.Unix(0, 0), Block: trials.BlockLength, WashOut: time.Minute}
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

// TestHoldingBearsMissingBlocks: what is missing whatever the lever does hides a hold-back
// hardly ever, be it single blocks or hours.
func TestHoldingBearsMissingBlocks(t *testing.T) {
	const holdings, strata, most = 100, 300, 3
	for name, stays := range map[string]float64{"single blocks": 0.1, "hours": 0.95} {
		random, ever := rand.New(rand.NewPCG(11, 12)), 0
		for seed := range int64(holdings) {
			var h verify.Holding
			begins, away := 0.1*(1-stays)/0.9, false
			dark := held(t, seed, strata, &h, func(int, bool) bool {
				away = random.Float64() < begins || away && random.Float64() < stays
				return away
			})
			if dark > 0 {
				ever++
			}
		}
		t.Logf("%s: of %d hold-backs that miss a tenth of their blocks %d were dark once in %d strata", name, holdings, ever, strata)
		if ever > most {
			t.Errorf("%s: %d of %d hold-backs showed nothing once, want at most %d", name, ever, holdings, most)
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
	at := verify.Timing{Lever: model.LeverAffinity, Seed: 5, Start: time.Unix(0, 0), Block: trials.BlockLength, WashOut: time.Minute}
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
