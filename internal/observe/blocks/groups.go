package blocks

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
)

// GroupSight is what the manager knows of a group of VMs, whose shares of traffic it
// switches itself.
type GroupSight struct {
	// Schedule that switches the group, by the manager's clock. Nil: none does.
	Schedule *model.Schedule
	// Done is what the manager did of the schedule. Nil: the shares are not known to be as
	// any schedule has them.
	Done *model.Switch
	// Nodes that run members now.
	Nodes []string
	// Withdrawn is what the manager's guard took the lever from the group for.
	Withdrawn []model.Withdrawal
}

// Groups measures the blocks of schedules that switch whole groups of VMs: what each brought
// on all of the group's nodes together. These are the nodes that ran members since the
// manager first saw the schedule, so that traffic never leaves what is measured. It is safe
// for concurrent use. What it knows of a block is gone with the manager, see Store.
type Groups struct {
	store *Store

	mu sync.Mutex
	of map[string]*group
	// clocks of the nodes that groups are on.
	clocks map[string]*groupClock
}

// group is one that has a schedule, or had one of which blocks are still to be told.
type group struct {
	GroupSight
	// done is what was told of the schedule and when, the newest last.
	done []doneAt
	// since when nodes are the group's, by the manager's clock.
	since map[string]time.Time
	// former nodes are those of schedules before, whose last blocks are not closed yet.
	former map[string]bool
	// open blocks are not told of by all nodes, in their order.
	open []*groupBlock
	// last that was told of.
	last Block
}

// doneAt is what the manager had done of a schedule from some time on. Nil: nothing.
type doneAt struct {
	from time.Time
	done *model.Switch
}

// mostDone that are remembered: rates are a minute old at most, in which a schedule may
// switch and something go wrong.
const mostDone = 4

// NewGroups returns an empty store.
func NewGroups() *Groups {
	return &Groups{store: NewStore(), of: map[string]*group{}, clocks: map[string]*groupClock{}}
}

// Tell takes in what is known of a group now. It is called in each round of a group, those
// without a schedule too.
func (g *Groups) Tell(name string, sight GroupSight, now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	is := g.of[name]
	if is == nil {
		if sight.Schedule == nil {
			return
		}
		is = &group{since: map[string]time.Time{}, former: map[string]bool{}}
		g.of[name] = is
	}
	if is.Schedule != nil && (sight.Schedule == nil || !sight.Schedule.Equal(is.Schedule)) {
		for node := range is.since {
			is.former[node] = true
		}
		is.since = map[string]time.Time{}
	}
	is.GroupSight = sight
	is.note(now)
	if sight.Schedule == nil {
		return
	}
	for _, node := range sight.Nodes {
		if is.since[node].IsZero() {
			is.since[node] = now
		}
	}
}

// note remembers what was done, and since when.
func (is *group) note(now time.Time) {
	if last := len(is.done) - 1; last >= 0 && sameSwitch(is.done[last].done, is.Done) {
		return
	}
	is.done = append(is.done, doneAt{now, is.Done})
	is.done = is.done[max(0, len(is.done)-mostDone):]
}

func sameSwitch(x, y *model.Switch) bool {
	if x == nil || y == nil {
		return x == y
	}
	return x.Lever == y.Lever && x.Seed == y.Seed && x.Start.Equal(y.Start) && x.Block == y.Block && x.On == y.On && x.Since.Equal(y.Since)
}

// doneBy is what was done at a time: rates are looked at when the next block may have begun.
func (is *group) doneBy(at time.Time) *model.Switch {
	for _, d := range slices.Backward(is.done) {
		if !d.from.After(at) {
			return d.done
		}
	}
	return nil
}

// Forget drops a group that is no more, with what is known of its blocks.
func (g *Groups) Forget(name string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if is := g.of[name]; is != nil {
		for node := range is.nodes() {
			g.store.forget(keyOf(name, node))
		}
	}
	delete(g.of, name)
}

// Look takes in what is known of a node now, by the manager's clock, and returns the blocks
// of groups that are closed by it, with the group as their unit. It is called for each node
// as often as Store's; the schedules of the sight, which are the node's own, do not count.
func (g *Groups) Look(node string, sight Sight, now time.Time) []Block {
	g.mu.Lock()
	defer g.mu.Unlock()
	var names []string
	for name, is := range g.of {
		if _, its := is.since[node]; its || is.former[node] {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	var closed []Block
	for _, name := range names {
		is := g.of[name]
		for _, b := range g.store.Look(keyOf(name, node), is.of(node, g.byOurClock(node, sight)), now) {
			is.take(node, b)
		}
		if is.former[node] && !g.store.knows(keyOf(name, node)) {
			delete(is.former, node)
		}
		closed = append(closed, is.close(name, now)...)
		if is.isOver() {
			delete(g.of, name)
		}
	}
	return closed
}

// Retain forgets all nodes but those given: a group goes on without the others.
func (g *Groups) Retain(nodes map[string]bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	gone := func(node string) bool { return !nodes[node] }
	for name, is := range g.of {
		for node := range is.nodes() {
			if gone(node) {
				g.store.forget(keyOf(name, node))
				delete(is.since, node)
				delete(is.former, node)
			}
		}
		if is.isOver() {
			delete(g.of, name)
		}
	}
	maps.DeleteFunc(g.clocks, func(node string, _ *groupClock) bool { return gone(node) })
}

// keyOf names a node of a group in the store of nodes: groups may share one.
func keyOf(group, node string) string { return group + "@" + node }

// isOver tells whether nothing is to come of a group.
func (is *group) isOver() bool { return is.Schedule == nil && len(is.former) == 0 }

// nodes that may still tell of blocks.
func (is *group) nodes() map[string]bool {
	all := maps.Clone(is.former)
	for node := range is.since {
		all[node] = true
	}
	return all
}

// of returns a node's sight with the group's schedule, as if the node's agent switched it.
func (is *group) of(node string, sight Sight) Sight {
	sight.Schedules, sight.Withdrawn = nil, slices.Clone(is.Withdrawn)
	for i := range sight.Withdrawn {
		sight.Withdrawn[i].PodUID = "" // whichever VM was hurt, all lose the lever
	}
	if _, its := is.since[node]; its && is.Schedule != nil {
		sight.Schedules = []model.Schedule{*is.Schedule}
	}
	if sight.Rates != nil {
		rates := *sight.Rates
		rates.Switches, rates.Trips = nil, nil // Agents switch and undo other levers.
		if done := is.doneBy(rates.Time); done != nil {
			rates.Switches = []model.Switch{*done}
		}
		sight.Rates = &rates
	}
	return sight
}
