package proof_test

import (
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/verify"
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
func (f *fleet) turn(lever v1alpha1.Lever, effect float64) {
	for name, plan := range f.plans {
		f.truths[name][lever] = effect
		if r := plan[lever]; r != nil {
			f.seed++
			r.outcomes = f.world.Node(name, &r.schedule, trials.Truth{Effect: effect}, f.seed)
		}
	}
}

func TestHoldBackThatDiffersAsksForATrial(t *testing.T) {
	f := oneLever(t, 1, 16, -0.1)
	f.sets.HoldBack = 0.2
	f.run(4 * time.Hour)
	f.turn(v1alpha1.LeverAffinity, 0)
	f.run(48 * time.Hour)
	if f.count(proof.Retrial, v1alpha1.LeverAffinity) == 0 || f.count(proof.TrialStarted, v1alpha1.LeverAffinity) < 2 {
		t.Errorf("news %v", f.trace)
	}
	f.run(48 * time.Hour)
	if got := f.stances(v1alpha1.LeverAffinity); got[model.StanceAdopted] > 0 {
		t.Errorf("stances %v, want none to act", got)
	}
}

// A trial anew may start within a stratum of what was held back. What was on in it until then
// is booked by its off block, or not at all, and the next manager can read what is stored.
func TestTrialAnewWithinAStratum(t *testing.T) {
	f := oneLever(t, 1, 8, -0.1)
	f.sets.HoldBack, f.restart = 0.2, true
	f.run(4 * time.Hour)
	f.turn(v1alpha1.LeverAffinity, 0)
	tried := f.count(proof.TrialStarted, v1alpha1.LeverAffinity)
	for end := f.now.Add(48 * time.Hour); f.now.Before(end) && f.count(proof.TrialStarted, v1alpha1.LeverAffinity) == tried; {
		f.run(f.step)
	}
	if f.count(proof.TrialStarted, v1alpha1.LeverAffinity) == tried {
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
			held, tried := f.of(f.units[i].Name, v1alpha1.LeverAffinity), f.of(f.units[i].Name, v1alpha1.LeverBuffering)
			if tried.Stance != model.StanceOnTrial {
				continue
			}
			if held.Stance != model.StanceAdopted || held.Schedule == nil || !held.Schedule.Otherwise {
				t.Fatalf("while Buffering is on trial Affinity is not held back: %+v", held)
			}
			both++
		}
	}
	if both == 0 || f.stances(v1alpha1.LeverBuffering)[model.StanceAdopted] != 4 {
		t.Errorf("both at once %d times; %v", both, f.trace)
	}
}

func TestWhatNobodyLooksAtIsTriedAgainAfterAMonth(t *testing.T) {
	f := oneLever(t, 1, 16, -0.1)
	f.sets.HoldBack, f.step = 0, 20*time.Minute
	f.run(31 * 24 * time.Hour)
	if f.count(proof.Retrial, v1alpha1.LeverAffinity) != 1 || f.count(proof.Adopted, v1alpha1.LeverAffinity) != 2 {
		t.Errorf("%d retrials, adopted %d times", f.count(proof.Retrial, v1alpha1.LeverAffinity), f.count(proof.Adopted, v1alpha1.LeverAffinity))
	}
}

// TestTrialWaitsForALostMeter: without it plans have no schedules, and those of the trial come
// back with it.
func TestTrialWaitsForALostMeter(t *testing.T) {
	f := oneLever(t, 1, 1, -0.1)
	f.run(time.Hour)
	first := *f.of("a-0", v1alpha1.LeverAffinity).Schedule
	f.units[0].Ready, f.units[0].MeterLost = false, true
	for end := f.now.Add(time.Hour); f.now.Before(end); f.now = f.now.Add(f.step) {
		f.units[0].Has = nil
		f.news = append(f.news, f.proofs.Round(f.units, f.sets, f.now)...)
	}
	if f.count(proof.TrialEnded, v1alpha1.LeverAffinity) != 0 {
		t.Fatalf("news %v", f.news)
	}
	f.units[0].Ready, f.units[0].MeterLost = true, false
	if s := f.of("a-0", v1alpha1.LeverAffinity).Schedule; s == nil || s.Seed != first.Seed {
		t.Errorf("with the meter the trial's schedule is %v, was %v", s, first)
	}
	f.run(12 * time.Hour)
	if got := f.stances(v1alpha1.LeverAffinity); got[model.StanceAdopted] != 1 || f.count(proof.TrialStarted, v1alpha1.LeverAffinity) != 1 {
		t.Errorf("stances %v, news %v", got, f.news)
	}
}

func TestPauseEndsTheTrial(t *testing.T) {
	f := oneLever(t, 1, 8, -0.1)
	f.run(time.Hour)
	first := *f.of("a-0", v1alpha1.LeverAffinity).Schedule
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
	if f.count(proof.TrialEnded, v1alpha1.LeverAffinity) != 1 {
		t.Fatalf("news %v", f.news)
	}
	if p := f.of("a-0", v1alpha1.LeverAffinity); p.Use || p.Stance != model.StanceAwaiting {
		t.Errorf("while paused: %+v", p)
	}
	for i := range f.units {
		f.units[i].Ready = true
	}
	f.run(time.Hour)
	if next := f.of("a-0", v1alpha1.LeverAffinity).Schedule; next == nil || next.Seed == first.Seed {
		t.Errorf("drawn anew: %v", next)
	}
	// What was seen before the pause is not judged.
	if s := f.standing(v1alpha1.LeverAffinity, ""); s.Pairs > 6 {
		t.Errorf("%d pairs already", s.Pairs)
	}
	f.run(12 * time.Hour)
	if got := f.stances(v1alpha1.LeverAffinity); got[model.StanceAdopted] != 8 {
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
	if p := f.of("a-0", v1alpha1.LeverAffinity); p.Stance == model.StanceOnTrial && p.Schedule.Start.Before(f.now) {
		t.Errorf("of another class: %+v", p)
	}
	if p := f.of("a-2", v1alpha1.LeverAffinity); p.Stance != model.StanceOnTrial {
		t.Errorf("that stays: %+v", p)
	}
	if len(f.proofs.Of(gone)) == 0 {
		t.Error("a unit that is missing for minutes is forgotten")
	}
	f.run(26 * time.Hour)
	if len(f.proofs.Of(gone)) != 0 {
		t.Error("a unit that is gone for a day is remembered")
	}
	if p := f.of("a-2", v1alpha1.LeverAffinity); p.Stance != model.StanceAdopted {
		t.Errorf("that stayed: %+v", p)
	}
}

// TestRejectionWhileTheClockIsAhead withholds the lever for its cool-down from when the clock
// is right again.
func TestRejectionWhileTheClockIsAhead(t *testing.T) {
	const month = 30 * 24 * time.Hour
	f := oneLever(t, 3, 16, 0.05)
	f.jump = month
	f.run(16 * time.Hour)
	if got := f.stances(v1alpha1.LeverAffinity); got[model.StanceRejected] != 16 {
		t.Fatalf("%v: %v", got, f.trace)
	}
	f.jump = 0
	f.run(10 * time.Minute)
	if s := f.standing(v1alpha1.LeverAffinity, ""); s.Decided.After(f.now) || s.Until.After(f.now.Add(verify.CoolDown(0))) || !s.Until.After(f.now) {
		t.Errorf("at %v it stands %+v", f.now, s)
	}
}

// groups share nodes with nodes that are units themselves.
func TestUnitsThatShareNodesAreNotTriedAtOnce(t *testing.T) {
	f := oneLever(t, 1, 6, -0.1)
	f.units = append(f.units, proof.Unit{
		Name: "shop/web", Nodes: []string{"a-0", "a-1", "a-2"}, Class: verify.Class{CPUModel: "a", Kernel: "6.12", Workload: "Group"},
		Meter: verify.Meter{Interval: time.Second}, Ready: true,
		Candidates: []proof.Candidate{{Lever: v1alpha1.LeverTrafficShare, Watts: 3}},
	})
	f.truths["shop/web"] = map[v1alpha1.Lever]float64{v1alpha1.LeverTrafficShare: -0.1}
	f.plans["shop/web"], f.acting["shop/web"] = map[v1alpha1.Lever]*followed{}, map[v1alpha1.Lever]int{}
	both := 0
	for range 6 * 72 {
		f.run(10 * time.Minute)
		group := f.of("shop/web", v1alpha1.LeverTrafficShare)
		for _, name := range []string{"a-0", "a-1", "a-2"} {
			p := f.of(name, v1alpha1.LeverAffinity)
			if group.Stance != model.StanceOnTrial {
				continue
			}
			if p.Stance == model.StanceOnTrial {
				t.Fatalf("%s is on trial while its group is: %+v", name, p)
			}
			both++
		}
	}
	if group := f.of("shop/web", v1alpha1.LeverTrafficShare); group.Stance != model.StanceAdopted || both == 0 {
		t.Errorf("group: %+v", group)
	}
}
