package planner

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/joulevirt/joulevirt/internal/planner/traffic"
	"github.com/joulevirt/joulevirt/internal/units"
)

// Of equal shares no more moves than a step, but for one member, and each round
// comes closer to the goal.
func TestStepEqual(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	for range 500 {
		g := &groupState{Group: Group{Granularity: traffic.Equal}}
		now, goals := map[string]float64{}, map[string]float64{}
		for i := range 2 + random.IntN(40) {
			name := fmt.Sprintf("vm-%d", i)
			if random.IntN(2) == 0 || i == 0 {
				now[name] = 1
			}
			if random.IntN(4) == 0 || i == 1 {
				goals[name] = 1
			}
		}
		now, goals = g.normal(now), g.normal(goals)
		for round := 0; !cmp.Equal(now, goals); round++ {
			next := g.stepEqual(now, goals)
			added, gone := 0, 0
			for name := range next {
				if now[name] == 0 {
					added++
				}
			}
			for name := range now {
				if next[name] == 0 {
					gone++
				}
			}
			if got, want := movedEqual(len(now), added, gone), moved(now, next); math.Abs(got-want) > 1e-9 {
				t.Fatalf("%d and %d of %d: %v is moved, not %v", added, gone, len(now), want, got)
			}
			if part := moved(now, next); gone > 1 && part > groupMaxStep+1e-9 || gone == 0 && added == 0 || round > 50 {
				t.Fatalf("round %d: from %v to %v on the way to %v", round, now, next, goals)
			}
			now = next
		}
	}
}

// Rounding keeps sums, floors and limits, and what a status says of goals is
// enough to know them again.
func TestGroupRounding(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for range 2000 {
		n := 2 + random.IntN(60)
		g := &groupState{Group: Group{Granularity: traffic.Weighted}, total: 1e9}
		shares := make([]traffic.Share, n)
		sum := 0.0
		for i := range n {
			shares[i].Goal = random.ExpFloat64()
			if random.IntN(3) == 0 {
				shares[i].Goal = 0
			}
			sum += shares[i].Goal
			g.ready = append(g.ready, traffic.Member{Name: fmt.Sprintf("vm-%d", i), Limit: 1e9})
		}
		if sum == 0 {
			continue
		}
		for i := range shares {
			shares[i].Goal /= sum
			shares[i].Name = g.ready[i].Name
			if random.IntN(2) == 0 {
				g.ready[i].Limit = units.BitsPerSecond(shares[i].Goal * 1e9)
			}
		}
		goals := g.round(shares)
		all := 0
		perMille := map[string]int{}
		for i := range shares {
			name := g.ready[i].Name
			parts := goals.Of[name]
			all += parts
			perMille[name] = int(math.Round(1000 * goals.Share(name)))
			if off := math.Abs(goals.Share(name) - shares[i].Goal); off > 2/float64(goals.Whole) {
				t.Fatalf("%d members: %v became %d of %d", n, shares[i].Goal, parts, goals.Whole)
			}
		}
		if all != goals.Whole {
			t.Fatalf("%d parts of %d", all, goals.Whole)
		}
		found := GroupPlan{Revision: g.revision(goals, time.Time{})}
		certain := g.Recover(&found, perMille)
		if goals.Whole <= 1000 && (!certain || !cmp.Equal(trim(found.Goals), trim(goals))) {
			t.Fatalf("recovered %v of %v", found.Goals, goals)
		}
	}
}

func trim(p Parts) Parts {
	out := Parts{Whole: p.Whole, Of: map[string]int{}}
	for name, parts := range p.Of {
		if parts > 0 {
			out.Of[name] = parts
		}
	}
	return out
}

// namedGroup is a group of three VMs, of which the goals of the tests give each the same.
func namedGroup() (Group, Parts) {
	g := Group{ID: GroupID{Namespace: "dev", Profile: "web", UID: "p-1"}, Granularity: traffic.Equal}
	goals := Parts{Whole: 3, Of: map[string]int{}}
	for _, name := range []string{"a", "b", "c"} {
		member := GroupMember{UID: "uid-" + name}
		member.Name = name
		g.Members = append(g.Members, member)
		goals.Of[name] = 1
	}
	return g, goals
}

func TestRecover(t *testing.T) {
	group, goals := namedGroup()
	perMille := map[string]int{"a": 333, "b": 333, "c": 333, "d": 0}
	for name, tc := range map[string]struct {
		change   func(*Group, *GroupPlan)
		perMille map[string]int
		want     bool
	}{
		"as it was":            {func(*Group, *GroupPlan) {}, perMille, true},
		"within the second":    {func(_ *Group, p *GroupPlan) { p.RecommendedAt = noon().Add(time.Millisecond) }, perMille, true},
		"of another time":      {func(_ *Group, p *GroupPlan) { p.RecommendedAt = noon().Add(time.Second) }, perMille, false},
		"other members":        {func(*Group, *GroupPlan) {}, map[string]int{"a": 500, "b": 500}, false},
		"another namespace":    {func(g *Group, _ *GroupPlan) { g.ID.Namespace = "prod" }, perMille, false},
		"another profile":      {func(g *Group, _ *GroupPlan) { g.ID.Profile = "api" }, perMille, false},
		"profile made anew":    {func(g *Group, _ *GroupPlan) { g.ID.UID = "p-2" }, perMille, false},
		"a VM made anew":       {func(g *Group, _ *GroupPlan) { g.Members[1].UID = "uid-new" }, perMille, false},
		"a VM went":            {func(g *Group, _ *GroupPlan) { g.Members = g.Members[1:] }, perMille, false},
		"other parts":          {func(g *Group, _ *GroupPlan) { g.Granularity = traffic.Weighted }, perMille, false},
		"another revision yet": {func(_ *Group, p *GroupPlan) { p.Revision = "else" }, perMille, false},
	} {
		g, plan := group, GroupPlan{Revision: group.revision(goals, noon()), RecommendedAt: noon()}
		g.Members = append([]GroupMember(nil), group.Members...)
		tc.change(&g, &plan)
		if got := g.Recover(&plan, tc.perMille); got != tc.want || got != (plan.Goals.Whole > 0) || got && !cmp.Equal(plan.Goals, goals) {
			t.Errorf("%s: recovered %t with goals %v, want %t", name, got, plan.Goals, tc.want)
		}
	}
}

func TestGoalsInForce(t *testing.T) {
	if diff := cmp.Diff(Parts{Whole: 100, Of: map[string]int{"a": 65, "b": 35}}, GoalsInForce(map[string]float64{"a": 0.65, "b": 0.35, "c": 0}, traffic.Weighted)); diff != "" {
		t.Errorf("in force, weighted (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(Parts{Whole: 2, Of: map[string]int{"a": 1, "b": 1}}, GoalsInForce(map[string]float64{"a": 0.5, "b": 0.5, "c": 0}, traffic.Equal)); diff != "" {
		t.Errorf("in force, equal (-want +got):\n%s", diff)
	}
}
