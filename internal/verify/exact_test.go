package verify_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/joulevirt/joulevirt/internal/units"
	"github.com/joulevirt/joulevirt/internal/verify"
)

// wander is a random walk of the logarithm of the power without the lever, with a jump.
func wander(blocks int) []float64 {
	random := rand.New(rand.NewPCG(3, 0))
	powers, at := make([]float64, blocks), 5.0
	for i := range powers {
		if at += 0.02 * random.NormFloat64(); i == blocks/2 {
			at += 0.3
		}
		powers[i] = at
	}
	return powers
}

// outcomeOf a block of a constant work.
func outcomeOf(number int, on bool, power, effect float64) verify.Outcome {
	if on {
		power += effect
	}
	const seconds = 540
	return verify.Outcome{
		Unit: "node", Block: number, On: on,
		Seconds: seconds, Joules: units.Joules(seconds * math.Exp(power)), Work: 1e9,
	}
}

// TestCoinsAreExact goes through all coins of six pairs on a node whose power wanders as
// it likes: over them the estimate is right in the mean, and so is its squared error.
// That is all that is needed of the load, however it hangs together from block to block.
func TestCoinsAreExact(t *testing.T) {
	const pairs, effect = 6, -0.04
	powers := wander(2 * pairs)
	p := plan()
	p.Pairs, p.Every = pairs, pairs
	var mean, squares, told float64
	const all = 1 << pairs
	for coins := range all {
		trial := verify.Trial{Plan: p, Units: 1, Over: pairs}
		for pair := range pairs {
			first := coins>>pair&1 == 1
			trial.Outcomes = append(trial.Outcomes,
				outcomeOf(2*pair, first, powers[2*pair], effect),
				outcomeOf(2*pair+1, !first, powers[2*pair+1], effect))
		}
		got := verify.Judge(&trial).Effect
		mean += (got.Log - effect) / all
		squares += (got.Log - effect) * (got.Log - effect) / all
		told += got.StdErr * got.StdErr / all
	}
	if math.Abs(mean) > 1e-12 {
		t.Errorf("the estimate is off by %v in the mean", mean)
	}
	if math.Abs(told/squares-1) > 1e-9 {
		t.Errorf("squared errors are %v in the mean, and told as %v", squares, told)
	}
}

// TestHoldBackIsExact goes through all blocks of two strata that may be off.
func TestHoldBackIsExact(t *testing.T) {
	for _, stratum := range []int{2, 3, 7, 12, 20} {
		const effect = -0.04
		powers := wander(2 * stratum)
		mean := 0.0
		for first := range stratum {
			for second := range stratum {
				var outcomes []verify.Outcome
				for i, power := range powers {
					outcomes = append(outcomes, outcomeOf(i, i != first && i != stratum+second, power, effect))
				}
				held := verify.JudgeHoldBack(outcomes, stratum)
				if held.Effect.Pairs != 2 {
					t.Fatalf("stratum of %d: %d count", stratum, held.Effect.Pairs)
				}
				mean += (held.Effect.Log - effect) / float64(stratum*stratum)
			}
		}
		// Where cells differ by a block, so do their precisions, a little.
		most := 1e-12
		if stratum%4 != 0 && stratum > 4 {
			most = 1e-3
		}
		if math.Abs(mean) > most {
			t.Errorf("stratum of %d: the estimate is off by %v in the mean", stratum, mean)
		}
	}
}

// TestHoldBackGoesOn over schedules that follow one another, if their blocks are numbered on.
func TestHoldBackGoesOn(t *testing.T) {
	const stratum, blocks = 20, 60
	powers := wander(2 * blocks)
	for _, c := range []struct{ from, strata int }{{blocks, 6}, {0, 0}} {
		var outcomes []verify.Outcome
		for i, power := range powers {
			number := i
			if i >= blocks {
				number = i - blocks + c.from
			}
			outcomes = append(outcomes, outcomeOf(number, i%stratum != 5, power, -0.04))
		}
		if held := verify.JudgeHoldBack(outcomes, stratum); held.Effect.Pairs != c.strata {
			t.Errorf("second schedule from %d: %d strata count, want %d", c.from, held.Effect.Pairs, c.strata)
		}
	}
}

// TestHoldBackLeavesOut strata of which the off block, or what it is compared with, is
// missing, and counts others without it.
func TestHoldBackLeavesOut(t *testing.T) {
	powers := wander(60)
	var outcomes []verify.Outcome
	for i, power := range powers {
		outcomes = append(outcomes, outcomeOf(i, i%20 != 5, power, -0.04))
	}
	for _, c := range []struct {
		name   string
		change func([]verify.Outcome)
		strata int
	}{
		{"nothing", func([]verify.Outcome) {}, 3},
		{"the off block", func(o []verify.Outcome) { o[5].Excluded = "MeterFailed" }, 2},
		{"one beside it", func(o []verify.Outcome) { o[4].Excluded = "MeterFailed" }, 3},
		{"all beside it", func(o []verify.Outcome) { o[4].Joules, o[6].Seconds, o[7].Work = 0, -1, math.NaN() }, 2},
		{"a second off block", func(o []verify.Outcome) { o[15].On = false }, 2},
		{"all", func(o []verify.Outcome) {
			for i := range o {
				o[i].Seconds = 0
			}
		}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			changed := append([]verify.Outcome{}, outcomes...)
			c.change(changed)
			held := verify.JudgeHoldBack(changed, 20)
			if held.Units[0].Pairs != c.strata || held.Effect.IsKnown() != (c.strata > 1) {
				t.Errorf("%d strata count, effect %+v, want %d strata", held.Units[0].Pairs, held.Effect, c.strata)
			}
		})
	}
}
