package proof_test

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/verify"
	"github.com/joulevirt/joulevirt/internal/verify/ledger"
	"github.com/joulevirt/joulevirt/internal/verify/proof"
	"github.com/joulevirt/joulevirt/test/trials"
)

// fleet is made up: units whose levers have effects that are known, whose plans have what
// the engine says a step later, and whose blocks bring what trials.World says. All that it
// tells is simulated.
type fleet struct {
	t      testing.TB
	proofs *proof.Proofs
	world  trials.World
	units  []proof.Unit
	now    time.Time
	step   time.Duration
	sets   proof.Settings
	// truths are the effects of levers on units.
	truths map[string]map[v1alpha1.Lever]float64
	plans  map[string]map[v1alpha1.Lever]*followed
	ledger *ledger.Ledger
	// saved joules in blocks that were booked, as they truly were.
	saved  float64
	booked map[ledger.Cause]int
	news   []proof.News
	seed   uint64
	// acting counts steps in which levers were on, of all steps of a unit and lever.
	acting map[string]map[v1alpha1.Lever]int
	steps  int
	// deaf is true while the manager is away: blocks go by untold.
	deaf bool
	// jump is what the clock is off by.
	jump time.Duration
	// guarded tells whether guards end the lever in on blocks. Nil: in none.
	guarded func(unit string, lever v1alpha1.Lever) bool
	// excluded tells why a block does not count. Nil: all do.
	excluded func(unit string, on bool) ledger.Cause
	// restart the manager after each step.
	restart bool
	trace   []string
}

// followed is a schedule that a plan has.
type followed struct {
	schedule model.Schedule
	outcomes []verify.Outcome
	next     int
}

var noon = time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)

func newFleet(t testing.TB, world trials.World, seed uint64, classes map[string]int, truth func(class string, n int, lever v1alpha1.Lever) float64) *fleet {
	f := &fleet{
		t: t, proofs: proof.New(), world: world, now: noon, step: 5 * time.Minute, seed: seed,
		sets:   proof.Settings{HoldBack: 0.05, Confidence: 0.95},
		truths: map[string]map[v1alpha1.Lever]float64{}, plans: map[string]map[v1alpha1.Lever]*followed{},
		ledger: ledger.New(), booked: map[ledger.Cause]int{}, acting: map[string]map[v1alpha1.Lever]int{},
	}
	for _, class := range sortedKeys(classes) {
		for n := range classes[class] {
			name := fmt.Sprintf("%s-%d", class, n)
			f.units = append(f.units, proof.Unit{
				Name: name, Nodes: []string{name}, Class: verify.Class{CPUModel: class, Kernel: "6.12", Workload: "Mixed"},
				Meter: verify.Meter{Interval: time.Second}, Ready: true,
				Candidates: []proof.Candidate{{Lever: v1alpha1.LeverAffinity, Watts: 20}, {Lever: v1alpha1.LeverBuffering, Watts: 10}, {Lever: v1alpha1.LeverShaping, Watts: 5}},
			})
			f.truths[name] = map[v1alpha1.Lever]float64{}
			for _, c := range f.units[len(f.units)-1].Candidates {
				f.truths[name][c.Lever] = truth(class, n, c.Lever)
			}
			f.plans[name], f.acting[name] = map[v1alpha1.Lever]*followed{}, map[v1alpha1.Lever]int{}
		}
	}
	return f
}

func sortedKeys[V any](m map[string]V) []string {
	var keys []string
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// run the fleet for some time.
func (f *fleet) run(length time.Duration) {
	for end := f.now.Add(length); f.now.Before(end); f.now = f.now.Add(f.step) {
		f.round()
	}
}

// clock is what the manager and the nodes take for now.
func (f *fleet) clock() time.Time { return f.now.Add(f.jump) }

func (f *fleet) round() {
	now := f.clock()
	if f.deaf {
		f.pass(now)
		return
	}
	f.deliver(now)
	for i := range f.units {
		u := &f.units[i]
		u.Has = nil
		for _, lever := range []v1alpha1.Lever{v1alpha1.LeverAffinity, v1alpha1.LeverBuffering, v1alpha1.LeverShaping, v1alpha1.LeverTrafficShare} {
			if r := f.plans[u.Name][lever]; r != nil {
				u.Has = append(u.Has, r.schedule)
			}
		}
	}
	if f.restart {
		f.reload()
	}
	news := f.proofs.Round(f.units, f.sets, now)
	f.news = append(f.news, news...)
	for _, n := range news {
		f.trace = append(f.trace, fmt.Sprintf("%s %s", now.Format(time.RFC3339), n))
	}
	if f.restart {
		f.reload()
	}
	f.book(now)
	if f.restart {
		f.reload()
	}
	f.apply(now)
	f.steps++
}

func (f *fleet) reload() {
	f.proofs = load(f.t, save(f.t, f.proofs))
}

func save(t testing.TB, p json.Marshaler) []byte {
	t.Helper()
	stored, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	return stored
}

func load(t testing.TB, stored []byte) *proof.Proofs {
	t.Helper()
	p := proof.New()
	if err := json.Unmarshal(stored, p); err != nil {
		t.Fatal(err)
	}
	return p
}

// apply what the engine says to plans.
func (f *fleet) apply(now time.Time) {
	for i := range f.units {
		name := f.units[i].Name
		for _, p := range f.proofs.Of(name) {
			if p.Use && (p.Schedule == nil || p.Schedule.At(now).On) {
				f.acting[name][p.Lever]++
			}
			had := f.plans[name][p.Lever]
			switch {
			case p.Schedule == nil:
				delete(f.plans[name], p.Lever)
			case had == nil || !had.schedule.Equal(p.Schedule):
				if !p.Schedule.IsValid() || !p.Schedule.Start.After(now) {
					f.t.Fatalf("%s, %s at %v: schedule from %v", name, p.Lever, now, p.Schedule.Start)
				}
				f.seed++
				f.plans[name][p.Lever] = &followed{
					schedule: *p.Schedule,
					outcomes: f.world.Node(name, p.Schedule, trials.Truth{Effect: f.truths[name][p.Lever]}, f.seed),
				}
			}
		}
	}
}

// deliver blocks that have ended.
func (f *fleet) deliver(now time.Time) {
	for _, u := range f.units {
		for _, lever := range []v1alpha1.Lever{v1alpha1.LeverAffinity, v1alpha1.LeverBuffering, v1alpha1.LeverShaping, v1alpha1.LeverTrafficShare} {
			r := f.plans[u.Name][lever]
			if r == nil {
				continue
			}
			for r.next < len(r.outcomes) && !r.end(r.next).After(now) {
				o := r.outcomes[r.next]
				o.Guarded = o.On && f.guarded != nil && f.guarded(u.Name, lever)
				if f.excluded != nil {
					o.Excluded = string(f.excluded(u.Name, o.On))
				}
				f.proofs.Take(proof.Closed{
					Lever: lever, Seed: r.schedule.Seed, Start: r.schedule.Start,
					From: r.end(r.next - 1), To: r.end(r.next), Outcome: o,
				})
				r.next++
			}
		}
	}
}

// pass lets blocks go by that nobody watches.
func (f *fleet) pass(now time.Time) {
	for _, plan := range f.plans {
		for _, r := range plan {
			for r.next < len(r.outcomes) && !r.end(r.next).After(now) {
				r.next++
			}
		}
	}
}

func (r *followed) end(block int) time.Time {
	return r.schedule.Start.Add(time.Duration(block+1) * r.schedule.Block)
}

func (f *fleet) book(now time.Time) {
	for _, b := range f.proofs.Bookings() {
		cause := f.ledger.Book(b, now)
		f.booked[cause]++
		if cause == "" && b.On {
			f.saved += float64(b.Joules) * math.Expm1(-f.truths[b.Node][b.Lever])
		}
	}
}

// stances counts units by how a lever stands.
func (f *fleet) stances(lever v1alpha1.Lever) map[model.Stance]int {
	count := map[model.Stance]int{}
	for _, u := range f.units {
		for _, p := range f.proofs.Of(u.Name) {
			if p.Lever == lever {
				count[p.Stance]++
			}
		}
	}
	return count
}

func (f *fleet) statement() ledger.Range {
	return f.ledger.Statement(ledger.AllTime, false, 0.95).Saved
}
