package curve

import (
	"math"
	"testing"
)

func TestDifferenceIsSurerThanTwoCosts(t *testing.T) {
	s := newSet(t, Options{Prior: flat})
	key, other, tr := Key{Class: ClassOf(1, true)}, Key{Class: ClassOf(2, true)}, typical()
	from, to := tr.rate(1e5), tr.rate(1.1e5)
	a, b := mustCost(t, s, key, from), mustCost(t, s, key, to)
	got, err := s.Difference([]Change{{Key: key, From: from, To: to}})
	if err != nil {
		t.Fatal(err)
	}
	if math.Abs(float64(got.Cores-(b.Cores-a.Cores))) > 1e-12 {
		t.Errorf("difference %v of costs %v and %v", got.Cores, a.Cores, b.Cores)
	}
	if !(got.CoresStdErr < a.CoresStdErr/5) {
		t.Errorf("standard error %v of a small step on a curve with %v", got.CoresStdErr, a.CoresStdErr)
	}
	both, err := s.Difference([]Change{{key, from, to}, {other, from, to}, {key, to, from}})
	if err != nil {
		t.Fatal(err)
	}
	// There and back on one curve is nothing, without an error.
	if math.Abs(float64(both.Cores-got.Cores)) > 1e-12 || math.Abs(float64(both.CoresStdErr-got.CoresStdErr)) > 1e-12 {
		t.Errorf("there and back beside another class's change: %+v, want %+v", both, got)
	}
}

// TestFormErrorStays: however much is learned, a curve that moves VMs elsewhere
// keeps the error of its form, and one that leaves them has none.
func TestFormErrorStays(t *testing.T) {
	const form = 0.05
	s := newSet(t, Options{Prior: func(key Key) Prior {
		p := flat(key)
		p.CoresStdDev, p.WakeUpsStdDev = Terms{}, Terms{}
		p.CoresForm, p.WakeUpsForm = form, 2*form
		return p
	}})
	key, tr := Key{Class: ClassOf(1, true)}, typical()
	traffic := func(packets float64) Cost {
		cost, idle := mustCost(t, s, key, tr.rate(packets)), mustCost(t, s, key, Rate{})
		return Cost{Cores: cost.Cores - idle.Cores, WakeUps: cost.WakeUps - idle.WakeUps}
	}
	low, high := traffic(1e4), traffic(1e5)
	far, err := s.Difference([]Change{{key, tr.rate(1e4), tr.rate(1e5)}})
	if err != nil {
		t.Fatal(err)
	}
	if want := form * math.Hypot(float64(low.Cores), float64(high.Cores)); math.Abs(float64(far.CoresStdErr)-want) > 1e-9 {
		t.Errorf("standard error %v cores, want %v", far.CoresStdErr, want)
	}
	if want := 2 * form * math.Hypot(float64(low.WakeUps), float64(high.WakeUps)); math.Abs(float64(far.WakeUpsStdErr)-want) > 1e-6 {
		t.Errorf("standard error %v wake-ups/s, want %v", far.WakeUpsStdErr, want)
	}
	near, err := s.Difference([]Change{{key, tr.rate(1e5), tr.rate(1.01e5)}, {key, tr.rate(1e4), tr.rate(1e4)}})
	if err != nil {
		t.Fatal(err)
	}
	if near.CoresStdErr <= 0 || near.CoresStdErr > far.CoresStdErr/5 {
		t.Errorf("standard error %v of a step of 1 %%, %v of one of 900 %%", near.CoresStdErr, far.CoresStdErr)
	}
}
