package proof_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/verify"
	"github.com/joulevirt/joulevirt/internal/verify/proof"
	"github.com/joulevirt/joulevirt/test/trials"
)

// randomFleet is of two classes, units of no class, and a group, with effects of all kinds.
func randomFleet(t testing.TB, seed uint64) (*fleet, *rand.Rand) {
	random := rand.New(rand.NewPCG(seed, 7))
	effects := []float64{-0.1, -0.03, 0, 0.05}
	f := newFleet(t, trials.Worlds()[int(seed)%4], seed, map[string]int{"a": 3 + random.IntN(8), "b": 1 + random.IntN(4), "c": 1},
		func(string, int, v1alpha1.Lever) float64 { return effects[random.IntN(len(effects))] })
	f.sets.HoldBack = []float64{0, 0.05, 0.3}[random.IntN(3)]
	for i := range f.units {
		if f.units[i].Class.CPUModel == "c" {
			f.units[i].Class = verify.Class{}
		}
		f.units[i].Meter.Interval = time.Duration(1+random.IntN(20)) * time.Second
	}
	f.units = append(f.units, proof.Unit{
		Name: "shop/web", Nodes: []string{"a-0", "a-1"}, Class: verify.Class{CPUModel: "a", Kernel: "6.12", Workload: "Group"},
		Meter: verify.Meter{Interval: time.Second}, Ready: true, Candidates: []proof.Candidate{{Lever: v1alpha1.LeverTrafficShare, Watts: 30}},
	})
	f.truths["shop/web"] = map[v1alpha1.Lever]float64{v1alpha1.LeverTrafficShare: -0.05}
	f.plans["shop/web"], f.acting["shop/web"] = map[v1alpha1.Lever]*followed{}, map[v1alpha1.Lever]int{}
	f.step = 10 * time.Minute
	return f, random
}

// disturb changes something of a fleet now and then.
func (f *fleet) disturb(random *rand.Rand) {
	u := &f.units[random.IntN(len(f.units))]
	switch random.IntN(300) {
	case 0:
		u.Ready = !u.Ready
	case 1:
		u.Class.Workload += "X"
	case 2:
		u.Approved = !u.Approved
	case 3:
		u.Meter = verify.Meter{}
	case 4:
		u.Meter = verify.Meter{Interval: time.Second}
	case 5:
		u.Candidates = u.Candidates[:len(u.Candidates)/2]
	case 6:
		f.deaf = !f.deaf
	case 7:
		f.jump = time.Duration(random.IntN(3)-1) * time.Hour
	case 8:
		f.sets.HoldBack = random.Float64() / 2
	}
	if random.IntN(20) == 0 {
		f.deaf = false
	}
}

// state of a unit's levers as it is checked.
type rejection struct {
	until time.Time
	unit  proof.Unit
}

func TestRandomFleets(t *testing.T) {
	seen := map[model.Stance]int{}
	for seed := range uint64(8) {
		f, random := randomFleet(t, seed)
		rejected := map[string]rejection{}
		for range 6 * 24 * 2 {
			f.disturb(random)
			f.run(f.step)
			if !f.deaf {
				f.check(rejected, seen)
			}
		}
	}
	for _, stance := range []model.Stance{
		model.StanceUnproven, model.StanceAwaiting, model.StanceOnTrial, model.StanceAdopted, model.StanceRejected, model.StanceUndecided,
	} {
		if seen[stance] == 0 {
			t.Errorf("no unit ever was %s", stance)
		}
	}
}

func (f *fleet) check(rejected map[string]rejection, seen map[model.Stance]int) {
	f.t.Helper()
	now := f.clock()
	owner := map[string]string{}
	for _, u := range f.units {
		tried := 0
		for _, p := range f.proofs.Of(u.Name) {
			seen[p.Stance]++
			key := fmt.Sprint(u.Name, p.Lever)
			if p.Schedule != nil && (!p.Schedule.IsValid() || p.Schedule.Lever != p.Lever || !p.Use) {
				f.t.Fatalf("%s: %+v", u.Name, p)
			}
			was, has := rejected[key]
			same := has && was.unit.Class == u.Class && was.unit.Approved == u.Approved && (was.unit.Meter == verify.Meter{}) == (u.Meter == verify.Meter{})
			if same && p.Use && now.Before(was.until) && f.jump == 0 {
				f.t.Fatalf("%s at %v: %+v though it is rejected until %v", u.Name, now, p, was.until)
			}
			delete(rejected, key)
			if p.Stance == model.StanceRejected {
				rejected[key] = rejection{until: p.Until, unit: u}
			} else if same && now.Before(was.until) {
				rejected[key] = was
			}
			if p.Stance != model.StanceOnTrial {
				continue
			}
			tried++
			for _, node := range u.Nodes {
				if other := owner[node]; other != "" && other != u.Name {
					f.t.Fatalf("%s is on trial by %s and %s", node, other, u.Name)
				}
				owner[node] = u.Name
			}
		}
		if tried > 1 {
			f.t.Fatalf("%s is in %d trials", u.Name, tried)
		}
	}
}

// TestRestartsChangeNothing runs fleets twice: once with a manager that is stored and
// loaded before and after each step.
func TestRestartsChangeNothing(t *testing.T) {
	for seed := range uint64(2) {
		stays, one := randomFleet(t, seed)
		goes, other := randomFleet(t, seed)
		goes.restart = true
		for range 6 * 36 {
			stays.disturb(one)
			goes.disturb(other)
			stays.run(stays.step)
			goes.run(goes.step)
			if !slices.Equal(stays.trace, goes.trace) {
				t.Fatalf("seed %d at %v: %v, %v", seed, stays.now, stays.trace, goes.trace)
			}
			if a, b := save(t, stays.proofs), save(t, goes.proofs); !slices.Equal(a, b) {
				t.Fatalf("seed %d at %v: %d bytes differ from %d", seed, stays.now, len(a), len(b))
			}
		}
		for _, u := range stays.units {
			if a, b := stays.proofs.Of(u.Name), goes.proofs.Of(u.Name); !reflect.DeepEqual(a, b) {
				t.Errorf("%s: %+v, %+v", u.Name, a, b)
			}
		}
		if stays.saved != goes.saved || !slices.Equal(save(t, stays.ledger), save(t, goes.ledger)) {
			t.Errorf("booked %v, %v", stays.statement(), goes.statement())
		}
	}
}
