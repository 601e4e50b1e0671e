package verify_test

import (
	"math"
	"slices"
	"testing"

	"github.com/joulevirt/joulevirt/internal/verify"
	"github.com/joulevirt/joulevirt/test/trials"
)

// BenchmarkTrialCoverage measures figures of docs/benchmarks.md, with more trials than
// TestTrialsCover. That of false adoption is of the world in which a lever that saves nothing is
// adopted most often.
func BenchmarkTrialCoverage(b *testing.B) {
	const each = 2000
	for b.Loop() {
		covered, of, adopted := 0, 0, 0
		for _, world := range trials.Worlds() {
			for _, effect := range effects() {
				var tally trials.Tally
				for seed := range uint64(each) {
					trial, err := world.Trial(plan(), seed, trials.Truth{Effect: effect})
					if err != nil {
						b.Fatal(err)
					}
					tally.Add(verify.Judge(trial), effect)
				}
				covered, of = covered+tally.Covered, of+tally.Trials
				if effect == 0 {
					adopted = max(adopted, tally.Adopted)
				}
			}
		}
		b.Logf("figure trial_coverage_pct %.4g %%", 100*float64(covered)/float64(of))
		b.Logf("figure trial_false_adoption_pct %.4g %%", 100*float64(adopted)/each)
	}
}

// BenchmarkTrialPairs measures after how many pairs of blocks on each of eight nodes four of five
// trials have adopted a lever that saves 2 %, in the world whose load keeps most from block to block.
func BenchmarkTrialPairs(b *testing.B) {
	const each, nodes, share = 300, 8, 0.8
	world := trials.Worlds()[1]
	truths := slices.Repeat([]trials.Truth{{Effect: math.Log(0.98)}}, nodes)
	for b.Loop() {
		pairs := make([]float64, each)
		for seed := range pairs {
			trial, err := world.Trial(verify.DefaultPlan(trials.BlockLength, nodes), uint64(seed), truths...)
			if err != nil {
				b.Fatal(err)
			}
			pairs[seed] = math.Inf(1)
			if v := verify.Judge(trial); v.Decision == verify.Adopted {
				pairs[seed] = float64(v.Pairs)
			}
		}
		slices.Sort(pairs)
		b.Logf("figure trial_pairs_for_2pct %.4g pairs", pairs[int(share*each)])
	}
}
