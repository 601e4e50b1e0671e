package traffic_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/planner/traffic"
	"github.com/joulevirt/joulevirt/internal/planner/traffic/traffictest"
	"github.com/joulevirt/joulevirt/internal/units"
)

// inForce is by how much rates in force may be beyond what a group demands.
const inForce = 0.05

// next returns the group as it is when an allocation's shares are in force.
func next(g traffic.Group, a traffic.Allocation) traffic.Group {
	g.Members = slices.Clone(g.Members)
	for i := range g.Members {
		g.Members[i].Share = a.Shares[i].Share
	}
	return g
}

// feasible returns an error when shares break what a group demands. Members without
// a limit may carry on what they carry now, and with equal shares what the others do.
func feasible(g traffic.Group, shares []float64) error {
	g.Members = slices.Clone(g.Members)
	all := sharesOf(g)
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
	return traffictest.Check(g, shares, inForce)
}

// sharesOf is the sum of the members' shares: less than 1 when some are gone.
func sharesOf(g traffic.Group) float64 {
	sum := 0.0
	for i := range g.Members {
		sum += g.Members[i].Share
	}
	return sum
}

// moved is the part of the traffic that is steered elsewhere.
func moved(g traffic.Group, a traffic.Allocation) float64 {
	sum, all := 0.0, sharesOf(g)
	for i := range g.Members {
		sum += math.Abs(a.Shares[i].Share - g.Members[i].Share/all)
	}
	return sum / 2
}

// anything returns a group that may be out of all bounds.
func anything(r *rand.Rand) traffic.Group {
	n := 1 + r.IntN(9)
	if r.IntN(8) == 0 {
		n = 10 + r.IntN(30)
	}
	g := traffictest.Random(r, n, 1+r.IntN(3), traffic.Granularity(r.IntN(2)))
	g.MaxStep, g.MinSaving = 0.05+0.95*r.Float64(), 0.1*r.Float64()*float64(r.IntN(2))
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

func constrained(reason model.Reason) bool {
	return slices.Contains([]model.Reason{model.ReasonSkewed, model.ReasonBalanced, model.ReasonCurvesLinear, model.ReasonCurvesUnknown}, reason)
}

// checkOne checks what holds for every allocation.
func checkOne(t *testing.T, g traffic.Group, a traffic.Allocation) {
	t.Helper()
	goals, shares := traffictest.Goals(g, a), traffictest.Shares(g, a)
	sumGoals, sumShares := 0.0, 0.0
	for i, s := range a.Shares {
		if s.Name != g.Members[i].Name || s.Reason == "" || !(s.Share >= 0 && s.Share <= 1+1e-9) || !(s.Goal >= 0 && s.Goal <= 1+1e-9) {
			t.Fatalf("share %+v of %q", s, g.Members[i].Name)
		}
		sumGoals, sumShares = sumGoals+s.Goal, sumShares+s.Share
	}
	if len(a.Shares) > 0 && (math.Abs(sumGoals-1) > 1e-9 || math.Abs(sumShares-1) > 1e-9) {
		t.Fatalf("shares add up to %v, goals to %v", sumShares, sumGoals)
	}
	if !(a.Saved >= 0) || a.Reason == "" || a.Message == "" {
		t.Fatalf("%v W saved, reason %q, message %q", a.Saved, a.Reason, a.Message)
	}
	if !constrained(a.Reason) {
		return
	}
	if err := traffictest.Check(g, goals, inForce); err != nil {
		t.Fatalf("goal of %s: %v", a.Reason, err)
	}
	equal := make([]float64, len(goals))
	for i := range equal {
		equal[i] = float64(g.Total) / float64(len(equal))
	}
	// By far, so that rounding does not decide whether it is equal shares that count.
	const byFar = -1e-4
	if a.Reason == model.ReasonSkewed && traffictest.Check(g, equal, byFar) == nil {
		saved := traffictest.Cost(g, equal) - traffictest.Cost(g, goals)
		if saved <= 0 || math.Abs(saved-float64(a.Saved)) > 1e-6*math.Abs(traffictest.Cost(g, equal)) {
			t.Fatalf("%v W saved against equal shares, %v said", saved, a.Saved)
		}
	}
	if err := feasible(g, shares); err != nil {
		t.Fatalf("shares of %s: %v", a.Reason, err)
	}
}

// nearly compares but for rounding.
func nearly[T ~float64]() cmp.Option {
	return cmp.Comparer(func(x, y T) bool { return math.Abs(float64(x-y)) <= 1e-6*math.Max(1e-3, math.Abs(float64(x))) })
}

// TestRounds: from any state the shares get to a goal, and stay there; what the
// group demands holds in each round, and no more moves than may, but to mend what
// is broken.
func TestRounds(t *testing.T) {
	reasons := map[model.Reason]int{}
	for seed := range 1500 {
		r := rand.New(rand.NewPCG(uint64(seed), 7))
		g := anything(r)
		seen := []string{}
		for round := 0; ; round++ {
			a, err := traffic.Allocate(g)
			if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			reasons[a.Reason]++
			seen = append(seen, fmt.Sprintf("%s %+v", a.Reason, a.Shares))
			t.Run(fmt.Sprintf("seed %d round %d", seed, round), func(t *testing.T) { checkOne(t, g, a) })
			step := moved(g, a)
			whole := g.Granularity == traffic.Weighted && round > 0 && constrained(a.Reason)
			if whole && step > g.MaxStep+1e-6 {
				t.Fatalf("seed %d, round %d: %v moves, at most %v may", seed, round, step, g.MaxStep)
			}
			done := next(g, a)
			if step < 1e-9 && round > 0 {
				if diff := cmp.Diff(a, mustAllocate(t, done), nearly[float64](), nearly[units.Watts](), nearly[units.BitsPerSecond]()); diff != "" {
					t.Fatalf("seed %d: does not stay:\n%s", seed, diff)
				}
				break
			}
			if round > 2*len(g.Members)+int(2/g.MaxStep)+2 {
				t.Fatalf("seed %d: does not settle:\n%s", seed, strings.Join(seen[len(seen)-4:], "\n"))
			}
			g = done
		}
	}
	t.Logf("%v", reasons)
	for _, reason := range []model.Reason{model.ReasonSkewed, model.ReasonBalanced, model.ReasonNoRoom} {
		if reasons[reason] < 100 {
			t.Errorf("only %d allocations are %s", reasons[reason], reason)
		}
	}
}

// TestOrderDoesNotMatter: the members' order changes nothing, for nobody.
func TestOrderDoesNotMatter(t *testing.T) {
	for seed := range 1000 {
		r := rand.New(rand.NewPCG(uint64(seed), 8))
		g := anything(r)
		a := mustAllocate(t, g)
		shuffled := g
		shuffled.Members = slices.Clone(g.Members)
		r.Shuffle(len(g.Members), func(i, j int) {
			shuffled.Members[i], shuffled.Members[j] = shuffled.Members[j], shuffled.Members[i]
		})
		b := mustAllocate(t, shuffled)
		byName := func(x, y traffic.Share) bool { return x.Name < y.Name }
		if diff := cmp.Diff(a, b, cmpopts.SortSlices(byName)); diff != "" {
			t.Fatalf("seed %d:\n%s", seed, diff)
		}
	}
}
