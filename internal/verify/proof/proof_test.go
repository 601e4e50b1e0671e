package proof_test

import (
	"strings"
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/verify"
	"github.com/joulevirt/joulevirt/internal/verify/proof"
	"github.com/joulevirt/joulevirt/test/trials"
)

// same effect everywhere, for each lever.
func same(affinity, buffering, shaping float64) func(string, int, v1alpha1.Lever) float64 {
	return func(_ string, _ int, lever v1alpha1.Lever) float64 {
		return map[v1alpha1.Lever]float64{
			v1alpha1.LeverAffinity: affinity, v1alpha1.LeverBuffering: buffering, v1alpha1.LeverShaping: shaping,
		}[lever]
	}
}

// count of news of a kind and lever.
func (f *fleet) count(kind proof.Kind, lever v1alpha1.Lever) int {
	n := 0
	for _, news := range f.news {
		if news.Kind == kind && news.Lever == lever {
			n++
		}
	}
	return n
}

func (f *fleet) of(unit string, lever v1alpha1.Lever) model.Proof {
	f.t.Helper()
	for _, p := range f.proofs.Of(unit) {
		if p.Lever == lever {
			return p
		}
	}
	f.t.Fatalf("%s has no proof of %s", unit, lever)
	return model.Proof{}
}

func (f *fleet) standing(lever v1alpha1.Lever, unit string) proof.Standing {
	f.t.Helper()
	for _, s := range f.proofs.Standings() {
		if s.Lever == lever && s.Unit == unit {
			return s
		}
	}
	f.t.Fatalf("no standing of %s for %q", lever, unit)
	return proof.Standing{}
}

func TestLeversThatSaveAreAdoptedAndOthersRejected(t *testing.T) {
	f := newFleet(t, trials.Worlds()[1], 3, map[string]int{"a": 24}, same(-0.08, -0.015, 0.03))
	if len(f.proofs.Of("a-0")) != 0 {
		t.Error("a unit that no round had has proofs")
	}
	f.run(5 * time.Minute)
	if got := f.of("a-0", v1alpha1.LeverShaping); got.Use && got.Stance != model.StanceOnTrial {
		t.Errorf("before its trial: %+v", got)
	}
	f.run(24 * time.Hour)
	for lever, want := range map[v1alpha1.Lever]model.Stance{
		v1alpha1.LeverAffinity: model.StanceAdopted, v1alpha1.LeverBuffering: model.StanceAdopted, v1alpha1.LeverShaping: model.StanceRejected,
	} {
		if got := f.stances(lever); got[want] != 24 {
			t.Errorf("%s: %v, want all %s", lever, got, want)
		}
		if s := f.standing(lever, ""); s.Stance != want || !s.Known || s.Pairs == 0 || s.Planned < s.Pairs || s.Message == "" {
			t.Errorf("%s stands %+v", lever, s)
		}
	}
	if s := f.standing(v1alpha1.LeverBuffering, ""); s.Low > -0.015 || s.High < -0.015 {
		t.Errorf("Buffering: %v to %v does not cover -0.015", s.Low, s.High)
	}
	adopted, rejected := f.of("a-3", v1alpha1.LeverAffinity), f.of("a-3", v1alpha1.LeverShaping)
	if !adopted.Use || adopted.Schedule == nil || !adopted.Schedule.Otherwise {
		t.Errorf("adopted: %+v, want it to be held back", adopted)
	}
	if rejected.Use || rejected.Schedule != nil || !rejected.Until.After(noon.Add(24*time.Hour)) {
		t.Errorf("rejected: %+v, want until after a day", rejected)
	}
	saved := f.statement()
	if f.saved < saved.Low || f.saved > saved.High || f.saved <= 0 {
		t.Errorf("saved %v, booked %+v", f.saved, saved)
	}
	for cause, n := range f.booked {
		if cause != "" && n > 0 {
			t.Errorf("%d blocks were not booked: %s", n, cause)
		}
	}
}

// TestUnitsThatLoseAreSetApart is of a class in which the lever saves on four of five units
// and costs on the fifth, which nothing tells apart.
func TestUnitsThatLoseAreSetApart(t *testing.T) {
	for _, saving := range []float64{-0.08, -0.015} {
		f := newFleet(t, trials.Worlds()[1], 1, map[string]int{"a": 40}, func(_ string, n int, lever v1alpha1.Lever) float64 {
			if n%5 == 0 {
				return 0.03
			}
			return saving
		})
		for i := range f.units {
			f.units[i].Candidates = f.units[i].Candidates[:1]
		}
		f.run(36 * time.Hour)
		wrong := 0
		for n, u := range f.units {
			p := f.of(u.Name, v1alpha1.LeverAffinity)
			if p.Use && p.Stance == model.StanceAdopted != (n%5 != 0) {
				wrong++
			}
		}
		if wrong > 2 {
			t.Errorf("saving %v: wrong on %d of 40 units: %v", saving, wrong, f.stances(v1alpha1.LeverAffinity))
		}
		if f.count(proof.RejectedOnUnit, v1alpha1.LeverAffinity) == 0 {
			t.Errorf("saving %v: nothing was set apart", saving)
		}
	}
}

// TestGuardsEndATrialOnTheRest is of a class that is so mixed that units which were not tried
// are, and on these guards end the lever. What it saves there is then no reason for anything.
func TestGuardsEndATrialOnTheRest(t *testing.T) {
	f := newFleet(t, trials.Worlds()[1], 1, map[string]int{"a": 40}, func(_ string, n int, _ v1alpha1.Lever) float64 {
		if n%3 == 0 {
			return 0.05
		}
		return -0.12
	})
	for i := range f.units {
		f.units[i].Candidates = f.units[i].Candidates[:1]
	}
	kept := map[string]bool{}
	for range 24 * 12 {
		if f.run(f.step); f.count(proof.Adopted, v1alpha1.LeverAffinity) > 0 && len(kept) == 0 {
			for _, u := range f.units {
				kept[u.Name] = f.of(u.Name, v1alpha1.LeverAffinity).Stance == model.StanceAdopted
			}
			f.guarded = func(unit string, _ v1alpha1.Lever) bool { return !kept[unit] }
		}
	}
	rest := 0
	for _, u := range f.units {
		p := f.of(u.Name, v1alpha1.LeverAffinity)
		guarded := !p.Use && p.Stance == model.StanceRejected && strings.Contains(p.Message, "guards ended the lever in ") &&
			!strings.Contains(p.Message, "on this unit it")
		if kept[u.Name] {
			rest++
		}
		// Of those that were tried the others lose, and are told so.
		if strings.Contains(p.Message, "guards") != guarded || kept[u.Name] && guarded {
			t.Errorf("%s, adopted before: %v: %+v", u.Name, kept[u.Name], p)
		}
	}
	told := 0
	for _, n := range f.news {
		if n.Kind == proof.RejectedOnUnit && strings.Contains(n.Message, "that had not tried it: guards ended the lever in ") {
			told += len(n.Units)
		}
	}
	if told != 24 || rest == 0 {
		t.Errorf("guards are told of %d units, %d keep the lever: %v", told, rest, f.trace)
	}
}

// TestUndecidedIsTriedAgain at once where it seems to save and the trial did not see all hours
// of a day, by one that does, and after a day else.
func TestUndecidedIsTriedAgain(t *testing.T) {
	// Work of which nothing is seen but noise: what it loses cannot be shown.
	world := trials.World{Name: "noise", Elasticity: 0, Work: trials.Noise{SD: 3}, Other: trials.Noise{SD: 0.01}}
	f := newFleet(t, world, 1, map[string]int{"a": 2}, same(-0.02, -0.02, -0.02))
	for i := range f.units {
		f.units[i].Candidates = f.units[i].Candidates[:1]
	}
	f.run(13 * time.Hour)
	s := f.standing(v1alpha1.LeverAffinity, "")
	if f.count(proof.Undecided, v1alpha1.LeverAffinity) != 1 || f.count(proof.TrialStarted, v1alpha1.LeverAffinity) != 2 || s.Stance != model.StanceOnTrial {
		t.Fatalf("after the first trial: %+v", s)
	}
	if first := verify.DefaultPlan(time.Hour, 2).Pairs; s.Planned <= 2*first || !s.Until.After(f.now.Add(20*time.Hour)) {
		t.Errorf("after %d pairs the next trial is %+v, want one of a whole day", first, s)
	}
	f.run(26 * time.Hour)
	p := f.of("a-0", v1alpha1.LeverAffinity)
	if p.Stance != model.StanceUndecided || p.Use || p.Until.Sub(f.now) < 20*time.Hour {
		t.Fatalf("after the second trial: %+v", p)
	}
	if f.run(p.Until.Sub(f.now) - time.Minute); f.count(proof.TrialStarted, v1alpha1.LeverAffinity) != 2 {
		t.Error("it was tried again before a day")
	}
	if f.run(time.Hour); f.count(proof.TrialStarted, v1alpha1.LeverAffinity) != 3 {
		t.Error("it was not tried again after a day")
	}
}

func TestRejectedWaitsTwiceAsLong(t *testing.T) {
	f := newFleet(t, trials.Worlds()[0], 1, map[string]int{"a": 16}, same(0.05, 0, 0))
	for i := range f.units {
		f.units[i].Candidates = f.units[i].Candidates[:1]
	}
	f.step = 10 * time.Minute
	var waits []time.Duration
	last := time.Time{}
	for range 9 * 24 {
		f.run(time.Hour)
		if p := f.of("a-0", v1alpha1.LeverAffinity); p.Stance == model.StanceRejected && !p.Until.Equal(last) {
			last = p.Until
			waits = append(waits, p.Until.Sub(f.now).Round(12*time.Hour))
		}
	}
	if len(waits) < 3 || waits[0] != 24*time.Hour || waits[1] != 48*time.Hour || waits[2] != 96*time.Hour {
		t.Errorf("waits %v, want a day, two, four", waits)
	}
}

func TestApprovedActsAtOnceAndIsWithdrawnWhereItCosts(t *testing.T) {
	f := newFleet(t, trials.Worlds()[0], 1, map[string]int{"a": 6}, func(_ string, n int, _ v1alpha1.Lever) float64 {
		if n == 0 {
			return 0.08
		}
		return -0.08
	})
	f.sets.HoldBack = 0.2
	for i := range f.units {
		f.units[i].Approved, f.units[i].Candidates = true, f.units[i].Candidates[:1]
	}
	f.run(5 * time.Minute)
	if p := f.of("a-0", v1alpha1.LeverAffinity); !p.Use || p.Stance != model.StanceUnproven || p.Schedule == nil || !p.Schedule.Otherwise {
		t.Fatalf("at first: %+v", p)
	}
	f.run(14 * time.Hour)
	if got := f.stances(v1alpha1.LeverAffinity); got[model.StanceAdopted] != 5 || got[model.StanceRejected] != 1 {
		t.Errorf("stances %v", got)
	}
	if p := f.of("a-0", v1alpha1.LeverAffinity); p.Use || p.Stance != model.StanceRejected {
		t.Errorf("where it costs: %+v", p)
	}
	if f.count(proof.TrialStarted, v1alpha1.LeverAffinity) > 0 {
		t.Error("a trial was started")
	}
	// After its cool-down it acts there again, and is watched anew.
	f.run(f.of("a-0", v1alpha1.LeverAffinity).Until.Sub(f.now) + 10*time.Minute)
	if p := f.of("a-0", v1alpha1.LeverAffinity); !p.Use || p.Schedule == nil {
		t.Errorf("after the cool-down: %+v", p)
	}
	if saved := f.statement(); f.saved < saved.Low || f.saved > saved.High {
		t.Errorf("saved %v, booked %+v", f.saved, saved)
	}
}

func TestNoMeterIsUnproven(t *testing.T) {
	f := newFleet(t, trials.Worlds()[0], 1, map[string]int{"a": 8}, same(-0.1, 0, 0.1))
	for i := range f.units {
		c := f.units[i].Candidates
		f.units[i].Candidates = []proof.Candidate{c[0], c[2]}
	}
	f.units[7].Meter = verify.Meter{}
	f.run(5 * time.Minute)
	if p := f.of("a-7", v1alpha1.LeverShaping); !p.Use || p.Stance != model.StanceUnproven || p.Schedule != nil {
		t.Errorf("got %+v", p)
	}
	f.run(12 * time.Hour)
	// What costs on its class does not act where nobody sees it.
	if p := f.of("a-7", v1alpha1.LeverShaping); p.Use || p.Stance != model.StanceRejected {
		t.Errorf("got %+v", p)
	}
	if effect := f.proofs.Effect("a-7", v1alpha1.LeverAffinity); !effect.IsKnown() || effect.Log > -0.08 {
		t.Errorf("effect %+v, want that of the class", effect)
	}
}

func TestMeterThatIsTooSlowIsToldOf(t *testing.T) {
	f := newFleet(t, trials.Worlds()[0], 1, map[string]int{"a": 1}, same(-0.1, -0.1, -0.1))
	f.units[0].Meter = verify.Meter{Interval: 10 * time.Minute}
	f.run(time.Hour)
	if p := f.of("a-0", v1alpha1.LeverAffinity); p.Use || p.Stance != model.StanceAwaiting || !strings.Contains(p.Message, "have the meter tell") {
		t.Errorf("got %+v", p)
	}
}

// A lever that budgets let come to a few VMs an hour is tried once it has come to all, and one
// for which that takes too long is not tried, and says so.
func TestLeverThatComesInPartsIsTriedWhenItIsWhole(t *testing.T) {
	f := oneLever(t, 1, 2, -0.1)
	f.units[1].Candidates = []proof.Candidate{{Lever: v1alpha1.LeverAffinity, Watts: 20, Comes: 3 * time.Hour}}
	f.run(time.Hour)
	for _, name := range []string{"a-0", "a-1"} {
		p := f.of(name, v1alpha1.LeverAffinity)
		if p.Schedule == nil || p.Schedule.Start.Sub(f.now) < 2*time.Hour || p.Schedule.Start.Sub(f.now) > 4*time.Hour || p.Schedule.Otherwise {
			t.Errorf("%s: %+v, want a trial that begins in three hours", name, p)
		}
	}
	f.run(24 * time.Hour)
	if p := f.of("a-1", v1alpha1.LeverAffinity); p.Stance != model.StanceAdopted {
		t.Errorf("got %+v", p)
	}
	slow := oneLever(t, 1, 1, -0.1)
	slow.units[0].Candidates = []proof.Candidate{{Lever: v1alpha1.LeverAffinity, Watts: 20, Comes: 13 * time.Hour}}
	slow.run(time.Hour)
	if p := slow.of("a-0", v1alpha1.LeverAffinity); p.Use || !strings.Contains(p.Message, "raise spec.budgets") {
		t.Errorf("got %+v", p)
	}
}

func TestClassThatIsNotKnownIsTriedAlone(t *testing.T) {
	f := newFleet(t, trials.Worlds()[0], 1, map[string]int{"a": 3}, same(-0.1, -0.1, -0.1))
	for i := range f.units {
		f.units[i].Class, f.units[i].Candidates = verify.Class{Workload: "Mixed"}, f.units[i].Candidates[:1]
	}
	f.run(14 * time.Hour)
	if n := f.count(proof.AdoptedOnUnit, v1alpha1.LeverAffinity); n != 3 {
		t.Errorf("%d units adopted it, want each of 3 by itself", n)
	}
	for _, n := range f.news {
		if len(n.Units) != 1 {
			t.Errorf("news of several units: %+v", n)
		}
	}
}

func TestWithoutHoldBackJoulesAreMeasured(t *testing.T) {
	f := newFleet(t, trials.Worlds()[0], 1, map[string]int{"a": 16}, same(-0.1, 0, 0))
	f.sets.HoldBack = 0
	for i := range f.units {
		f.units[i].Candidates = f.units[i].Candidates[:1]
	}
	f.run(12 * time.Hour)
	s := f.of("a-0", v1alpha1.LeverAffinity).Schedule
	if s == nil || !s.Otherwise || len(s.On) != model.MostBlocks {
		t.Fatalf("schedule %v", s)
	}
	for _, on := range s.On {
		if !on {
			t.Fatal("a block is held back")
		}
	}
	if f.saved == 0 {
		t.Error("nothing was booked")
	}
	f.sets.HoldBack = 0.1
	f.run(10 * time.Minute)
	if next := f.of("a-0", v1alpha1.LeverAffinity).Schedule; next == nil || next.Equal(s) {
		t.Error("the new share draws no new schedule")
	}
}
