package proofs

import (
	"errors"
	"maps"
	"math"
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/power"
	"github.com/joulevirt/joulevirt/internal/verify/ledger"
	"github.com/joulevirt/joulevirt/internal/verify/proof"
)

// restart replaces the leading manager by one that knows what was stored.
func (f *fleet) restart() {
	f.Helper()
	stored, known, err := f.lead().Save(testPolicy)
	next := NewStore()
	if err := errors.Join(err, next.Load(testPolicy, stored)); err != nil || !known {
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
	if drawn := 8 * 200 * f.now.Sub(noon()).Seconds(); math.Abs(float64(all.Drawn)/drawn-1) > 0.3 || all.Bytes == 0 {
		t.Errorf("simulated: %v J and %v bytes are drawn", all.Drawn, all.Bytes)
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
	if _, known, _ := f.lead().Save(testPolicy); known {
		t.Error("a policy that is gone is stored")
	}
}

// unmetered fleets have two nodes whose power is modelled.
func unmetered(t *testing.T, seed uint64) *fleet {
	t.Helper()
	f := newFleet(t, seed, 2, -0.08)
	f.metered = false
	for _, n := range f.nodes {
		n.source = v1alpha1.PowerModel
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
	if len(all.Lines) != 1 || all.Lines[0].Lever != v1alpha1.LeverAffinity {
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
	if measured, _ := booked(t, f.lead(), false); len(measured.Lines) > 0 || measured.Saved.Value != 0 {
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
