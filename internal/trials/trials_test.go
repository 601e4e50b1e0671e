package trials

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/ledger"
	"github.com/joulevirt/joulevirt/internal/model"
)

const lever = v1alpha1.LeverAffinity

// fleet is some nodes of one CPU model, on which levers have effects.
type fleet struct {
	*Trials
	units  []Unit
	effect func(unit string, lever v1alpha1.Lever) float64
	work   float64
	silent bool
	now    time.Time
	random *rand.Rand
	events []string
}

func newFleet(effect float64, names ...string) *fleet {
	f := &fleet{
		Trials: New(), now: time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC), random: rand.New(rand.NewPCG(1, 2)),
		effect: func(string, v1alpha1.Lever) float64 { return effect },
	}
	for _, name := range names {
		f.units = append(f.units, Unit{Name: name, Nodes: []string{name}, CPUModel: "cpu", Metered: true, Candidates: []v1alpha1.Lever{lever}})
	}
	return f
}

// newFleetThatDiffers is four nodes: a lever multiplies joules by 1.05 on d, and by elsewhere on the
// others.
func newFleetThatDiffers(elsewhere float64) *fleet {
	f := newFleet(0, "a", "b", "c", "d")
	f.effect = func(unit string, _ v1alpha1.Lever) float64 {
		if unit == "d" {
			return math.Log(1.05)
		}
		return math.Log(elsewhere)
	}
	return f
}

const holdBack = 0.05

// slots let so many pass.
func (f *fleet) slots(count int) {
	for range count {
		f.round()
		schedule := model.NewSchedule(lever, "", 2)
		number := schedule.SlotAt(f.now)
		for i := range f.units {
			u := &f.units[i]
			slot := Slot{Number: number, Watts: 200 * math.Exp(0.01*f.random.NormFloat64()), Received: 1e6, Sent: 1e6 * math.Exp(0.02*f.random.NormFloat64())}
			slot.Levers = map[v1alpha1.Lever]int{}
			proofs, _ := f.Of(u.Name, holdBack, f.now)
			for _, p := range proofs {
				if !p.Use || p.Schedule == nil {
					continue
				}
				slot.Levers[p.Lever] = -p.Schedule.OneIn
				if p.Schedule.IsOn(number) {
					slot.Levers[p.Lever] = p.Schedule.OneIn
					slot.Watts *= math.Exp(f.effect(u.Name, p.Lever))
					slot.Sent *= math.Exp(f.work)
				}
			}
			if f.silent {
				slot.Received, slot.Sent = 0, 0
			}
			f.Record(u.Name, slot, f.now)
		}
		f.now = schedule.Next(f.now)
	}
	f.round()
}

func (f *fleet) round() {
	for _, e := range f.Round(f.units, f.now) {
		f.events = append(f.events, fmt.Sprintf("%s %s %s", e.Lever, e.Reason, e.Set))
	}
}

// is how the lever stands on a unit.
func (f *fleet) is(unit string) model.Proof {
	proofs, _ := f.Of(unit, holdBack, f.now)
	for _, p := range proofs {
		if p.Lever == lever {
			return p
		}
	}
	return model.Proof{}
}

func (f *fleet) want(t *testing.T, what, unit string, stance model.Stance, oneIn int) {
	t.Helper()
	p := f.is(unit)
	got := 0
	if p.Schedule != nil {
		got = p.Schedule.OneIn
	}
	if p.Stance != stance || got != oneIn {
		t.Errorf("%s: on %s the lever is %s, one slot in %d off, want %s and %d: %s; events %s", what, unit, p.Stance, got, stance, oneIn, p.Message, strings.Join(f.events, ", "))
	}
}

// TestLifeOfALever: it waits for a meter, is tried, adopted and held back; a node that comes later
// starts with it, and with a larger hold-back on its first day.
func TestLifeOfALever(t *testing.T) {
	f := newFleet(math.Log(0.9), "a", "b", "c")
	f.units[0].Candidates, f.units[1].Candidates, f.units[2].Candidates = nil, nil, nil
	f.slots(1)
	f.want(t, "nothing to do", "a", model.StanceAwaiting, 0)
	f.units[0].Candidates = []v1alpha1.Lever{lever}
	f.slots(1)
	f.want(t, "something to do on one", "b", model.StanceOnTrial, 2)
	f.slots(10)
	f.want(t, "after four pairs", "a", model.StanceAdopted, 20)
	f.units = append(f.units, Unit{Name: "d", Nodes: []string{"d"}, CPUModel: "cpu", Metered: true})
	f.slots(1)
	f.want(t, "a node that came", "d", model.StanceAdopted, 5)
	f.slots(24 * 60 / 7)
	f.want(t, "a day later", "d", model.StanceAdopted, 20)
	f.units[1].Metered = false
	f.slots(1)
	f.want(t, "without a meter", "b", model.StanceUnproven, 0)
	want := "Affinity TrialStarted cpu, Affinity LeverAdopted cpu"
	if got := strings.Join(f.events, ", "); got != want {
		t.Errorf("events %s, want %s", got, want)
	}
}

// TestANewLeaderGoesOn: what is stored decides, to the byte.
func TestANewLeaderGoesOn(t *testing.T) {
	f := newFleet(math.Log(0.998), "a", "b", "c")
	f.slots(13)
	stored, err := json.Marshal(f.Trials)
	if err != nil {
		t.Fatal(err)
	}
	before := f.is("a")
	next := New()
	if err := json.Unmarshal(stored, next); err != nil {
		t.Fatal(err)
	}
	next.Complete()
	f.Trials = next
	if diff := cmp.Diff(before, f.is("a")); diff != "" || before.Stance != model.StanceOnTrial {
		t.Errorf("%s (-before +after):\n%s", before.Stance, diff)
	}
	again, err := json.Marshal(next)
	if err != nil || string(again) != string(stored) {
		t.Errorf("stored %d bytes, then %d: %v", len(stored), len(again), err)
	}
}

// TestRejectedLeversCoolDown: a day, then two, then four.
func TestRejectedLeversCoolDown(t *testing.T) {
	f := newFleet(math.Log(1.05), "a", "b", "c")
	for _, days := range []int{1, 2, 4} {
		f.slots(12)
		f.want(t, "it costs energy", "a", model.StanceRejected, 0)
		if left := f.is("a").Until.Sub(f.now); left.Hours() > float64(24*days) || left.Hours() < float64(24*days-3) {
			t.Errorf("tried again in %v, want %d days", left, days)
		}
		f.now = f.is("a").Until
	}
	f.round()
	f.round()
	f.want(t, "after the cool-down", "a", model.StanceOnTrial, 2)
}

func TestLostWorkRejects(t *testing.T) {
	f := newFleet(math.Log(0.9), "a", "b", "c")
	f.work = math.Log(0.9)
	f.slots(12)
	f.want(t, "a tenth of the work is lost", "a", model.StanceRejected, 0)
	if message := f.is("a").Message; !strings.Contains(message, "VMs") {
		t.Errorf("message %s", message)
	}
}

// TestNodesWithoutTraffic are judged by their joules.
func TestNodesWithoutTraffic(t *testing.T) {
	f := newFleet(math.Log(0.9), "a", "b", "c")
	f.silent = true
	f.slots(12)
	f.want(t, "no traffic", "a", model.StanceAdopted, 20)
	f.slots(40)
}

// TestGuardsStopTrials: at once on the node that is hurt, and everywhere once half of them are.
func TestGuardsStopTrials(t *testing.T) {
	f := newFleet(0, "a", "b", "c")
	f.slots(3)
	stop := func(unit int, at time.Time) {
		f.units[unit].Stopped = map[v1alpha1.Lever]Stop{lever: {At: at, Evidence: "a thread waits"}}
		f.round()
	}
	stop(0, f.now.Add(-time.Hour))
	f.want(t, "hurt before the trial", "a", model.StanceOnTrial, 2)
	stop(0, f.now)
	f.want(t, "hurt", "a", model.StanceRejected, 0)
	f.want(t, "not hurt", "b", model.StanceOnTrial, 2)
	stop(1, f.now)
	f.want(t, "two of three are hurt", "c", model.StanceRejected, 0)
}

// TestANodeThatDiffersIsTriedAlone, from the second look on.
func TestANodeThatDiffersIsTriedAlone(t *testing.T) {
	f := newFleetThatDiffers(0.988)
	f.slots(45)
	if got := strings.Join(f.events, ", "); !strings.Contains(got, "TrialStarted only d") {
		t.Errorf("events %s", got)
	}
	f.want(t, "alone it costs", "d", model.StanceRejected, 0)
	f.want(t, "without it, the others save", "a", model.StanceAdopted, 20)
}

// TestANodeThatDiffersIsFoundByItsHoldBack: a lever that is adopted at the first look, before nodes
// are compared, ends on the one where it costs.
func TestANodeThatDiffersIsFoundByItsHoldBack(t *testing.T) {
	f := newFleetThatDiffers(0.8)
	f.slots(20)
	f.want(t, "most nodes save", "d", model.StanceAdopted, 20)
	f.slots(260)
	f.want(t, "its hold-back shows that it costs", "d", model.StanceRejected, 0)
	f.want(t, "the others go on", "a", model.StanceAdopted, 20)
}

// TestHoldBacksContradict: a lever that no longer saves is tried again, one that loses work rejected,
// and one that acts without a trial and costs energy rejected, too.
func TestHoldBacksContradict(t *testing.T) {
	f := newFleet(math.Log(0.9), "a", "b", "c")
	f.slots(12)
	f.effect = func(string, v1alpha1.Lever) float64 { return 0 }
	f.slots(400)
	if got := strings.Join(f.events, ", "); !strings.Contains(got, "LeverRetried") {
		t.Errorf("no longer saves: %s", got)
	}
	f = newFleet(math.Log(0.9), "a", "b", "c")
	f.slots(12)
	f.work = math.Log(0.95)
	f.slots(300)
	if got := strings.Join(f.events, ", "); !strings.Contains(got, "LeverAdopted cpu, Affinity RejectedByTrial") {
		t.Errorf("loses work since: %s", got)
	}
	f = newFleet(math.Log(1.1), "a", "b", "c")
	for i := range f.units {
		f.units[i].Approved = true
	}
	f.slots(1)
	f.want(t, "approved", "a", model.StanceUnproven, 20)
	f.slots(200)
	if got := strings.Join(f.events, ", "); !strings.Contains(got, "RejectedByTrial") {
		t.Errorf("approved, and costs: %s", got)
	}
}

// TestLooksHaveTheirCriticalValues for three levers on three nodes.
func TestLooksHaveTheirCriticalValues(t *testing.T) {
	for at, want := range []float64{3.51, 2.85, 2.59, 2.37} {
		if got := critical(looks()[at].p, 3*looks()[at].pairs-3-1); math.Abs(got-want) > 0.006 {
			t.Errorf("look %d: %.3f, want %.2f", at+1, got, want)
		}
	}
}

// TestIntervalsAfterAStop reach as far as the test on the side that stopped the trial.
func TestIntervalsAfterAStop(t *testing.T) {
	e := estimate{log: -0.05, stdErr: 0.01, freedom: 44}
	plain, strict := critical(plainTail, 44)*0.01, critical(looks()[2].p, 44)*0.01
	for _, tc := range []struct {
		decision Decision
		at       int
		down, up float64
	}{{Adopt, 0, plain, plain}, {Adopt, 2, plain, strict}, {Reject, 2, strict, plain}, {Undecided, 2, plain, strict}, {LosesWork, 2, plain, plain}, {"", 2, plain, plain}} {
		low, high := interval(&e, tc.decision, tc.at)
		if math.Abs(e.log-low-tc.down) > 1e-12 || math.Abs(high-e.log-tc.up) > 1e-12 {
			t.Errorf("%q at look %d: %g to %g", tc.decision, tc.at+1, low, high)
		}
	}
}

// TestRegressionFindsWhatIsThere: levers' effects and the slope by demand, which stays in its bounds.
func TestRegressionFindsWhatIsThere(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for _, slope := range []float64{-0.5, 0.3, 1.5} {
		var rows []row
		for range 200 {
			r := row{demand: random.NormFloat64(), signs: []float64{2*float64(random.IntN(2)) - 1, 2*float64(random.IntN(2)) - 1}}
			r.joules = -0.05*r.signs[0] + 0.02*r.signs[1] + slope*r.demand + 0.001*random.NormFloat64()
			rows = append(rows, r)
		}
		thetas, got, ok := regress(rows, 2, func(r *row) float64 { return r.joules }, func(r *row) float64 { return r.demand }, true)
		if !ok || math.Abs(got-min(max(slope, 0), 1)) > 0.01 {
			t.Fatalf("slope %g: %g, %v", slope, got, ok)
		}
		for l, want := range []float64{-0.05, 0.02} {
			if math.Abs(thetas[l].log-want) > 4*thetas[l].stdErr {
				t.Errorf("slope %g: lever %d is %+v, want %g", slope, l, thetas[l], want)
			}
		}
	}
	if _, _, ok := regress([]row{{signs: []float64{1, 1}}, {signs: []float64{1, 1}}}, 2, func(r *row) float64 { return r.joules }, nil, false); ok {
		t.Error("two pairs tell of two levers that were always on together")
	}
}

func TestSumsNeedEnoughStrata(t *testing.T) {
	var s ledger.Sum
	before := ledger.Comparison{Joules: 1, Log: -0.1}
	for i := range 8 {
		if _, ok := s.Effect(0.95); ok {
			t.Errorf("%d strata have an interval", i)
		}
		s.Add(before, &before)
	}
	if effect, ok := s.Effect(0.95); !ok || math.Abs(effect.Value+0.1) > 1e-12 {
		t.Errorf("%+v, %v", effect, ok)
	}
}
