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
