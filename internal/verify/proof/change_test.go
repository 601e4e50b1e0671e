package proof_test

import (
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/verify"
	"github.com/joulevirt/joulevirt/internal/verify/evidence"
	"github.com/joulevirt/joulevirt/internal/verify/ledger"
	"github.com/joulevirt/joulevirt/internal/verify/proof"
	"github.com/joulevirt/joulevirt/test/trials"
)

// one lever, Affinity, on a class of units.
func oneLever(t testing.TB, seed uint64, units int, effect float64) *fleet {
	f := newFleet(t, trials.Worlds()[0], seed, map[string]int{"a": units}, same(effect, 0, 0))
	for i := range f.units {
		f.units[i].Candidates = f.units[i].Candidates[:1]
	}
	return f
}

// turn a lever's effect into another on all units, from the next block on.
func (f *fleet) turn(lever model.Lever, effect float64) {
	for name, plan := range f.plans {
		f.truths[name][lever] = effect
		if r := plan[lever]; r != nil {
			f.seed++
			r.outcomes = f.world.Node(name, &r.schedule, trials.Truth{Effect: effect}, f.seed)
		}
	}
}

func TestHoldBackFindsWhatBegunToCost(t *testing.T) {
	f := oneLever(t, 1, 16, -0.05)
	f.sets.HoldBack = 0.1
	f.run(12 * time.Hour)
	if got := f.stances(model.LeverAffinity); got[model.StanceAdopted] != 16 {
		t.Fatalf("stances %v", got)
	}
	f.turn(model.LeverAffinity, 0.1)
	f.run(72 * time.Hour)
	if got := f.stances(model.LeverAffinity); got[model.StanceAdopted] > 0 {
		t.Errorf("stances %v, want none to act", got)
	}
}

func TestHoldBackThatDiffersAsksForATrial(t *testing.T) {
	f := oneLever(t, 1, 16, -0.1)
	f.sets.HoldBack = 0.2
	f.run(4 * time.Hour)
	f.turn(model.LeverAffinity, 0)
	f.run(48 * time.Hour)
	if f.count(proof.Retrial, model.LeverAffinity) == 0 || f.count(proof.TrialStarted, model.LeverAffinity) < 2 {
		t.Errorf("news %v", f.trace)
	}
	f.run(48 * time.Hour)
	if got := f.stances(model.LeverAffinity); got[model.StanceAdopted] > 0 {
		t.Errorf("stances %v, want none to act", got)
	}
}

// A trial anew may start within a stratum of what was held back. What was on in it until then
// is booked by its off block, or not at all, and the next manager can read what is stored.
func TestTrialAnewWithinAStratum(t *testing.T) {
	f := oneLever(t, 1, 8, -0.1)
	f.sets.HoldBack, f.restart = 0.2, true
	f.run(4 * time.Hour)
	f.turn(model.LeverAffinity, 0)
	tried := f.count(proof.TrialStarted, model.LeverAffinity)
	for end := f.now.Add(48 * time.Hour); f.now.Before(end) && f.count(proof.TrialStarted, model.LeverAffinity) == tried; {
		f.run(f.step)
	}
	if f.count(proof.TrialStarted, model.LeverAffinity) == tried {
		t.Fatal("the lever was not tried anew")
	}
	if booked := f.statement(); booked.Value <= 0 || f.booked[ledger.Malformed] > 0 {
		t.Errorf("booked %+v, refused %v", booked, f.booked)
	}
}

// An adopted lever goes on being held back while another one is on trial: else nothing could be
// booked of it for as long as trials last. It is not held back while it is on trial itself.
func TestHoldBackGoesOnBesideAnotherTrial(t *testing.T) {
	f := newFleet(t, trials.Worlds()[0], 1, map[string]int{"a": 4}, same(-0.1, -0.1, 0))
	for i := range f.units {
		f.units[i].Candidates = f.units[i].Candidates[:2]
	}
	both := 0
	for range 6 * 24 {
		f.run(10 * time.Minute)
		for i := range f.units {
			held, tried := f.of(f.units[i].Name, model.LeverAffinity), f.of(f.units[i].Name, model.LeverBuffering)
			if tried.Stance != model.StanceOnTrial {
				continue
			}
			if held.Stance != model.StanceAdopted || held.Schedule == nil || !held.Schedule.Otherwise {
				t.Fatalf("while Buffering is on trial Affinity is not held back: %+v", held)
			}
			both++
		}
	}
	if both == 0 || f.stances(model.LeverBuffering)[model.StanceAdopted] != 4 {
		t.Errorf("both at once %d times; %v", both, f.trace)
	}
}

func TestWhatNobodyLooksAtIsTriedAgainAfterAMonth(t *testing.T) {
	f := oneLever(t, 1, 16, -0.1)
	f.sets.HoldBack, f.step = 0, 20*time.Minute
	f.run(31 * 24 * time.Hour)
	if f.count(proof.Retrial, model.LeverAffinity) != 1 || f.count(proof.Adopted, model.LeverAffinity) != 2 {
		t.Errorf("%d retrials, adopted %d times", f.count(proof.Retrial, model.LeverAffinity), f.count(proof.Adopted, model.LeverAffinity))
	}
}

// TestTrialWaitsForALostMeter: without it plans have no schedules, and those of the trial come
// back with it.
func TestTrialWaitsForALostMeter(t *testing.T) {
	f := oneLever(t, 1, 1, -0.1)
	f.run(time.Hour)
	first := *f.of("a-0", model.LeverAffinity).Schedule
	f.units[0].Ready, f.units[0].MeterLost = false, true
	for end := f.now.Add(time.Hour); f.now.Before(end); f.now = f.now.Add(f.step) {
		f.units[0].Has = nil
		f.news = append(f.news, f.proofs.Round(f.units, f.sets, f.now)...)
	}
	if f.count(proof.TrialEnded, model.LeverAffinity) != 0 {
		t.Fatalf("news %v", f.news)
	}
	f.units[0].Ready, f.units[0].MeterLost = true, false
	if s := f.of("a-0", model.LeverAffinity).Schedule; s == nil || s.Seed != first.Seed {
		t.Errorf("with the meter the trial's schedule is %v, was %v", s, first)
	}
	f.run(12 * time.Hour)
	if got := f.stances(model.LeverAffinity); got[model.StanceAdopted] != 1 || f.count(proof.TrialStarted, model.LeverAffinity) != 1 {
		t.Errorf("stances %v, news %v", got, f.news)
	}
}

func TestPauseEndsTheTrial(t *testing.T) {
	f := oneLever(t, 1, 8, -0.1)
	f.run(time.Hour)
	first := *f.of("a-0", model.LeverAffinity).Schedule
	// Plans lose their schedules, and nothing new may be done.
	for i := range f.units {
		f.units[i].Ready = false
	}
	for end := f.now.Add(time.Hour); f.now.Before(end); f.now = f.now.Add(f.step) {
		for i := range f.units {
			f.units[i].Has = nil
		}
		f.news = append(f.news, f.proofs.Round(f.units, f.sets, f.now)...)
	}
	if f.count(proof.TrialEnded, model.LeverAffinity) != 1 {
		t.Fatalf("news %v", f.news)
	}
	if p := f.of("a-0", model.LeverAffinity); p.Use || p.Stance != model.StanceAwaiting {
		t.Errorf("while paused: %+v", p)
	}
	for i := range f.units {
		f.units[i].Ready = true
	}
	f.run(time.Hour)
	if next := f.of("a-0", model.LeverAffinity).Schedule; next == nil || next.Seed == first.Seed {
		t.Errorf("drawn anew: %v", next)
	}
	// What was seen before the pause is not judged.
	if s := f.standing(model.LeverAffinity, ""); s.Pairs > 6 {
		t.Errorf("%d pairs already", s.Pairs)
	}
	f.run(12 * time.Hour)
	if got := f.stances(model.LeverAffinity); got[model.StanceAdopted] != 8 {
		t.Errorf("stances %v", got)
	}
}

func TestUnitThatLeavesEndsForItself(t *testing.T) {
	f := oneLever(t, 1, 8, -0.1)
	f.run(time.Hour)
	f.units[0].Class.Workload = "Interactive"
	gone := f.units[1].Name
	f.units = append(f.units[:1:1], f.units[2:]...)
	f.run(10 * time.Minute)
	if p := f.of("a-0", model.LeverAffinity); p.Stance == model.StanceOnTrial && p.Schedule.Start.Before(f.now) {
		t.Errorf("of another class: %+v", p)
	}
	if p := f.of("a-2", model.LeverAffinity); p.Stance != model.StanceOnTrial {
		t.Errorf("that stays: %+v", p)
	}
	if len(f.proofs.Of(gone)) == 0 {
		t.Error("a unit that is missing for minutes is forgotten")
	}
	f.run(26 * time.Hour)
	if len(f.proofs.Of(gone)) != 0 {
		t.Error("a unit that is gone for a day is remembered")
	}
	if p := f.of("a-2", model.LeverAffinity); p.Stance != model.StanceAdopted {
		t.Errorf("that stayed: %+v", p)
	}
}

func TestUnitThatIsNotReadyStaysInItsTrial(t *testing.T) {
	f := oneLever(t, 1, 8, -0.1)
	f.run(time.Hour)
	f.units[0].Ready, f.units[0].Candidates = false, nil
	f.run(time.Hour)
	if p := f.of("a-0", model.LeverAffinity); p.Stance != model.StanceOnTrial || p.Schedule == nil {
		t.Errorf("got %+v", p)
	}
}

func TestManagerThatIsAwayForAnHour(t *testing.T) {
	f := oneLever(t, 1, 16, -0.05)
	f.run(time.Hour)
	f.deaf = true
	f.run(time.Hour)
	f.deaf = false
	f.run(12 * time.Hour)
	if got := f.stances(model.LeverAffinity); got[model.StanceAdopted] != 16 {
		t.Errorf("stances %v: %v", got, f.trace)
	}
}

// TestClockThatIsSet: a clock that is off for some time, within a trial or when there is a
// verdict, delays what is decided by a trial and its cool-down, and no longer.
func TestClockThatIsSet(t *testing.T) {
	const day = 24 * time.Hour
	for _, jump := range []time.Duration{time.Hour, -time.Hour, 7 * day, -7 * day, 30 * day, -30 * day} {
		for _, before := range []time.Duration{0, 80 * time.Minute, 16 * time.Hour} {
			for _, off := range []time.Duration{20 * time.Minute, 3 * time.Hour} {
				f := oneLever(t, 1, 16, -0.05)
				f.run(before)
				f.jump = jump
				f.run(off)
				f.jump = 0
				if f.run(16 * time.Hour); jump.Abs() > day || off > time.Hour {
					f.run(2 * day)
				}
				if got := f.stances(model.LeverAffinity); got[model.StanceAdopted] != 16 {
					t.Errorf("set by %v for %v after %v: %v: %v", jump, off, before, got, f.trace)
				}
				for i := range f.units {
					p := f.of(f.units[i].Name, model.LeverAffinity)
					if s := p.Schedule; s == nil || s.Start.After(f.now.Add(time.Hour)) || !s.Start.Add(time.Duration(len(s.On))*s.Block).After(f.now) {
						t.Errorf("set by %v for %v after %v: %s is held back by %+v", jump, off, before, f.units[i].Name, s)
						break
					}
				}
			}
		}
	}
}

// TestRejectionWhileTheClockIsAhead withholds the lever for its cool-down from when the clock
// is right again.
func TestRejectionWhileTheClockIsAhead(t *testing.T) {
	const month = 30 * 24 * time.Hour
	f := oneLever(t, 3, 16, 0.05)
	f.jump = month
	f.run(16 * time.Hour)
	if got := f.stances(model.LeverAffinity); got[model.StanceRejected] != 16 {
		t.Fatalf("%v: %v", got, f.trace)
	}
	f.jump = 0
	f.run(10 * time.Minute)
	if s := f.standing(model.LeverAffinity, ""); s.Decided.After(f.now) || s.Until.After(f.now.Add(verify.CoolDown(0))) || !s.Until.After(f.now) {
		t.Errorf("at %v it stands %+v", f.now, s)
	}
}

// groups share nodes with nodes that are units themselves.
func TestUnitsThatShareNodesAreNotTriedAtOnce(t *testing.T) {
	f := oneLever(t, 1, 6, -0.1)
	f.units = append(f.units, proof.Unit{
		Name: "shop/web", Nodes: []string{"a-0", "a-1", "a-2"}, Class: verify.Class{CPUModel: "a", Kernel: "6.12", Workload: "Group"},
		Meter: verify.Meter{Interval: time.Second, Noise: 0.01}, Ready: true,
		Candidates: []proof.Candidate{{Lever: model.LeverTrafficShare, Watts: 3}},
	})
	f.truths["shop/web"] = map[model.Lever]float64{model.LeverTrafficShare: -0.1}
	f.plans["shop/web"], f.acting["shop/web"] = map[model.Lever]*followed{}, map[model.Lever]int{}
	both := 0
	for range 6 * 72 {
		f.run(10 * time.Minute)
		group := f.of("shop/web", model.LeverTrafficShare)
		for _, name := range []string{"a-0", "a-1", "a-2"} {
			p := f.of(name, model.LeverAffinity)
			if group.Stance != model.StanceOnTrial {
				continue
			}
			if p.Stance == model.StanceOnTrial {
				t.Fatalf("%s is on trial while its group is: %+v", name, p)
			}
			both++
		}
	}
	if group := f.of("shop/web", model.LeverTrafficShare); group.Stance != model.StanceAdopted || both == 0 {
		t.Errorf("group: %+v", group)
	}
}

func evidenceOf(t *testing.T, log float64) evidence.Evidence {
	t.Helper()
	e, err := evidence.Evidence{}.Put(evidence.Entry{
		Lever: model.LeverAffinity, Class: verify.Class{CPUModel: "a", Kernel: "6.12", Workload: "Mixed"},
		Mean:    verify.Effect{Log: log, StdErr: 0.002, Freedom: 11, Units: 12, Pairs: 240},
		Between: 0.003, From: noon, Until: noon, Version: "v1",
	})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestEvidenceAdoptsWithoutATrial(t *testing.T) {
	f := oneLever(t, 1, 8, -0.05)
	f.proofs.Import(evidenceOf(t, -0.05))
	f.run(5 * time.Minute)
	if p := f.of("a-0", model.LeverAffinity); p.Stance != model.StanceAdopted || !p.Use || p.Schedule == nil {
		t.Errorf("got %+v", p)
	}
	if f.run(72 * time.Hour); f.count(proof.TrialStarted, model.LeverAffinity) > 0 || f.count(proof.EvidenceDropped, model.LeverAffinity) > 0 {
		t.Errorf("news %v", f.trace)
	}
	if saved := f.statement(); f.saved < saved.Low || f.saved > saved.High || f.saved <= 0 {
		t.Errorf("saved %v, booked %+v", f.saved, saved)
	}
	// What was imported is not told as measured here.
	e := f.proofs.Evidence("v2").Entries()
	for _, entry := range e {
		if entry.Mean.Units > 8 {
			t.Errorf("evidence %+v", entry)
		}
	}
}

func TestEvidenceThatIsWrongIsDropped(t *testing.T) {
	f := oneLever(t, 1, 8, 0.02)
	f.sets.HoldBack = 0.2
	f.proofs.Import(evidenceOf(t, -0.1))
	f.run(72 * time.Hour)
	if f.count(proof.EvidenceDropped, model.LeverAffinity)+f.count(proof.RejectedOnUnit, model.LeverAffinity) == 0 {
		t.Errorf("news %v", f.trace)
	}
	if got := f.stances(model.LeverAffinity); got[model.StanceAdopted] > 0 {
		t.Errorf("stances %v: %v", got, f.trace)
	}
	f.proofs.Import(evidenceOf(t, -0.1))
	f.run(time.Hour)
	if got := f.stances(model.LeverAffinity); got[model.StanceAdopted] > 0 {
		t.Errorf("what was dropped is believed again: %v", got)
	}
}

func TestEvidenceIsMeasuredHere(t *testing.T) {
	f := oneLever(t, 1, 16, -0.05)
	f.run(12 * time.Hour)
	e := f.proofs.Evidence("v1").Entries()
	if len(e) != 1 || e[0].Lever != model.LeverAffinity || e[0].Mean.Units != 16 || e[0].Mean.Log > -0.04 || e[0].Version != "v1" {
		t.Errorf("evidence %+v", e)
	}
}
