package blocks

import (
	"slices"
	"time"

	"github.com/joulevirt/joulevirt/internal/energy/stream"
	"github.com/joulevirt/joulevirt/internal/model"
)

// node of which schedules are followed.
type node struct {
	// wanted are the plan's schedules, followed those that are measured.
	wanted   []model.Schedule
	followed []*follower
	stream   stream.Stream
}

// keep follows the schedules of the plan, and no others. That of a new one begins with the
// next rates.
func (n *node) keep(schedules []model.Schedule, now time.Time) {
	n.wanted = schedules
	for _, f := range n.followed {
		is := slices.ContainsFunc(schedules, func(s model.Schedule) bool { return s.Equal(&f.schedule) })
		if !is && !f.gone {
			f.leave(now.Add(n.stream.Ahead()))
		}
		f.gone = !is
	}
	n.drop(now)
}

// drop forgets the schedules that are gone and told of. Where blocks were told of that are
// still to come, for a clock that jumped, that is remembered: the schedule may come back.
func (n *node) drop(now time.Time) {
	n.followed = slices.DeleteFunc(n.followed, func(f *follower) bool {
		next := f.block(f.next).start
		return f.gone && len(f.open) == 0 && !now.Before(next) && !now.Add(n.stream.Ahead()).Before(next)
	})
}

// observe records what is known of the node now.
func (n *node) observe(sight *Sight, now time.Time) {
	sight.Now = now
	step := n.stream.Observe(sight.Sample)
	missed := NotWatched
	switch {
	case !step.IsNew:
	case step.Break == stream.ClockJumped:
		missed = ClockJumped
	case step.Break != "":
		n.excludeWithin(string(step.Break), step.Previous, step.At)
	case !step.Previous.IsZero():
		n.watch(step.Previous, step.At)
	}
	if step.IsNew {
		n.begin(step.At, missed)
	}
	for i := range step.Intervals {
		if p := &step.Intervals[i]; p.IsWhole() && p.Source.Measures() {
			for b := range n.open {
				b.count(p)
			}
		}
	}
	if step.IsNew {
		n.check(sight)
	}
}

// begin follows what the plan wants, and begins the blocks that the node is in.
func (n *node) begin(at time.Time, missed string) {
	if missed == ClockJumped {
		n.exclude(missed)
	}
	for i := range n.wanted {
		s := &n.wanted[i]
		follows := func(f *follower) bool { return f.schedule.Equal(s) }
		if s.IsValid() && !slices.ContainsFunc(n.followed, follows) {
			n.followed = append(n.followed, followAt(s, at))
		}
	}
	for _, f := range n.followed {
		if !f.gone {
			f.reach(at, missed)
		}
	}
	if missed == ClockJumped {
		n.exclude(missed)
	}
}

// exclude all blocks that are open.
func (n *node) exclude(cause string) {
	for b := range n.open {
		b.exclude(cause)
	}
}

// excludeWithin excludes all blocks that are judged at some time between two.
func (n *node) excludeWithin(cause string, from, to time.Time) {
	if to.Before(from) {
		from, to = to, from
	}
	for b := range n.open {
		if b.from.Before(to) && b.to.After(from) {
			b.exclude(cause)
		}
	}
}

// open blocks of all schedules.
func (n *node) open(yield func(*block) bool) {
	for _, f := range n.followed {
		for i := range f.open {
			if !yield(&f.open[i]) {
				return
			}
		}
	}
}

func (n *node) watch(from, to time.Time) {
	for b := range n.open {
		b.watch(from, to)
	}
}

// check compares what the agent tells with the schedules. What is measured before a first
// block has to be without any lever that is switched.
func (n *node) check(sight *Sight) {
	r, undone := sight.Rates, n.undone(sight)
	for _, f := range n.followed {
		if !f.gone {
			f.check(r, undone, sight.Partly)
		}
		switching := slices.ContainsFunc(n.followed, func(o *follower) bool { return o != f && !o.gone && o.isSwitching(r.Time) })
		if len(f.open) > 0 && f.open[0].number == before && switching {
			f.open[0].exclude(NotAsScheduled)
		}
	}
}

// close the blocks that are over.
func (n *node) close(name string, now time.Time) []Block {
	theirs := now.Add(n.stream.Ahead())
	isOver := func(b *block) bool { return n.stream.IsPast(b.to) || !theirs.Before(b.to.Add(patience)) }
	var closed []Block
	for _, f := range n.followed {
		if !f.gone {
			// Blocks end without rates, too.
			f.reach(theirs.Add(-patience), NotWatched)
		}
		closed = append(closed, f.close(name, isOver)...)
	}
	n.drop(now)
	return closed
}
