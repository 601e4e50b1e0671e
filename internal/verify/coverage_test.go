package verify_test

import (
	"math"
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/verify"
	"github.com/joulevirt/joulevirt/test/trials"
)

// effects of levers that trials are simulated with: none, a tenth and 1.5 % saved, and 3 %
// more.
func effects() []float64 { return []float64{0, math.Log(0.9), math.Log(0.985), math.Log(1.03)} }

// TestTrialsCover runs 2,000 trials of one node each in each world, with their stops, and
// asks whether the interval that is told at the end covers the truth, and how often a
// lever is adopted that saves nothing.
func TestTrialsCover(t *testing.T) {
	const each = 500
	for _, world := range trials.Worlds() {
		t.Run(world.Name, func(t *testing.T) {
			t.Parallel()
			covered := 0
			for _, effect := range effects() {
				var tally trials.Tally
				for seed := range uint64(each) {
					trial, err := world.Trial(plan(), seed, trials.Truth{Effect: effect})
					if err != nil {
						t.Fatal(err)
					}
					tally.Add(verify.Judge(trial), effect)
				}
				t.Logf("simulated, effect %+.4f: %v", effect, &tally)
				covered += tally.Covered
				// Three standard deviations of what chance does to 500 trials.
				if share := tally.CoveredShare(); share < 0.92 || share > 0.98 {
					t.Errorf("effect %+.4f: the interval covers it in %.1f %% of trials", effect, 100*share)
				}
				wrong := 0.025 + 3*math.Sqrt(0.025*0.975/each)
				if adopted := float64(tally.Adopted) / each; effect >= 0 && adopted > wrong {
					t.Errorf("effect %+.4f: adopted in %.1f %% of trials", effect, 100*adopted)
				}
			}
			if share := float64(covered) / float64(each*len(effects())); share < 0.93 || share > 0.97 {
				t.Errorf("the interval covers the effect in %.1f %% of trials", 100*share)
			}
		})
	}
}

// TestTrialsOfNodesCover is of eight nodes at once, of which each has an effect of its own
// and all one day: the interval is of their mean.
func TestTrialsOfNodesCover(t *testing.T) {
	const each, nodes = 120, 8
	for _, world := range trials.Worlds() {
		t.Run(world.Name, func(t *testing.T) {
			t.Parallel()
			var tally trials.Tally
			for seed := range uint64(each) {
				truths := make([]trials.Truth, nodes)
				for i := range truths {
					truths[i].Effect = -0.02 + 0.004*float64(i)
				}
				trial, err := world.Trial(verify.DefaultPlan(trials.BlockLength, nodes), seed, truths...)
				if err != nil {
					t.Fatal(err)
				}
				tally.Add(verify.Judge(trial), -0.006)
			}
			t.Logf("simulated: %v", &tally)
			if share := tally.CoveredShare(); share < 0.9 || share > 0.99 {
				t.Errorf("the interval covers the mean in %.1f %% of trials", 100*share)
			}
		})
	}
}

func plan() verify.Plan { return verify.DefaultPlan(trials.BlockLength, 1) }

func timing(seed int64) verify.Timing {
	return verify.Timing{
		Lever: v1alpha1.LeverAffinity, Seed: seed, Start: time.Unix(1e9, 0),
		Block: trials.BlockLength, WashOut: time.Minute,
	}
}
