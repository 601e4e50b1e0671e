package proofs

import (
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/power"
	"github.com/joulevirt/joulevirt/internal/verify/ledger"
	"github.com/joulevirt/joulevirt/internal/verify/proof"
)

// restart replaces the leading manager by one that knows what was stored.
func (f *fleet) restart() {
	f.Helper()
	booked, proven, known := f.lead().Save(testPolicy)
	next := NewStore()
	if err := next.Load(testPolicy, booked, proven); err != nil || !known {
		f.Fatal(known, err)
	}
	f.stores[0] = next
}

// wantBooked compares what is booked as saved with the truth.
func (f *fleet) wantBooked(within float64) ledger.Statement {
	f.Helper()
	all, causes := booked(f.T, f.lead(), false)
	saved := 0.0
	if len(all.Lines) > 0 {
		saved = all.Lines[0].Saved.Value
	}
	if truth := f.truth(); math.Abs(saved/truth-1) > within {
		f.Errorf("simulated: %.0f J are booked as saved, in truth %.0f; not booked: %v", saved, truth, causes)
	}
	return all
}

// TestFromUnitsToTheLedger: on simulated nodes a lever is tried, adopted, held back and
// booked, by two managers, one after the other.
func TestFromUnitsToTheLedger(t *testing.T) {
	f := newFleet(t, 1, 8, -0.08)
	f.run(time.Minute)
	if got := f.stances(); got[model.StanceAwaiting] != 8 {
		t.Fatalf("at first %v", got)
	}
	f.until("a trial", 20*time.Minute, f.all(model.StanceOnTrial))
	f.run(2 * time.Hour)
	f.restart()
	if _, known := f.lead().Of(testPolicy, "node-00"); known {
		t.Error("before its first round a new leader knows how levers stand")
	}
	f.until("a verdict", 8*time.Hour, f.all(model.StanceAdopted))
	f.run(3 * time.Hour)
	f.restart()
	f.run(3 * time.Hour)
	kinds := map[proof.Kind]int{}
	for _, n := range f.news {
		kinds[n.Kind]++
	}
	if want := map[proof.Kind]int{proof.TrialStarted: 1, proof.Adopted: 1}; !maps.Equal(kinds, want) {
		t.Errorf("news %+v", f.news)
	}
	all := f.wantBooked(0.15)
	// 8 agents use a hundredth of a core each, at 5 W.
	want := 8 * 0.01 * 5 * f.now.Sub(noon()).Seconds()
	if math.Abs(all.Own.Value/want-1) > 0.1 || all.Own.Low >= all.Own.Value {
		t.Errorf("simulated: the agents' own joules are booked as %+v, want about %.0f", all.Own, want)
	}
	if drawn := 8 * 200 * f.now.Sub(noon()).Seconds(); math.Abs(float64(all.Drawn)/drawn-1) > 0.3 || all.Bytes == 0 {
		t.Errorf("simulated: %v J and %v bytes are drawn", all.Drawn, all.Bytes)
	}
}

// TestAHarmfulLever is rejected everywhere, and what trying it cost is booked.
func TestAHarmfulLever(t *testing.T) {
	f := newFleet(t, 2, 8, 0.05)
	f.until("a trial", 30*time.Minute, f.all(model.StanceOnTrial))
	f.until("a verdict", 8*time.Hour, f.all(model.StanceRejected))
	f.run(time.Hour)
	if all := f.wantBooked(0.5); all.Net.Value >= 0 {
		t.Errorf("simulated: %+v J are booked as saved by a lever that costs", all.Net)
	}
	for _, n := range f.nodes {
		if n.acts || len(n.plan) > 0 {
			t.Errorf("%s still has the lever", n.name)
		}
	}
}

// TestTwoManagers: during a failover both hear and book, and each stores on top of what the
// other one stored: nothing is booked twice, and nothing is lost that one of them saw.
func TestTwoManagers(t *testing.T) {
	f := newFleet(t, 3, 6, -0.08)
	f.approved = true
	f.run(3 * time.Hour)
	first := f.lead()
	alone := NewStore() // a manager that always led
	stored, proven, _ := first.Save(testPolicy)
	first.Stored(testPolicy)
	second := NewStore()
	for _, s := range []*Store{second, alone} {
		if err := s.Load(testPolicy, stored, proven); err != nil {
			t.Fatal(err)
		}
	}
	f.stores = append(f.stores, second)
	f.run(2 * time.Hour)
	theirs, known, _ := second.Save(testPolicy)
	second.Stored(testPolicy)
	if err := first.Rebase(testPolicy, theirs, known); err != nil {
		t.Fatal(err)
	}
	f.stores = []*Store{first}
	f.run(3 * time.Hour)
	all, causes := booked(t, first, false)
	drawn := 0.0
	for _, n := range f.nodes {
		drawn += float64(n.totals.Joules)
	}
	if got := float64(all.Drawn); got > drawn || got < 0.95*drawn {
		t.Errorf("simulated: %.0f J are booked as drawn, in truth %.0f; not booked: %v", got, drawn, causes)
	}
	f.wantBooked(0.5)
	if err := first.Rebase(testPolicy, []byte("no ledger"), known); err == nil {
		t.Error("it takes nonsense for a ledger")
	}
	if err := first.Rebase(testPolicy, theirs, []byte("no proofs")); err == nil {
		t.Error("it takes nonsense for proofs")
	}
	if again, _ := booked(t, first, false); again.Drawn != all.Drawn {
		t.Errorf("%v J are drawn after nonsense, %v before", again.Drawn, all.Drawn)
	}
}

// TestManagersThatComeLate: one that takes over after some time, and does not know its
// nodes at once, ends no trial and forgets nothing.
func TestManagersThatComeLate(t *testing.T) {
	f := newFleet(t, 9, 4, -0.08)
	f.until("a trial", 30*time.Minute, f.all(model.StanceOnTrial))
	f.run(time.Hour)
	away := func(length time.Duration) {
		t.Helper()
		f.restart()
		f.now = f.now.Add(length)
		for _, n := range f.nodes {
			n.missing = true
		}
		f.run(3 * time.Minute)
		for _, n := range f.nodes {
			n.missing = false
		}
		f.run(2 * time.Minute)
	}
	started := len(f.news)
	if away(20 * time.Minute); f.stances()[model.StanceOnTrial] != 4 || len(f.news) != started {
		t.Errorf("away for minutes: stances %v, news %+v", f.stances(), f.news[started:])
	}
	f.until("a verdict", 12*time.Hour, f.all(model.StanceAdopted))
	started = len(f.news)
	if away(25 * time.Hour); f.stances()[model.StanceAdopted] != 4 || len(f.news) != started {
		t.Errorf("away for a day: stances %v, news %+v", f.stances(), f.news[started:])
	}
}

// TestClockJumps: an hour, a week or a month forth and back, of a node's clock or the
// manager's, books nothing that was not drawn, and does not end what is booked.
func TestClockJumps(t *testing.T) {
	for name, jump := range map[string]func(*fleet, time.Duration){
		"a node's clock": func(f *fleet, by time.Duration) { f.nodes[0].ahead += by },
		"the manager's": func(f *fleet, by time.Duration) {
			f.now = f.now.Add(by)
			for _, n := range f.nodes {
				n.ahead -= by
			}
		},
		"all clocks": func(f *fleet, by time.Duration) { f.now = f.now.Add(by) },
	} {
		for _, far := range []time.Duration{time.Hour, 7 * 24 * time.Hour, 30 * 24 * time.Hour, -30 * 24 * time.Hour} {
			t.Run(name+" by "+far.String(), func(t *testing.T) {
				t.Parallel()
				clockJumps(t, far, jump)
			})
		}
	}
}

func clockJumps(t *testing.T, far time.Duration, jump func(*fleet, time.Duration)) {
	f := newFleet(t, 4, 4, -0.08)
	f.approved = true
	f.run(2 * time.Hour)
	for _, by := range []time.Duration{far, -far} {
		jump(f, by)
		f.run(2 * time.Hour)
	}
	all, causes := booked(t, f.lead(), false)
	drawn, saved := 0.0, 0.0
	for _, n := range f.nodes {
		drawn += float64(n.totals.Joules)
		saved += n.saved
	}
	if got := float64(all.Drawn); got > drawn || got < 0.5*drawn {
		t.Errorf("simulated: %.0f J are booked as drawn, in truth %.0f; not booked: %v", got, drawn, causes)
	}
	if all.Gross.Value > 1.5*saved {
		t.Errorf("simulated: %.0f J are booked as saved, in truth %.0f", all.Gross.Value, saved)
	}
}

// TestNodesAndPoliciesThatGo are forgotten, and harm nobody.
func TestNodesAndPoliciesThatGo(t *testing.T) {
	f := newFleet(t, 5, 6, -0.08)
	f.until("a trial", 30*time.Minute, f.all(model.StanceOnTrial))
	f.run(time.Hour)
	f.nodes[5].missing = true
	names := map[string]bool{}
	for _, n := range f.nodes[:5] {
		names[n.name] = true
	}
	f.lead().Retain(names)
	f.run(10 * time.Minute)
	if _, known := f.lead().Of(testPolicy, "node-05"); known || len(f.lead().draws) != 5 {
		t.Errorf("a node that left is known: %t, %d are followed", known, len(f.lead().draws))
	}
	f.until("a verdict without it", 12*time.Hour, func() bool { return f.stances()[model.StanceAdopted] == 5 })
	f.nodes[5].missing = false
	f.until("the node that came back acts too", time.Hour, f.all(model.StanceAdopted))

	f.lead().Forget(testPolicy)
	f.lead().Hear("node-00", f.heard(f.nodes[0], f.now), f.now)
	if _, known := f.lead().Of(testPolicy, "node-00"); known {
		t.Error("a policy that is gone is known")
	}
	if news, changed := f.lead().Round(testPolicy, f.units(), proof.Settings{}, f.now); len(news)+len(changed) > 0 {
		t.Errorf("%v, %v of a policy that is gone", news, changed)
	}
	if _, _, known := f.lead().Save(testPolicy); known || f.lead().Rebase(testPolicy, nil, nil) != nil {
		t.Error("a policy that is gone is stored")
	}
}

// unmetered fleets have two nodes whose power is modelled.
func unmetered(t *testing.T, seed uint64) *fleet {
	t.Helper()
	f := newFleet(t, seed, 2, -0.08)
	f.metered = false
	for _, n := range f.nodes {
		n.source = model.SourceModel
	}
	return f
}

// TestWithoutAMeter levers act at once. Joules are modelled, and nothing is claimed of what
// nobody measured, unless models may tell.
func TestWithoutAMeter(t *testing.T) {
	f := unmetered(t, 6)
	f.run(3 * time.Hour)
	if got := f.stances(); got[model.StanceUnproven] != 2 || !f.nodes[0].acts || len(f.nodes[0].plan) > 0 {
		t.Errorf("stances %v", got)
	}
	all, causes := booked(t, f.lead(), true)
	if len(all.Lines) > 0 && all.Lines[0].Saved.Value != 0 || all.Drawn == 0 || causes[ledger.NoEvidence] < 30 {
		t.Errorf("booked %+v, not booked %v", all, causes)
	}
	if measured, _ := booked(t, f.lead(), false); measured.Drawn != 0 {
		t.Errorf("%v J are booked as measured", measured.Drawn)
	}
}

// TestForetoldIsBooked: what models say of levers that act is booked as modelled, with their
// errors, which nodes share. One that is told of only now and then is not.
func TestForetoldIsBooked(t *testing.T) {
	f := unmetered(t, 6)
	f.foretold = power.Estimate{Watts: 10, StdErr: 3}
	f.run(3 * time.Hour)
	all, causes := booked(t, f.lead(), true)
	if len(all.Lines) != 1 || all.Lines[0].Lever != model.LeverAffinity {
		t.Fatalf("booked %+v, not booked %v", all, causes)
	}
	// 10 W for as long as was booked, of each of two nodes; or as well nothing, or 20.
	saved, want := all.Lines[0].Saved, 10*all.Lines[0].Seconds
	if math.Abs(saved.Value/want-1) > 0.01 || all.Lines[0].Seconds < 1.7*3*3600 {
		t.Errorf("%+v are booked of %.0f s, want %.0f J", saved, all.Lines[0].Seconds, want)
	}
	if math.Abs((saved.High-saved.Low)/2/want-0.98) > 0.02 {
		t.Errorf("interval %+v of %.0f J, want 98 %% to each side", saved, want)
	}
	if measured, _ := booked(t, f.lead(), false); len(measured.Lines) > 0 || measured.Gross.Value != 0 {
		t.Errorf("booked as measured: %+v", measured)
	}
	rarely := unmetered(t, 6)
	for range 90 {
		rarely.foretold = power.Estimate{Watts: 10, StdErr: 3}
		rarely.run(time.Minute)
		rarely.foretold = power.Estimate{}
		rarely.run(time.Minute)
	}
	if all, _ := booked(t, rarely.lead(), true); len(all.Lines) > 0 && all.Lines[0].Saved.Value != 0 {
		t.Errorf("of what was foretold half of the time %+v are booked", all.Lines[0].Saved)
	}
}

// TestForetoldEffects that make no sense are none.
func TestForetoldEffects(t *testing.T) {
	m := ledger.Measured{Seconds: 600, Joules: 600 * 90}
	for name, tc := range map[string]struct {
		saves       power.Estimate
		log, stdErr float64
	}{
		"saves":              {power.Estimate{Watts: 10, StdErr: 3}, math.Log(0.9), 0.05},
		"hardly known":       {power.Estimate{Watts: 10, StdErr: 20}, math.Log(0.9), 0.2},
		"costs":              {power.Estimate{Watts: -10, StdErr: 3}, math.Log(9. / 8), 5. / 80},
		"not known":          {power.Estimate{}, 0, 0},
		"costs more than it": {power.Estimate{Watts: -100, StdErr: 3}, 0, 0},
	} {
		got := foretoldEffect(tc.saves, m)
		if math.Abs(got.Log-tc.log) > 1e-9 || math.Abs(got.Common-tc.stdErr) > 1e-9 || got.Own != 0 {
			t.Errorf("%s: %+v, want %.4f and %.4f", name, got, tc.log, tc.stdErr)
		}
		if got.IsKnown() != (tc.log != 0) {
			t.Errorf("%s: known %t", name, got.IsKnown())
		}
	}
}

// TestLoadRefuses tells which part is wrong, and begins nothing.
func TestLoadRefuses(t *testing.T) {
	f := newFleet(t, 7, 1, 0)
	f.run(15 * time.Minute)
	booked, proven, _ := f.lead().Save(testPolicy)
	cut := func(b []byte) []byte { return b[:len(b)-1] }
	for name, stored := range map[string][2][]byte{
		"a ledger that was cut": {cut(booked), proven}, "proofs that were cut": {booked, cut(proven)}, "both in turn": {proven, booked},
	} {
		s := NewStore()
		if err := s.Load("q", stored[0], stored[1]); err == nil {
			t.Errorf("%s: taken", name)
		}
		if _, _, known := s.Save("q"); known {
			t.Errorf("%s: begun", name)
		}
	}
}

// TestChanged tells of units once, when their levers stand otherwise.
func TestChanged(t *testing.T) {
	f := newFleet(t, 8, 2, 0)
	settings := proof.Settings{HoldBack: 0.05, Confidence: 0.95}
	if _, changed := f.lead().Round(testPolicy, f.units(), settings, f.now); !slices.Equal(changed, []string{"node-00", "node-01"}) {
		t.Errorf("at first %v", changed)
	}
	if _, changed := f.lead().Round(testPolicy, f.units(), settings, f.now.Add(time.Minute)); len(changed) > 0 {
		t.Errorf("then %v", changed)
	}
	f.approved = true
	if _, changed := f.lead().Round(testPolicy, f.units()[:1], settings, f.now.Add(2*time.Minute)); !slices.Equal(changed, []string{"node-00"}) {
		t.Errorf("approved: %v", changed)
	}
}
