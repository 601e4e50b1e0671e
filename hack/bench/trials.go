package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/joulevirt/joulevirt/internal/verify"
	"github.com/joulevirt/joulevirt/test/trials"
)

// measureTrialCoverage runs whole trials of one simulated node each, with levers that do
// nothing, save or cost, and asks how often the interval at the end covers the truth. The
// second figure is of the world in which a lever that saves nothing is adopted most often.
func measureTrialCoverage(ctx context.Context, env environment) ([]figure, error) {
	const each, percent = 2000, 100
	covered, of, adopted := 0, 0, 0.0
	for _, world := range trials.Worlds() {
		for _, effect := range []float64{0, math.Log(0.9), math.Log(0.985), math.Log(1.03)} {
			var tally trials.Tally
			for seed := range uint64(each) {
				trial, err := world.Trial(verify.DefaultPlan(trials.BlockLength, 1), seed, trials.Truth{Effect: effect})
				if err != nil {
					return nil, err
				}
				tally.Add(verify.Judge(trial), effect)
			}
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			fmt.Fprintf(env.progress, "simulated %s, effect %+.1f %%: %v\n", world.Name, percent*math.Expm1(effect), &tally)
			covered, of = covered+tally.Covered, of+tally.Trials
			if effect == 0 {
				adopted = max(adopted, percent*float64(tally.Adopted)/each)
			}
		}
	}
	return []figure{
		{"trial_coverage_pct", percent * float64(covered) / float64(of), "%"},
		{"trial_false_adoption_pct", adopted, "%"},
	}, nil
}

// measureTrialPairs finds after how many pairs of blocks on each node four of five trials
// have adopted a lever, with the work that has to be shown not to be inferior and without.
// The figure is of eight nodes and 2 %, in the world whose load keeps most from block to
// block.
func measureTrialPairs(ctx context.Context, env environment) ([]figure, error) {
	const wanted, nodes, percent, anyWork = 0.98, 8, 100, 0.5
	margin := verify.DefaultPlan(trials.BlockLength, 1).Margin
	var figures []figure
	for _, world := range trials.Worlds() {
		for _, ratio := range []float64{0.9, wanted, 0.985} {
			for _, of := range []int{1, nodes} {
				pairs, err := adoptedAfter(&world, ratio, of, margin)
				alone, second := adoptedAfter(&world, ratio, of, anyWork)
				if err := errors.Join(err, second, ctx.Err()); err != nil {
					return nil, err
				}
				fmt.Fprintf(env.progress, "simulated %s, %.1f %% saved, nodes %d: adopted after %v pairs on each, by joules alone %v\n",
					world.Name, percent*(1-ratio), of, pairs, alone)
				if world.Name == "AR 0.9" && ratio == wanted && of == nodes {
					figures = []figure{{"trial_pairs_for_2pct", pairs, "pairs"}}
				}
			}
		}
	}
	return figures, nil
}

// adoptedAfter is the number of pairs after which four of five trials on nodes have
// adopted a lever that leaves a ratio of the joules. Infinite: fewer do.
func adoptedAfter(world *trials.World, ratio float64, nodes int, margin float64) (float64, error) {
	const each, share = 300, 0.8
	plan := verify.DefaultPlan(trials.BlockLength, nodes)
	plan.Margin = margin
	truths := make([]trials.Truth, nodes)
	for i := range truths {
		truths[i].Effect = math.Log(ratio)
	}
	pairs := make([]float64, each)
	for seed := range pairs {
		trial, err := world.Trial(plan, uint64(seed), truths...)
		if err != nil {
			return 0, err
		}
		pairs[seed] = math.Inf(1)
		if v := verify.Judge(trial); v.Decision == verify.Adopted {
			pairs[seed] = float64(v.Pairs)
		}
	}
	slices.Sort(pairs)
	return pairs[int(share*each)], nil
}
