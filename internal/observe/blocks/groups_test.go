package blocks

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/verify"
)

const groupName = "shop/web"

// groupWorld is a group on two nodes whose clocks differ, which the manager switches.
type groupWorld struct {
	nodes  map[string]*world
	sight  GroupSight
	groups *Groups
	told   []Block
}

// newGroupWorld has nodes n1 and n2 with an honest meter each. The schedule is by the
// manager's clock, and the same that the worlds' truth is told by.
func newGroupWorld() *groupWorld {
	g := &groupWorld{nodes: map[string]*world{"n1": newWorld(1), "n2": newWorld(2)}, groups: NewGroups()}
	schedule := g.nodes["n1"].schedule
	schedule.Lever, schedule.Start = v1alpha1.LeverTrafficShare, at(600)
	g.sight = GroupSight{Schedule: &schedule, Nodes: []string{"n1", "n2"}}
	return g
}

// done is what the manager had done of the schedule at a second, some seconds late.
func (g *groupWorld) done(second int) *model.Switch {
	s := g.sight.Schedule
	moment := s.At(at(float64(second)))
	since := at(-900)
	for block := moment.Block; block >= 0 && s.On[block] == moment.On; block-- {
		since = s.Start.Add(time.Duration(block)*s.Block + 3*time.Second)
	}
	return &model.Switch{Lever: s.Lever, Seed: s.Seed, Start: s.Start, Block: moment.Block, On: moment.On, Since: since}
}

// run has the group's rounds each 30 s and at the blocks' starts, and looks at both nodes
// each 15 s, at what change makes of the sights. False: the node is not looked at.
func (g *groupWorld) run(round func(second int, s *GroupSight), change func(second int, node string, s *Sight) bool) {
	for second := 15; second < hours*3600; second += 15 {
		now := at(float64(second))
		if second%30 == 0 {
			sight := g.sight
			sight.Done = g.done(second)
			if round != nil {
				round(second, &sight)
			}
			g.groups.Tell(groupName, sight, now)
		}
		for _, node := range []string{"n1", "n2"} {
			s := g.nodes[node].sight(second)
			s.Rates.Node = node
			if node == "n2" { // whose clock is behind
				s.Rates.Time = s.Rates.Time.Add(-5 * time.Minute)
			}
			if change == nil || change(second, node, &s) {
				g.told = append(g.told, g.groups.Look(node, s, now)...)
			}
		}
	}
}

// check wants all blocks of the schedule once, in order, those excluded that are named, and
// the others near what both nodes drew.
func (g *groupWorld) check(t *testing.T, excluded map[int]string) {
	t.Helper()
	if len(g.told) != len(g.sight.Schedule.On) {
		t.Errorf("%d blocks are told of, want %d", len(g.told), len(g.sight.Schedule.On))
	}
	for i, b := range g.told {
		if b.Block != i || b.Unit != groupName || b.Excluded != excluded[i] || b.On != g.sight.Schedule.On[i] {
			t.Errorf("block %d is told of as %+v, want it excluded for %q", i, b, excluded[i])
		}
		if b.Excluded != "" {
			continue
		}
		one, two := g.nodes["n1"].truth(i), g.nodes["n2"].truth(i)
		truth := verify.Outcome{Unit: groupName, Block: i, On: b.On, Seconds: 240, Joules: one.Joules + two.Joules, Work: one.Work + two.Work}
		if !isNear(b.Outcome, truth) {
			t.Errorf("block %d is %+v, want about %+v", i, b.Outcome, truth)
		}
	}
}

// TestGroupsAreMeasured on all of their nodes, by the manager's clock, whatever the nodes'
// clocks are, which may be set.
func TestGroupsAreMeasured(t *testing.T) {
	for _, set := range []bool{false, true} {
		g := newGroupWorld()
		g.run(nil, func(second int, node string, s *Sight) bool {
			if set && node == "n2" && second > 2000 {
				s.Rates.Time = s.Rates.Time.Add(time.Hour)
			}
			return true
		})
		g.check(t, nil)
		if before := g.told[0].Before; math.Abs(float64(before.Joules)/before.Seconds-200.5) > 15 {
			t.Errorf("before the first block %+v, want both nodes' 100 W", before)
		}
	}
}

// TestGroupsExclude: what happens to one node in block 3, or to the group, excludes the
// group's block, with the cause, and no other.
func TestGroupsExclude(t *testing.T) {
	silent := func(node string, from, to int) func(int, string, *Sight) bool {
		return func(second int, is string, s *Sight) bool {
			if is == node && within(second, 3, from, to) {
				s.Rates = nil
			}
			return true
		}
	}
	shares := func(change func(*GroupSight)) func(int, *GroupSight) {
		return func(second int, s *GroupSight) {
			if within(second, 3, 120, 200) {
				change(s)
			}
		}
	}
	for name, tc := range map[string]struct {
		round  func(int, *GroupSight)
		change func(int, string, *Sight) bool
		want   map[int]string
	}{
		"one node is not heard": {nil, silent("n2", 200, 330), map[int]string{3: NotWatched}},
		"the other's meter fails": {nil, func(second int, node string, s *Sight) bool {
			if node == "n1" && within(second, 3, 150, 260) {
				s.Power = nil
			}
			return true
		}, map[int]string{3: MeterFailed}},
		"shares are not as scheduled": {shares(func(s *GroupSight) { s.Done = nil }), nil, map[int]string{3: NotAsScheduled}},
		"shares came late": {shares(func(s *GroupSight) {
			done := *s.Done
			done.Since = at(600 + 3*300 + 90)
			s.Done = &done
		}), nil, map[int]string{3: NotAsScheduled}},
		"a node joins in block 3": {func(second int, s *GroupSight) {
			if second < 600+3*300+120 {
				s.Nodes = []string{"n1"}
			}
		}, nil, map[int]string{0: "", 3: NotWatched}},
		"a member leaves a node": {func(second int, s *GroupSight) {
			if second > 600+3*300+120 {
				s.Nodes = []string{"n1"}
			}
		}, nil, nil},
		"a node is never looked at": {nil, func(_ int, node string, _ *Sight) bool { return node == "n1" }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGroupWorld()
			g.run(tc.round, tc.change)
			switch name {
			case "a node joins in block 3":
				for i, b := range g.told {
					power := float64(b.Joules) / b.Seconds
					if b.Excluded != tc.want[i] || i < 3 && power > 102 || i > 3 && power < 150 {
						t.Errorf("block %d is %+v", i, b)
					}
				}
			case "a node is never looked at":
				for _, b := range g.told {
					if b.Excluded != NotWatched {
						t.Errorf("%+v, want it not watched", b)
					}
				}
				if len(g.told) == 0 {
					t.Error("no block is told of")
				}
			default:
				g.check(t, tc.want)
			}
		})
	}
}

// TestGroupsAreGuarded: a block in which the manager's guard took the lever from the group counts
// against it, and stays in the analysis as it was drawn.
func TestGroupsAreGuarded(t *testing.T) {
	for name, tc := range map[string]struct {
		lever v1alpha1.Lever
		count int
		want  bool
	}{
		"withdrawn":                  {v1alpha1.LeverTrafficShare, 1, true},
		"withdrawn to see without":   {v1alpha1.LeverTrafficShare, 0, false},
		"a lever of one of its VMs":  {v1alpha1.LeverAffinity, 1, false},
		"withdrawn, the second time": {v1alpha1.LeverTrafficShare, 2, true},
	} {
		g := newGroupWorld()
		on := 2
		for !g.sight.Schedule.On[on] {
			on++
		}
		withdrawn := model.Withdrawal{PodUID: "a", Lever: tc.lever, Count: tc.count, Time: at(float64(600 + on*300 + 120))}
		g.run(func(second int, s *GroupSight) {
			if !at(float64(second)).Before(withdrawn.Time) {
				s.Withdrawn = []model.Withdrawal{withdrawn}
			}
		}, nil)
		g.check(t, nil)
		for i, b := range g.told {
			if want := tc.want && i == on; b.Guarded != want {
				t.Errorf("%s: block %d is guarded: %t, want %t", name, i, b.Guarded, want)
			}
		}
	}
}

// TestGroupsEnd: a schedule that goes takes its open block along, and then nothing is kept.
func TestGroupsEnd(t *testing.T) {
	for _, forget := range []bool{false, true} {
		g := newGroupWorld()
		g.run(func(second int, s *GroupSight) {
			if second > 600+3*300+100 {
				s.Schedule, s.Done = nil, nil
				if forget {
					g.groups.Forget(groupName)
				}
			}
		}, nil)
		causes := fmt.Sprintln(len(g.told), g.told[len(g.told)-1].Excluded)
		if want := fmt.Sprintln(4, Replaced); !forget && causes != want {
			t.Errorf("blocks, and the last one's cause: %swant %s", causes, want)
		}
		if forget && len(g.told) != 3 {
			t.Errorf("%d blocks are told of, want those before the group went", len(g.told))
		}
		if len(g.groups.of) != 0 || len(g.groups.store.nodes) != 0 {
			t.Errorf("%d groups and %d nodes are kept", len(g.groups.of), len(g.groups.store.nodes))
		}
	}
}

// TestGroupsShareNodes: two groups on one node are measured apart, and neither by the
// schedule of the other.
func TestGroupsShareNodes(t *testing.T) {
	g := newGroupWorld()
	other := GroupSight{Schedule: nil, Nodes: []string{"n1", "n2"}}
	later := *g.sight.Schedule
	later.Seed, later.Start = 99, at(900)
	other.Schedule = &later
	g.run(func(second int, _ *GroupSight) { g.groups.Tell("shop/other", other, at(float64(second))) }, nil)
	var web, others []Block
	for _, b := range g.told {
		if b.Unit == groupName {
			web = append(web, b)
		} else {
			others = append(others, b)
		}
	}
	g.told = web
	g.check(t, nil)
	for _, b := range others {
		if b.Seed != 99 || b.Excluded != NotAsScheduled {
			t.Errorf("%+v, want it not to be as scheduled, as nothing was done", b)
		}
	}
	if len(others) == 0 {
		t.Error("nothing is told of the other group")
	}
}

// TestGroupsForgetNodesThatAreGone: the group goes on with those that are left.
func TestGroupsForgetNodesThatAreGone(t *testing.T) {
	g := newGroupWorld()
	gone := false
	g.run(func(second int, s *GroupSight) {
		if gone = second > 600+3*300+120; gone {
			s.Nodes = []string{"n1"}
			g.groups.Retain(map[string]bool{"n1": true})
		}
	}, func(_ int, node string, _ *Sight) bool { return !gone || node == "n1" })
	if len(g.told) != 16 {
		t.Fatalf("%d blocks are told of", len(g.told))
	}
	for i, b := range g.told {
		if power := float64(b.Joules) / b.Seconds; b.Excluded != "" || i < 3 && power < 150 || i > 3 && power > 102 {
			t.Errorf("block %d is %+v", i, b)
		}
	}
}
