package traffic_test

import (
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/planner/traffic"
	"github.com/joulevirt/joulevirt/internal/planner/traffic/traffictest"
	"github.com/joulevirt/joulevirt/internal/units"
)

func stepping(step float64) func(*traffic.Group) {
	return func(g *traffic.Group) { g.MaxStep = step }
}

func sharing(shares ...float64) func(*traffic.Group) {
	return func(g *traffic.Group) {
		for i, share := range shares {
			g.Members[i].Share = share
		}
	}
}

func least(n int) func(*traffic.Group) { return func(g *traffic.Group) { g.MinActive = n } }

// perMille returns the shares of rounds, until they stay.
func perMille(t *testing.T, g traffic.Group) [][]int {
	t.Helper()
	var rounds [][]int
	for {
		a := mustAllocate(t, g)
		var shares []int
		for _, s := range a.Shares {
			shares = append(shares, int(math.Round(1000*s.Share)))
		}
		if len(rounds) > 0 && slices.Equal(rounds[len(rounds)-1], shares) {
			return rounds
		}
		rounds = append(rounds, shares)
		g = next(g, a)
	}
}

func TestSteps(t *testing.T) {
	for name, tc := range map[string]struct {
		group traffic.Group
		want  [][]int
	}{
		"weights in steps": {
			with(alike(3, 2000*mbit), stepping(0.3)),
			[][]int{{633, 183, 183}, {933, 33, 33}, {1000, 0, 0}},
		},
		"to the goal": {
			with(alike(3, 2000*mbit), stepping(0.5)),
			[][]int{{833, 83, 83}, {1000, 0, 0}},
		},
		"nobody serves yet": {
			with(alike(4, 2000*mbit), stepping(0.5), sharing(0, 0, 0, 0)),
			[][]int{{750, 83, 83, 83}, {1000, 0, 0, 0}},
		},
		"the one that had all is gone": {
			with(alike(3, 500*mbit), least(2), stepping(0.1), sharing(0.02, 0, 0)),
			// Not more than its limit, at once; then step by step.
			[][]int{{556, 444, 0}},
		},
		"too few are left": {
			with(alike(3, 2000*mbit), least(3), stepping(0.1), sharing(0.5, 0, 0)),
			[][]int{{993, 3, 3}},
		},
		"no limit any more": {
			with(alike(3, 700*mbit), sharing(0.4, 0.3, 0.3), stepping(0.2), member(0, func(m *traffic.Member) { m.Limit = 0 })),
			[][]int{{233, 500, 267}, {65, 700, 235}, {0, 778, 222}},
		},
		"equal shares, one a round": {
			with(alike(4, 2000*mbit), equal, stepping(0.01)),
			[][]int{{333, 333, 333, 0}, {500, 500, 0, 0}, {1000, 0, 0, 0}},
		},
		"equal shares, two a round": {
			with(alike(4, 2000*mbit), equal, stepping(0.5)),
			[][]int{{500, 500, 0, 0}, {1000, 0, 0, 0}},
		},
		"a member that fails is replaced": {
			with(alike(4, 2000*mbit), equal, least(2), stepping(0.01), sharing(0.5, 0, 0, 0)),
			[][]int{{500, 500, 0, 0}},
		},
		"others, and never fewer": {
			with(alike(4, 2000*mbit), equal, least(2), stepping(0.01), sharing(0.5, 0.5, 0, 0), func(g *traffic.Group) {
				g.Curves = append(g.Curves, traffictest.Concave(0.5, 30, 20*mbit, 2))
				g.Members[0].Curve, g.Members[1].Curve = 1, 1
			}),
			[][]int{{333, 333, 333, 0}, {250, 250, 250, 250}, {333, 0, 333, 333}, {0, 0, 500, 500}},
		},
		"as many at once as have to be": {
			with(alike(5, 300*mbit), equal, stepping(0.01), sharing(0.5, 0.5, 0, 0, 0), func(g *traffic.Group) {
				g.Curves = append(g.Curves, traffictest.Concave(0.5, 30, 20*mbit, 2))
				for i := range 2 {
					g.Members[i].Curve, g.Members[i].Limit = 1, 900*mbit
				}
			}),
			// A third of the traffic is just what each of the others takes.
			[][]int{{333, 333, 333, 0, 0}, {250, 250, 250, 250, 0}, {200, 200, 200, 200, 200}, {250, 0, 250, 250, 250}, {0, 0, 333, 333, 333}},
		},
		"as many at once as have to be, more than one": {
			with(alike(6, 225*mbit), equal, stepping(0.01), sharing(0.5, 0.5, 0, 0, 0, 0), func(g *traffic.Group) {
				g.Curves = append(g.Curves, traffictest.Concave(0.5, 30, 20*mbit, 2))
				for i := range 2 {
					g.Members[i].Curve, g.Members[i].Limit = 1, 900*mbit
				}
			}),
			[][]int{{250, 250, 250, 250, 0, 0}, {200, 200, 200, 200, 200, 0}, {167, 167, 167, 167, 167, 167}, {200, 0, 200, 200, 200, 200}, {0, 0, 250, 250, 250, 250}},
		},
	} {
		if diff := cmp.Diff(tc.want, perMille(t, tc.group)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestNoiseMovesNothing: measured rates, limits and costs that change a little
// leave the shares as they are.
func TestNoiseMovesNothing(t *testing.T) {
	for name, change := range map[string]func(*traffic.Group){
		"more traffic": func(g *traffic.Group) { g.Total *= 1.04 },
		"less traffic": func(g *traffic.Group) { g.Total *= 0.96 },
		"lower limits": func(g *traffic.Group) {
			for i := range g.Members {
				g.Members[i].Limit *= 0.96
			}
		},
		"another curve": func(g *traffic.Group) { g.Curves = []traffic.Curve{traffictest.Concave(0.5, 2.8, 22*mbit, 2.1)} },
		"one of the others is slightly cheaper": func(g *traffic.Group) {
			g.Curves = append(g.Curves, traffictest.Concave(0.5, 2.95, 20*mbit, 2))
			g.Members[4].Curve = 1
		},
	} {
		for _, granularity := range []traffic.Granularity{traffic.Weighted, traffic.Equal} {
			g := with(alike(5, 500*mbit), spare, least(2), func(g *traffic.Group) { g.Granularity, g.MinSaving = granularity, 0.02 })
			g = next(g, mustAllocate(t, g))
			change(&g)
			a := mustAllocate(t, g)
			for i, s := range a.Shares {
				if math.Abs(s.Share-g.Members[i].Share) > 1e-9 || a.Reason != model.ReasonSkewed {
					t.Errorf("granularity %d, %s: %s, %+v, had %v", granularity, name, a.Reason, s, g.Members[i].Share)
				}
			}
		}
	}
}

// TestSkewComesAndGoesAtDifferentSavings: what saves somewhat less than what it
// takes to begin stays.
func TestSkewComesAndGoesAtDifferentSavings(t *testing.T) {
	curve := traffictest.Concave(5, 3, 20*mbit, 2)
	balanced := with(alike(5, 2000*mbit), func(g *traffic.Group) { g.Curves = []traffic.Curve{curve} })
	a := mustAllocate(t, balanced)
	saved := float64(a.Saved) / (5 * float64(curve(180*mbit)))
	for name, tc := range map[string]struct {
		group traffic.Group
		least float64
		want  model.Reason
	}{
		"begins":     {balanced, 0.9 * saved, model.ReasonSkewed},
		"too little": {balanced, 1.1 * saved, model.ReasonBalanced},
		"stays":      {next(balanced, a), 1.1 * saved, model.ReasonSkewed},
		"ends":       {next(balanced, a), 2.1 * saved, model.ReasonBalanced},
	} {
		tc.group.MinSaving = tc.least
		if a := mustAllocate(t, tc.group); a.Reason != tc.want {
			t.Errorf("%s: %s, want %s", name, a.Reason, tc.want)
		}
	}
}

// FuzzAllocate: whatever a group is made of, it is an error or an allocation that
// keeps what it has to.
func FuzzAllocate(f *testing.F) {
	f.Add(900e6, 500e6, 700e6, 300e6, 0.0, 100e6, 0.5, 0.5, 0.0, 0.3, 0.02, 3.0, uint8(0b1010))
	f.Add(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, uint8(0))
	f.Add(1e18, 1e18, 5e-324, 1e300, 1.0, -1.0, 1.0, 1.0, 1.0, 1e-9, 0.99, math.NaN(), uint8(255))
	f.Add(5.0, 4.0, 3.0, 2.0, 1.0, 1.0, 0.1, 0.2, 0.7, 0.5, 0.0, 1e300, uint8(7))
	f.Fuzz(func(t *testing.T, total, limit0, limit1, limit2, floor0, floor1, share0, share1, share2, step, saving, watts float64, bits uint8) {
		rate := func(v float64) units.BitsPerSecond { return units.BitsPerSecond(v) }
		g := traffic.Group{
			Total: rate(total), Granularity: traffic.Granularity(bits & 1), MinActive: int(bits >> 1 & 3), MinDomains: int(bits >> 3 & 3),
			SpareLargest: bits>>5&1 == 1, MaxStep: step, MinSaving: saving,
			Curves: []traffic.Curve{traffictest.Concave(1, units.Watts(watts), mbit, 1), bent()},
			Members: []traffic.Member{
				{Name: "a", Domain: "x", Limit: rate(limit0), Floor: rate(floor0), Share: share0},
				{Name: "b", Domain: "y", Limit: rate(limit1), Floor: rate(floor1), Share: share1, Curve: 1},
				{Name: "c", Domain: "x", Limit: rate(limit2), Share: share2, Curve: int(bits >> 7)},
			},
		}
		a, err := traffic.Allocate(g)
		if err != nil {
			return
		}
		checkOne(t, g, a)
	})
}
