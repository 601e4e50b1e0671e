package verify_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/units"
	"github.com/joulevirt/joulevirt/internal/verify"
	"github.com/joulevirt/joulevirt/test/trials"
)

// quiet is a world in which three nodes show a lever of 5 % at the second look.
func quiet() trials.World {
	return trials.World{Elasticity: 0.2, Work: trials.Noise{SD: 0.02}, Meter: 0.01}
}

func quietTrial(t *testing.T, truth trials.Truth) *verify.Trial {
	t.Helper()
	world := quiet()
	trial, err := world.Trial(plan(), 1, truth, truth, truth)
	if err != nil {
		t.Fatal(err)
	}
	return trial
}

// changed applies a change to those outcomes that a rule chooses.
func changed(trial *verify.Trial, which func(verify.Outcome) bool, change func(*verify.Outcome)) {
	for i := range trial.Outcomes {
		if which(trial.Outcomes[i]) {
			change(&trial.Outcomes[i])
		}
	}
}

func isOn(o verify.Outcome) bool { return o.On }

func TestJudge(t *testing.T) {
	saves := trials.Truth{Effect: -0.05}
	for _, c := range []struct {
		name     string
		truth    trials.Truth
		change   func(*verify.Trial)
		decision verify.Decision
		why      verify.Why
		message  string
	}{
		{"saves", saves, nil, verify.Adopted, verify.WhySaves, "it saves energy, and work is not less by more than 5 %: joules for the same work change by -"},
		{"costs", trials.Truth{Effect: 0.05}, nil, verify.Rejected, verify.WhyCosts, "it costs energy"},
		{"does nothing", trials.Truth{}, nil, verify.Rejected, verify.WhyTooLittle, "it saves less than the 0.5 % that it has to"},
		{"saves by doing less", trials.Truth{Effect: -0.05, Work: -0.2}, nil, verify.Rejected, verify.WhyWorkLess, "the work done is less by more than 5 %"},
		{"saves, and perhaps does less", trials.Truth{Effect: -0.05, Work: math.Log(0.95)}, nil, verify.Undecided, verify.WhyWorkUnclear, "the trial is over, about"},
		{"nothing is over", saves, func(t *verify.Trial) { t.Over = 0 }, verify.Undecided, verify.WhyTooFew, "the first look is after 8 pairs"},
		{"the first look is too early", saves, func(t *verify.Trial) { t.Over = 8 }, verify.Undecided, verify.WhyWorkUnclear, "more will decide"},
		{"a plan that is not one", saves, func(t *verify.Trial) { t.Every = 0 }, verify.Undecided, verify.WhyInvalidPlan, "looked at every 0"},
		{"guards end it", saves, func(t *verify.Trial) {
			t.Over = 0
			changed(t, func(o verify.Outcome) bool { return o.On && o.Block < 20 }, func(o *verify.Outcome) { o.Guarded = true })
		}, verify.Rejected, verify.WhyGuarded, "guards ended the lever in 30 of 192 blocks, which is more than chance makes of the 10 % that they may"},
		{"guards end it, and the figures are lost", saves, func(t *verify.Trial) {
			changed(t, func(o verify.Outcome) bool { return o.On && o.Block < 8 }, func(o *verify.Outcome) { o.Guarded, o.Excluded = true, "MeterFailed" })
		}, verify.Rejected, verify.WhyGuarded, "guards ended the lever in 12 of 24 blocks"},
		{"a guard trips once", saves, func(t *verify.Trial) {
			changed(t, func(o verify.Outcome) bool { return o.On && o.Block < 2 && o.Unit == "node-0" }, func(o *verify.Outcome) { o.Guarded = true })
		}, verify.Adopted, verify.WhySaves, ""},
		{"guards without the lever say nothing of it", saves, func(t *verify.Trial) {
			changed(t, func(o verify.Outcome) bool { return !o.On }, func(o *verify.Outcome) { o.Guarded = true })
		}, verify.Adopted, verify.WhySaves, ""},
		{"blocks with the lever get lost", saves, func(t *verify.Trial) {
			changed(t, func(o verify.Outcome) bool { return o.On && o.Block%7 < 2 }, func(o *verify.Outcome) { o.Excluded = "AgentSilent" })
		}, verify.Undecided, verify.WhyMissing, "missing more often"},
		{"blocks get lost", saves, func(t *verify.Trial) {
			changed(t, func(o verify.Outcome) bool { return o.Block%7 < 2 }, func(o *verify.Outcome) { o.Excluded = "AgentSilent" })
		}, verify.Adopted, verify.WhySaves, ""},
		{"the meter tells a third", saves, func(t *verify.Trial) {
			changed(t, isOn, func(o *verify.Outcome) { o.Joules /= 3 })
		}, verify.Undecided, verify.WhyImplausible, "look at the meter"},
		{"the lever ends all work", saves, func(t *verify.Trial) {
			changed(t, isOn, func(o *verify.Outcome) { o.Work = 0 })
		}, verify.Rejected, verify.WhyWorkLess, "it changes by -99"},
		{"nobody works", saves, func(t *verify.Trial) {
			changed(t, func(verify.Outcome) bool { return true }, func(o *verify.Outcome) { o.Work = 0 })
		}, verify.Adopted, verify.WhySaves, ""},
		{"figures that repeat", trials.Truth{}, func(t *verify.Trial) {
			changed(t, func(verify.Outcome) bool { return true }, func(o *verify.Outcome) { o.Joules, o.Work = 100, 100 })
		}, verify.Rejected, verify.WhyTooLittle, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			trial := quietTrial(t, c.truth)
			if c.change != nil {
				c.change(trial)
			}
			v := verify.Judge(trial)
			if v.Decision != c.decision || v.Why != c.why || !strings.Contains(v.Message, c.message) {
				t.Errorf("%s, %s: %s; want %s, %s, %q", v.Decision, v.Why, v.Message, c.decision, c.why, c.message)
			}
			if (v.CoolDown > 0) != (v.Decision == verify.Rejected) || v.Needed > 0 && v.Decision != verify.Undecided {
				t.Errorf("%s: cool-down %v, needed %v", v.Decision, v.CoolDown, v.Needed)
			}
		})
	}
}

// TestJudgeStands: a verdict is the same in whatever order outcomes are told, also twice,
// and what is told after the look that decided changes nothing.
func TestJudgeStands(t *testing.T) {
	trial := quietTrial(t, trials.Truth{Effect: -0.05})
	want := verify.Judge(trial)
	if want.Decision != verify.Adopted || want.Final {
		t.Fatalf("verdict %+v", want)
	}
	random := rand.New(rand.NewPCG(1, 0))
	trial.Outcomes = append(trial.Outcomes, trial.Outcomes...)
	random.Shuffle(len(trial.Outcomes), func(i, j int) {
		trial.Outcomes[i], trial.Outcomes[j] = trial.Outcomes[j], trial.Outcomes[i]
	})
	changed(trial, func(o verify.Outcome) bool { return o.Block >= 2*want.Pairs }, func(o *verify.Outcome) {
		o.Joules, o.Guarded = units.Joules(random.Float64()), true
	})
	if diff := cmp.Diff(want, verify.Judge(trial)); diff != "" {
		t.Errorf("another verdict (-want +got):\n%s", diff)
	}
}

// TestJudgeUnits: each unit's effect is told, and one that saves does not hide that
// another costs.
func TestJudgeUnits(t *testing.T) {
	world := quiet()
	trial, err := world.Trial(plan(), 1, trials.Truth{Effect: -0.1}, trials.Truth{Effect: 0.05})
	if err != nil {
		t.Fatal(err)
	}
	v := verify.Judge(trial)
	if len(v.Units) != 2 || v.Effect.Units != 2 || v.Effect.Pairs != 2*v.Pairs {
		t.Fatalf("verdict %+v", v)
	}
	for i, want := range []float64{-0.1, 0.05} {
		if low, high := v.Units[i].Interval(0.999); low > want || high < want {
			t.Errorf("%s: effect %v to %v, want %v within", v.Units[i].Unit, low, high, want)
		}
	}
}

// TestNeeded: of trials that are as long as undecided ones told that they need, most
// decide, and of those of a third of that few do.
func TestNeeded(t *testing.T) {
	world, truth := trials.Worlds()[0], trials.Truth{Effect: -0.01}
	judge := func(seed uint64, pairs, over int) verify.Verdict {
		p := plan()
		p.Pairs, p.Every = pairs, 8
		trial, err := world.Trial(p, seed, truth, truth, truth, truth)
		if err != nil {
			t.Fatal(err)
		}
		trial.Over = over
		return verify.Judge(trial)
	}
	const trialsOfEach = 101
	var needed []int
	for seed := range uint64(trialsOfEach) {
		v := judge(seed, 64, 16)
		if v.Decision != verify.Undecided || v.Needed <= 0 || v.Needed%(2*8*trials.BlockLength) != 0 {
			t.Fatalf("%s after %d pairs: needed %v", v.Decision, v.Pairs, v.Needed)
		}
		needed = append(needed, 16+int(v.Needed/(2*trials.BlockLength)))
	}
	slices.Sort(needed)
	pairs := needed[len(needed)/2]
	for _, c := range []struct {
		pairs       int
		least, most float64
	}{{pairs, 0.65, 1}, {max(8, pairs/3), 0, 0.5}} {
		decided := 0
		for seed := range uint64(trialsOfEach) {
			if judge(1000+seed, c.pairs, c.pairs).Decision != verify.Undecided {
				decided++
			}
		}
		share := float64(decided) / trialsOfEach
		t.Logf("simulated: %d pairs decide %.0f %% of trials", c.pairs, 100*share)
		if share < c.least || share > c.most {
			t.Errorf("%d pairs decide %.0f %% of trials", c.pairs, 100*share)
		}
	}
}

func TestCoolDown(t *testing.T) {
	const day = 24 * time.Hour
	for rejections, want := range map[int]time.Duration{-1: day, 0: day, 1: 2 * day, 4: 16 * day, 5: 30 * day, 1 << 40: 30 * day} {
		if got := verify.CoolDown(rejections); got != want {
			t.Errorf("after %d rejections: %v, want %v", rejections, got, want)
		}
	}
}

// TestDefaultPlan can be drawn and followed for any number of units, and is shorter for
// more.
func TestDefaultPlan(t *testing.T) {
	last := math.MaxInt
	for units := range 300 {
		p := verify.DefaultPlan(trials.BlockLength, units)
		if err := p.Check(); err != nil || p.Pairs > last || p.Pairs < 16 || p.Pairs%p.Every != 0 {
			t.Fatalf("%d units: %+v after %d pairs, error %v", units, p, last, err)
		}
		if _, err := verify.Draw(timing(1), p.Pairs); err != nil {
			t.Fatal(err)
		}
		last = p.Pairs
	}
}

// TestLongerPlan has twice the pairs and takes a day, within bounds, and can be followed.
func TestLongerPlan(t *testing.T) {
	for _, block := range []time.Duration{time.Minute, 7 * time.Minute, 15 * time.Minute, 8 * time.Hour, 48 * time.Hour} {
		for _, units := range []int{1, 2, 5, 12, 40} {
			p := verify.DefaultPlan(block, units)
			const most = model.MostBlocks / 2
			ofDay := min(most, int(math.Ceil(24*time.Hour.Minutes()/(2*block).Minutes())))
			for _, c := range []struct{ before, want int }{
				{-1, p.Pairs}, {0, p.Pairs}, {p.Pairs / 4, p.Pairs}, {p.Pairs, 2 * p.Pairs}, {2 * p.Pairs, 4 * p.Pairs},
				{4 * p.Pairs, 4 * p.Pairs}, {1 << 40, 4 * p.Pairs},
			} {
				longer, want := p.Longer(c.before), max(c.want, ofDay)
				if err := longer.Check(); err != nil || longer.Pairs < want || longer.Pairs >= want+p.Pairs/p.Every || longer.Pairs/longer.Every != p.Pairs/p.Every {
					t.Errorf("%v, %d units, after %d pairs: %+v, want %d pairs; error %v", block, units, c.before, longer, want, err)
				}
				if longer.IsOfDay() != (ofDay < most || time.Duration(2*most)*block >= 24*time.Hour) {
					t.Errorf("%v, %d units, after %d pairs: %d pairs of a day: %v", block, units, c.before, longer.Pairs, longer.IsOfDay())
				}
			}
		}
	}
}
