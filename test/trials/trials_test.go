package trials_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/ledger"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/test/trials"
)

const lever = v1alpha1.LeverAffinity

// truths are of three levers that are tried at once: the one that is looked at, one that saves 4 %,
// and one that does nothing.
func truths(of trials.Truth) map[v1alpha1.Lever]trials.Truth {
	return map[v1alpha1.Lever]trials.Truth{lever: of, v1alpha1.LeverBuffering: {Effect: math.Log(0.96)}, v1alpha1.LeverShaping: {}}
}

// tally counts trials by what became of them.
type tally struct {
	trials, covered, adopted int
	hours                    []float64
}

func run(world *trials.World, of trials.Truth, nodes int, reading float64, each int) tally {
	var t tally
	for seed := range each {
		f := trials.Fleet{World: *world, Seed: uint64(seed), Nodes: nodes, Truths: truths(of), Reading: reading, HoldBack: 0.05}
		s, hours := f.Verdict(lever)
		t.trials++
		if s.Effect != nil && s.Effect.Low <= of.Effect && of.Effect <= s.Effect.High {
			t.covered++
		}
		if s.Stance == model.StanceAdopted {
			t.adopted++
		} else {
			hours = math.Inf(1)
		}
		t.hours = append(t.hours, hours)
	}
	return t
}

func (t *tally) percent(n int) float64 { return 100 * float64(n) / float64(t.trials) }

func (t *tally) median() float64 {
	slices.Sort(t.hours)
	return t.hours[len(t.hours)/2]
}

func (t *tally) String() string {
	return fmt.Sprintf("covered %.1f %%, adopted %.1f %%, median %.2f h", t.percent(t.covered), t.percent(t.adopted), t.median())
}

// effects of the lever that is looked at: none, a tenth, a twentieth and 2 % saved, and 3 % more.
func effects() []float64 {
	return []float64{0, math.Log(0.9), math.Log(0.95), math.Log(0.98), math.Log(1.03)}
}

// TestTrials: in each world the interval at the end covers the truth, a lever that saves nothing is
// hardly ever adopted, and one that makes VMs do less never.
func TestTrials(t *testing.T) {
	const each = 120
	for _, world := range trials.Worlds() {
		t.Run(world.Name, func(t *testing.T) {
			t.Parallel()
			covered := 0
			for _, effect := range effects() {
				got := run(&world, trials.Truth{Effect: effect}, 3, 0.01, each)
				t.Logf("simulated, effect %+.4f: %v", effect, &got)
				covered += got.covered
				wrong := 0.025 + 3*math.Sqrt(0.025*0.975/each)
				if adopted := float64(got.adopted) / each; effect >= 0 && adopted > wrong {
					t.Errorf("effect %+.4f: adopted in %.1f %% of trials", effect, 100*adopted)
				}
			}
			// Three standard deviations of what chance does to as many trials.
			if share := float64(covered) / float64(each*len(effects())); math.Abs(share-0.955) > 0.025 {
				t.Errorf("the interval covers the effect in %.1f %% of trials", 100*share)
			}
			if got := run(&world, trials.Truth{Work: math.Log(0.9)}, 3, 0.01, each); got.adopted > 3 {
				t.Errorf("a lever that loses a tenth of the work and saves nothing: %v", &got)
			}
		})
	}
}

// TestHours: a lever that saves a tenth is adopted within an hour and a half on three nodes.
func TestHours(t *testing.T) {
	for _, world := range trials.Worlds() {
		if got := run(&world, trials.Truth{Effect: math.Log(0.9)}, 3, 0.02, 31); got.median() > 1.5 {
			t.Errorf("simulated, %s: %v", world.Name, &got)
		}
	}
}

// TestLedger: the interval of what is booked covers what was truly saved.
func TestLedger(t *testing.T) {
	covered, all := 0, 0
	for _, world := range trials.Worlds() {
		got := cover(&world, 4, 25)
		covered, all = covered+got.covered, all+got.trials
	}
	if share := float64(covered) / float64(all); share < 0.89 {
		t.Errorf("simulated: the ledger covers the truth on %d of %d fleets", covered, all)
	}
}

// BenchmarkTrials measures figures of docs/benchmarks.md. Those of adoption are of the world in which
// the lever is adopted most often.
func BenchmarkTrials(b *testing.B) {
	const each = 2000
	for b.Loop() {
		covered, of, wrong, throttled := 0, 0, 0, 0
		for _, world := range trials.Worlds() {
			for _, effect := range effects() {
				got := run(&world, trials.Truth{Effect: effect}, 3, 0.01, each)
				b.Logf("simulated, %s, effect %+.4f: %v", world.Name, effect, &got)
				covered, of = covered+got.covered, of+got.trials
				if effect == 0 {
					wrong = max(wrong, got.adopted)
				}
			}
			got := run(&world, trials.Truth{Work: math.Log(0.9)}, 3, 0.01, each)
			b.Logf("simulated, %s, loses a tenth of the work: %v", world.Name, &got)
			throttled = max(throttled, got.adopted)
		}
		b.Logf("figure trial_coverage_pct %.4g %%", 100*float64(covered)/float64(of))
		b.Logf("figure trial_false_adoption_pct %.4g %%", 100*float64(wrong)/each)
		b.Logf("figure trial_throttle_adopted_pct %.4g %%", 100*float64(throttled)/each)
	}
}

// BenchmarkHours measures after how many hours of trial a lever is adopted on three nodes: the median
// of 200 trials in the slowest world, and with the noisiest meter.
func BenchmarkHours(b *testing.B) {
	for b.Loop() {
		for _, saves := range []float64{10, 5, 2} {
			slowest := 0.
			for _, world := range trials.Worlds() {
				for _, reading := range []float64{0, 0.01, 0.02} {
					got := run(&world, trials.Truth{Effect: math.Log1p(-saves / 100)}, 3, reading, 200)
					slowest = max(slowest, got.median())
				}
			}
			b.Logf("figure trial_hours_%.0fpct_3nodes %.3g h", saves, slowest)
		}
	}
}

// BenchmarkLedger measures on how many of 2,000 fleets of three nodes, after ten days, the interval of
// the ledger covers what was truly saved.
func BenchmarkLedger(b *testing.B) {
	for b.Loop() {
		covered, all := 0, 0
		for _, world := range trials.Worlds() {
			got := cover(&world, 10, 500)
			b.Logf("simulated, %s: covered %.1f %%", world.Name, got.percent(got.covered))
			covered, all = covered+got.covered, all+got.trials
		}
		b.Logf("figure ledger_coverage_pct %.4g %%", 100*float64(covered)/float64(all))
	}
}

// cover counts on how many fleets the ledger's interval covers what was truly saved. The lever saves
// 3 to 7 % over the day.
func cover(world *trials.World, days, each int) tally {
	var t tally
	for seed := range each {
		f := trials.Fleet{
			World: *world, Seed: uint64(seed), Nodes: 3, Truths: map[v1alpha1.Lever]trials.Truth{lever: {}}, HoldBack: 0.05, Approved: true,
			Of: func(_ v1alpha1.Lever, _ trials.Truth, slot int64) trials.Truth {
				return trials.Truth{Effect: math.Log1p(-0.05 - 0.02*math.Sin(2*math.Pi*float64(slot)*model.NodeSlot.Hours()/24))}
			},
		}
		f.Start()
		for range int(float64(days) * 24 / model.NodeSlot.Hours()) {
			f.Next()
		}
		saved := f.Booked.Statement(ledger.AllTime, false).Saved
		if t.trials++; saved.Low <= f.Saved && f.Saved <= saved.High {
			t.covered++
		}
	}
	return t
}
