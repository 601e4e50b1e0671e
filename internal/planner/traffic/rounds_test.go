package traffic_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/planner/traffic"
	"github.com/joulevirt/joulevirt/internal/units"
)

// inForce is by how much rates in force may be beyond what a group demands.
const inForce = 0.05

// next returns the group as it is when shares are in force.
func next(g traffic.Group, shares []float64) traffic.Group {
	g.Members = slices.Clone(g.Members)
	for i := range g.Members {
		g.Members[i].Share = shares[i]
	}
	return g
}

// sharesOf returns the shares of an allocation.
func sharesOf(a traffic.Allocation) []float64 {
	shares := make([]float64, len(a.Shares))
	for i := range shares {
		shares[i] = a.Shares[i].Share
	}
	return shares
}

// ratesOf returns shares as rates of the group's total.
func ratesOf(g traffic.Group, shares []float64) []float64 {
	rates := make([]float64, len(shares))
	for i := range rates {
		rates[i] = float64(g.Total) * shares[i]
	}
	return rates
}

// feasible returns an error when shares break what a group demands. Members without
// a limit may carry on what they carry now, and with equal shares what the others do.
func feasible(g traffic.Group, shares []float64) error {
	g.Members = slices.Clone(g.Members)
	all := inAll(g)
	for i := range g.Members {
		m := &g.Members[i]
		switch {
		case m.Limit > 0 || m.Share == 0:
		case g.Granularity == traffic.Equal:
			m.Limit = g.Total
		default:
			m.Limit = units.BitsPerSecond(m.Share/all) * g.Total
		}
	}
	return checkRates(g, ratesOf(g, shares), inForce)
}

// inAll is the sum of the members' shares: less than 1 when some are gone.
func inAll(g traffic.Group) float64 {
	sum := 0.0
	for i := range g.Members {
		sum += g.Members[i].Share
	}
	return sum
}

// moved is the part of the traffic that is steered elsewhere.
func moved(g traffic.Group, shares []float64) float64 {
	sum, all := 0.0, inAll(g)
	for i := range g.Members {
		sum += math.Abs(shares[i] - g.Members[i].Share/all)
	}
	return sum / 2
}

// anything returns a group that may be out of all bounds.
func anything(r *rand.Rand) traffic.Group {
	n := 1 + r.IntN(9)
	if r.IntN(8) == 0 {
		n = 10 + r.IntN(30)
	}
	g := randomGroup(r, n, 1+r.IntN(3), traffic.Granularity(r.IntN(2)))
	g.MinSaving = 0.1 * r.Float64() * float64(r.IntN(2))
	sum := 0.0
	for i := range g.Members {
		m := &g.Members[i]
		if r.IntN(8) == 0 {
			m.Limit = 0
		}
		if r.IntN(3) > 0 {
			m.Share = r.ExpFloat64()
		}
		if g.Granularity == traffic.Equal {
			m.Share = math.Ceil(m.Share)
		}
		sum += m.Share
	}
	for i := range g.Members {
		g.Members[i].Share /= max(sum, 1)
	}
	return g
}

func constrained(reason string) bool {
	return slices.Contains([]string{v1alpha1.ReasonSkewed, v1alpha1.ReasonBalanced, v1alpha1.ReasonCurvesLinear, v1alpha1.ReasonCurvesUnknown}, reason)
}

// checkOne checks what holds for every allocation, and for a step towards it.
func checkOne(t *testing.T, g traffic.Group, a traffic.Allocation, step []float64) {
	t.Helper()
	goals := ratesOf(g, sharesOf(a))
	sumGoals, sumStep := 0.0, 0.0
	for i, s := range a.Shares {
		if s.Name != g.Members[i].Name || s.Reason == "" || !(s.Share >= 0 && s.Share <= 1+1e-9) || !(step[i] >= 0 && step[i] <= 1+1e-9) {
			t.Fatalf("share %+v of %q, now %v", s, g.Members[i].Name, step[i])
		}
		sumGoals, sumStep = sumGoals+s.Share, sumStep+step[i]
	}
	if math.Abs(sumGoals-1) > 1e-9 || math.Abs(sumStep-1) > 1e-9 {
		t.Fatalf("shares add up to %v, and now to %v", sumGoals, sumStep)
	}
	if !(a.Saved >= 0) || a.Reason == "" || a.Message == "" {
		t.Fatalf("%v W saved, reason %q, message %q", a.Saved, a.Reason, a.Message)
	}
	if !constrained(a.Reason) {
		return
	}
	if err := checkRates(g, goals, inForce); err != nil {
		t.Fatalf("goal of %s: %v", a.Reason, err)
	}
	equal := slices.Repeat([]float64{float64(g.Total) / float64(len(goals))}, len(goals))
	// By far, so that rounding does not decide whether it is equal shares that count.
	const byFar = -1e-4
	if a.Reason == v1alpha1.ReasonSkewed && checkRates(g, equal, byFar) == nil {
		saved := costOf(g, equal) - costOf(g, goals)
		if saved <= 0 || math.Abs(saved-float64(a.Saved)) > 1e-6*math.Abs(costOf(g, equal)) {
			t.Fatalf("%v W saved against equal shares, %v reported", saved, a.Saved)
		}
	}
	if err := feasible(g, step); err != nil {
		t.Fatalf("shares of %s: %v", a.Reason, err)
	}
}

// TestRounds: from any state the shares get to a goal, and stay there; what the
// group demands holds in each round, and no more moves than may, but to mend what
// is broken.
func TestRounds(t *testing.T) {
	reasons := map[string]int{}
	for seed := range 500 {
		r := rand.New(rand.NewPCG(uint64(seed), 7))
		g := anything(r)
		maxStep := 0.05 + 0.95*r.Float64()
		for round := 0; ; round++ {
			a := traffic.Allocate(g)
			step := traffic.Step(g, sharesOf(a), maxStep)
			reasons[a.Reason]++
			t.Run(fmt.Sprintf("seed %d round %d", seed, round), func(t *testing.T) { checkOne(t, g, a, step) })
			part := moved(g, step)
			whole := g.Granularity == traffic.Weighted && round > 0 && constrained(a.Reason)
			if whole && part > maxStep+1e-6 {
				t.Fatalf("seed %d, round %d: %v moves, at most %v may", seed, round, part, maxStep)
			}
			if part < 1e-9 && round > 0 {
				if moved(g, sharesOf(a)) > 1e-9 {
					t.Fatalf("seed %d stays at %v on the way to %+v", seed, step, a.Shares)
				}
				break
			}
			if round > 2*len(g.Members)+int(2/maxStep)+2 {
				t.Fatalf("seed %d does not settle: %v on the way to %+v", seed, step, a.Shares)
			}
			g = next(g, step)
		}
	}
	t.Logf("%v", reasons)
	for _, reason := range []string{v1alpha1.ReasonSkewed, v1alpha1.ReasonBalanced, v1alpha1.ReasonNoRoom} {
		if reasons[reason] < 30 {
			t.Errorf("only %d allocations are %s", reasons[reason], reason)
		}
	}
}
