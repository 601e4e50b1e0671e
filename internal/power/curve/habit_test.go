package curve

import (
	"math"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/joulevirt/joulevirt/internal/units"
)

// guests are VMs that compute, each as much as it does, beside their traffic.
type guests struct {
	truth
	own, usual []float64
}

func newGuests(r *rand.Rand, vms int, meanOwn float64) guests {
	g := guests{truth: typical()}
	for range vms {
		g.own = append(g.own, meanOwn*r.ExpFloat64())
		g.usual = append(g.usual, math.Exp(6+6*r.Float64()))
	}
	return g
}

// round is what the guests do in one round. Their own work drifts.
func (g guests) round(r *rand.Rand, key Key, meanOwn float64) []Observation {
	var all []Observation
	for i := range g.own {
		g.own[i] = max(0, g.own[i]+0.05*meanOwn*r.NormFloat64())
		o := g.observe(key, min(2.5e5, g.usual[i]*math.Exp(0.5*r.NormFloat64())), 0.05*r.NormFloat64())
		o.VM = strconv.Itoa(i)
		o.HostCores += units.Cores(g.own[i])
		all = append(all, o)
	}
	return all
}

// TestGuestsOwnWorkIsNotTrafficsCost: what ten VMs compute beside their traffic
// is six times the difference that is asked for. The error after an hour is a
// fraction of it, and the standard error tells it.
func TestGuestsOwnWorkIsNotTrafficsCost(t *testing.T) {
	const (
		meanOwn = 0.5 // cores
		vms     = 10
		rounds  = 240
		hosts   = 20
	)
	key, tr := Key{Class: ClassOf(2, true)}, typical()
	skew := []Change{{key, tr.rate(1e4), tr.rate(1e3)}, {key, tr.rate(1e4), tr.rate(1e3)}, {key, tr.rate(1e4), tr.rate(2.8e4)}}
	want := 2*tr.coresAt(1e3) + tr.coresAt(2.8e4) - 3*tr.coresAt(1e4)
	miss, squares := 0.0, 0.0
	for seed := range uint64(hosts) {
		r := rand.New(rand.NewPCG(seed, 9))
		s, g := newSet(t, Options{Prior: flat}), newGuests(r, vms, meanOwn)
		for range rounds {
			for _, o := range g.round(r, key, meanOwn) {
				mustObserve(t, s, o)
			}
			s.EndRound()
		}
		got, err := s.Difference(skew)
		if err != nil {
			t.Fatal(err)
		}
		miss += math.Abs(float64(got.Cores)-want) / hosts
		squares += square((float64(got.Cores)-want)/float64(got.CoresStdErr)) / hosts
	}
	t.Logf("difference of %.3f cores: mean error %.3f, %.1f standard errors", want, miss, math.Sqrt(squares))
	if miss > 0.4*math.Abs(want) {
		t.Errorf("mean error %.3f cores of a difference of %.3f", miss, want)
	}
	if root := math.Sqrt(squares); root > 1.5 {
		t.Errorf("errors are %.1f standard errors", root)
	}
}

// TestOwnWorkIsTheIdleTerm: the mean of what VMs compute is what one without
// traffic is said to cost.
func TestOwnWorkIsTheIdleTerm(t *testing.T) {
	key := Key{Class: ClassOf(2, true)}
	r := rand.New(rand.NewPCG(1, 9))
	s, g := newSet(t, Options{Prior: flat}), newGuests(r, 20, 0.3)
	for range 240 {
		for _, o := range g.round(r, key, 0) {
			mustObserve(t, s, o)
		}
		s.EndRound()
	}
	want := g.cores[TermIdle]
	for _, own := range g.own {
		want += own / float64(len(g.own))
	}
	if got := mustCost(t, s, key, Rate{}); math.Abs(float64(got.Cores)-want) > 0.05*want {
		t.Errorf("an idle VM costs %v cores, want the mean of what VMs compute, %v", got.Cores, want)
	}
}

func TestDeviation(t *testing.T) {
	at := func(cores float64) *reading {
		r := &reading{cores: cores, wakeUps: 10 * cores}
		r.where.terms[TermBits] = cores / 2
		return r
	}
	var h habit
	if _, _, known := h.deviation(at(4), &signs{}, 10); known {
		t.Error("the first reading deviates from something")
	}
	got, _, known := h.deviation(at(6), &signs{}, 10)
	if !known || got.cores != 2 || got.wakeUps != 20 || got.where.terms[TermBits] != 1 {
		t.Errorf("%+v, %v", got, known)
	}
	if got, _, _ := h.deviation(at(5), &signs{}, 20); got.cores != 0 {
		t.Errorf("the mean of 4 and 6 is off 5 by %v", got.cores)
	}
	// What is long past no longer counts.
	for range 1000 {
		h.deviation(at(1), &signs{}, 15)
	}
	if got, _, _ := h.deviation(at(1), &signs{}, 15); math.Abs(got.cores) > 1e-6 {
		t.Errorf("usual for hours, and still %v off", got.cores)
	}
}

// TestAVMThatWasAwayStartsAnew: what it computes now is not held against what it
// did then.
func TestAVMThatWasAwayStartsAnew(t *testing.T) {
	s := newSet(t, Options{Prior: flat})
	key, tr := Key{Class: ClassOf(2, true)}, typical()
	o := tr.observe(key, 1000, 0)
	mustObserve(t, s, o)
	for range maxAway + 2 {
		s.EndRound()
	}
	mustObserve(t, s, o)
	if c := s.curves[key]; c.waiting != 0 {
		t.Error("something is learned from a VM that came back")
	}
	mustObserve(t, s, o)
	if c := s.curves[key]; c.waiting != 1 {
		t.Error("nothing is learned from a VM that stayed")
	}
}

func TestHabitsAreBounded(t *testing.T) {
	s := newSet(t, Options{Prior: flat})
	key, tr := Key{Class: ClassOf(2, true)}, typical()
	for i := range 3 * maxHabits {
		o := tr.observe(key, 1000, 0)
		o.VM = strconv.Itoa(i)
		mustObserve(t, s, o)
		if i%7 == 0 {
			s.EndRound()
		}
		if n := len(s.curves[key].habits); n > maxHabits {
			t.Fatalf("%d VMs are kept", n)
		}
	}
	// All in one round.
	for i := range 2 * maxHabits {
		o := tr.observe(key, 1000, 0)
		o.VM = "other" + strconv.Itoa(i)
		mustObserve(t, s, o)
	}
	if n := len(s.curves[key].habits); n > maxHabits {
		t.Errorf("%d VMs are kept", n)
	}
}
