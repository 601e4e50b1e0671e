package traffic_test

import (
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/planner/traffic"
)

func sharing(shares ...float64) func(*traffic.Group) {
	return func(g *traffic.Group) {
		for i, share := range shares {
			g.Members[i].Share = share
		}
	}
}

func least(n int) func(*traffic.Group) { return func(g *traffic.Group) { g.MinActive = n } }

// perMille returns the shares of rounds, until they stay.
func perMille(g traffic.Group, maxStep float64) [][]int {
	var rounds [][]int
	for {
		step := traffic.Step(g, sharesOf(traffic.Allocate(g)), maxStep)
		var shares []int
		for _, s := range step {
			shares = append(shares, int(math.Round(1000*s)))
		}
		if len(rounds) > 0 && slices.Equal(rounds[len(rounds)-1], shares) {
			return rounds
		}
		rounds = append(rounds, shares)
		g = next(g, step)
	}
}

func TestSteps(t *testing.T) {
	for name, tc := range map[string]struct {
		step  float64
		group traffic.Group
		want  [][]int
	}{
		"weights in steps": {
			0.3, with(alike(3, 2000*mbit)),
			[][]int{{633, 183, 183}, {933, 33, 33}, {1000, 0, 0}},
		},
		"to the goal": {
			0.5, with(alike(3, 2000*mbit)),
			[][]int{{833, 83, 83}, {1000, 0, 0}},
		},
		"nobody serves yet": {
			0.5, with(alike(4, 2000*mbit), sharing(0, 0, 0, 0)),
			[][]int{{750, 83, 83, 83}, {1000, 0, 0, 0}},
		},
		"the one that had all is gone": {
			0.1, with(alike(3, 500*mbit), least(2), sharing(0.02, 0, 0)),
			// Not more than its limit, at once; then step by step.
			[][]int{{556, 444, 0}},
		},
		"too few are left": {
			0.1, with(alike(3, 2000*mbit), least(3), sharing(0.5, 0, 0)),
			[][]int{{993, 3, 3}},
		},
		"no limit any more": {
			0.2, with(alike(3, 700*mbit), sharing(0.4, 0.3, 0.3), member(0, func(m *traffic.Member) { m.Limit = 0 })),
			[][]int{{233, 500, 267}, {65, 700, 235}, {0, 778, 222}},
		},
		"equal shares, one a round": {
			0.01, with(alike(4, 2000*mbit), equal),
			[][]int{{333, 333, 333, 0}, {500, 500, 0, 0}, {1000, 0, 0, 0}},
		},
		"equal shares, two a round": {
			0.5, with(alike(4, 2000*mbit), equal),
			[][]int{{500, 500, 0, 0}, {1000, 0, 0, 0}},
		},
		"a member that fails is replaced": {
			0.01, with(alike(4, 2000*mbit), equal, least(2), sharing(0.5, 0, 0, 0)),
			[][]int{{500, 500, 0, 0}},
		},
		"others, and never fewer": {
			0.01, with(alike(4, 2000*mbit), equal, least(2), sharing(0.5, 0.5, 0, 0), func(g *traffic.Group) {
				g.Curves = append(g.Curves, concave(0.5, 30, 20*mbit, 2))
				g.Members[0].Curve, g.Members[1].Curve = 1, 1
			}),
			[][]int{{333, 333, 333, 0}, {250, 250, 250, 250}, {333, 0, 333, 333}, {0, 0, 500, 500}},
		},
		"as many at once as have to be": {
			0.01, with(alike(5, 300*mbit), equal, sharing(0.5, 0.5, 0, 0, 0), func(g *traffic.Group) {
				g.Curves = append(g.Curves, concave(0.5, 30, 20*mbit, 2))
				for i := range 2 {
					g.Members[i].Curve, g.Members[i].Limit = 1, 900*mbit
				}
			}),
			// A third of the traffic is just what each of the others takes.
			[][]int{{333, 333, 333, 0, 0}, {250, 250, 250, 250, 0}, {200, 200, 200, 200, 200}, {250, 0, 250, 250, 250}, {0, 0, 333, 333, 333}},
		},
		"as many at once as have to be, more than one": {
			0.01, with(alike(6, 225*mbit), equal, sharing(0.5, 0.5, 0, 0, 0, 0), func(g *traffic.Group) {
				g.Curves = append(g.Curves, concave(0.5, 30, 20*mbit, 2))
				for i := range 2 {
					g.Members[i].Curve, g.Members[i].Limit = 1, 900*mbit
				}
			}),
			[][]int{{250, 250, 250, 250, 0, 0}, {200, 200, 200, 200, 200, 0}, {167, 167, 167, 167, 167, 167}, {200, 0, 200, 200, 200, 200}, {0, 0, 250, 250, 250, 250}},
		},
	} {
		if diff := cmp.Diff(tc.want, perMille(tc.group, tc.step)); diff != "" {
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
		"another curve": func(g *traffic.Group) { g.Curves = []traffic.Curve{concave(0.5, 2.8, 22*mbit, 2.1)} },
		"one of the others is slightly cheaper": func(g *traffic.Group) {
			g.Curves = append(g.Curves, concave(0.5, 2.95, 20*mbit, 2))
			g.Members[4].Curve = 1
		},
	} {
		for _, granularity := range []traffic.Granularity{traffic.Weighted, traffic.Equal} {
			g := with(alike(5, 500*mbit), spare, least(2), func(g *traffic.Group) { g.Granularity, g.MinSaving = granularity, 0.02 })
			g = next(g, sharesOf(traffic.Allocate(g)))
			change(&g)
			a := traffic.Allocate(g)
			for i, s := range a.Shares {
				if math.Abs(s.Share-g.Members[i].Share) > 1e-9 || a.Reason != v1alpha1.ReasonSkewed {
					t.Errorf("granularity %d, %s: %s, %+v, had %v", granularity, name, a.Reason, s, g.Members[i].Share)
				}
			}
		}
	}
}

// TestSkewComesAndGoesAtDifferentSavings: what saves somewhat less than what it
// takes to begin stays.
func TestSkewComesAndGoesAtDifferentSavings(t *testing.T) {
	curve := concave(5, 3, 20*mbit, 2)
	balanced := with(alike(5, 2000*mbit), func(g *traffic.Group) { g.Curves = []traffic.Curve{curve} })
	a := traffic.Allocate(balanced)
	saved := float64(a.Saved) / (5 * float64(curve(180*mbit)-curve(0)))
	for name, tc := range map[string]struct {
		group traffic.Group
		least float64
		want  string
	}{
		"begins":     {balanced, 0.9 * saved, v1alpha1.ReasonSkewed},
		"too little": {balanced, 1.1 * saved, v1alpha1.ReasonBalanced},
		"stays":      {next(balanced, sharesOf(a)), 1.1 * saved, v1alpha1.ReasonSkewed},
		"ends":       {next(balanced, sharesOf(a)), 2.1 * saved, v1alpha1.ReasonBalanced},
	} {
		tc.group.MinSaving = tc.least
		if a := traffic.Allocate(tc.group); a.Reason != tc.want {
			t.Errorf("%s: %s, want %s", name, a.Reason, tc.want)
		}
	}
}
