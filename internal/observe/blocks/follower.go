package blocks

import (
	"slices"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/verify"
)

const (
	// patience is how long after its end a block waits for what is still to come: figures
	// of servers are some minutes old when they come.
	patience = 10 * time.Minute
	// mostOpen blocks wait: more than there are within patience, but for the shortest.
	mostOpen = 8
	// late is by how much what an agent tells of a lever may be of another moment than
	// the rates that it tells it with.
	late = 2 * time.Second
)

// before is the number of what is measured before the first block: as long as a block and
// washed out alike.
const before = -1

// follower measures the blocks of one schedule.
type follower struct {
	schedule model.Schedule
	// gone is true when the plan has the schedule no more.
	gone bool
	// next is the number of the first block that was not begun, or before.
	next int
	// open blocks were begun and not closed, in their order.
	open []block
	// before is what the time before the first block brought.
	before verify.Stretch
	// whole is true once the lever did all that it would, however slowly it came. VMs that
	// come later, and wait, are noise: they may be the lever's doing.
	whole bool
}

// followAt begins with the block that a time lies in.
func followAt(s *model.Schedule, at time.Time) *follower {
	f := &follower{schedule: *s, next: before}
	if !at.Before(s.Start) {
		f.next = f.upTo(at)
	}
	return f
}

// upTo is the number of the block that a time lies in, or that of the first one that
// there is not.
func (f *follower) upTo(at time.Time) int {
	since := at.Sub(f.schedule.Start)
	switch {
	case since >= 0:
		return min(int(since/f.schedule.Block), len(f.schedule.On))
	case since >= -f.schedule.Block && !f.schedule.Otherwise:
		return before
	default:
		// Nothing is to be measured: with the lever on, or too long before.
		return before - 1
	}
}

// reach begins all blocks up to the one that a time lies in. Those between were missed,
// for a cause, and so was the last one if the clock jumped into it.
func (f *follower) reach(at time.Time, missed string) {
	reached := f.upTo(at)
	if reached > before && f.next == before {
		f.next = 0 // The time before the first block is over, unmeasured.
	}
	for ; f.next <= reached && f.next < len(f.schedule.On); f.next++ {
		b := f.block(f.next)
		if f.next < reached {
			b.exclude(missed)
		}
		f.open = append(f.open, b)
	}
}

func (f *follower) block(number int) block {
	s := &f.schedule
	start := s.Start.Add(time.Duration(number) * s.Block)
	return block{
		number: number, on: number >= 0 && number < len(s.On) && s.On[number],
		start: start, from: start.Add(s.WashOut), to: start.Add(s.Block),
	}
}

// leave excludes the blocks that were not over, by the node's clock, when the plan lost the
// schedule. They are told of at their ends, for the schedule may come back.
func (f *follower) leave(now time.Time) {
	for i := range f.open {
		if now.Before(f.open[i].to) {
			f.open[i].exclude(Replaced)
		}
	}
}

// isSwitching tells whether the schedule has a block at a time.
func (f *follower) isSwitching(at time.Time) bool { return f.schedule.At(at).Block >= 0 }

// check compares what the agent tells of the lever with what the schedule says, and looks
// for what guards did. A part of a lever says nothing of it: partly are those that did not come
// to all VMs yet.
func (f *follower) check(r *model.NodeRates, undone []undone, partly []v1alpha1.Lever) {
	f.whole = f.whole || !slices.Contains(partly, f.schedule.Lever)
	for i := range f.open {
		b := &f.open[i]
		judged := !r.Time.Before(b.from) && r.Time.Before(b.to.Add(-late))
		if judged && (!f.whole || !f.agrees(r.Switches, b)) {
			b.exclude(NotAsScheduled)
		}
		b.guarded = b.guarded || b.on && isGuarded(undone, len(r.VMs), f.schedule.Lever, b)
	}
}

// agrees tells whether the lever has been as a block of the schedule has it for all that
// is judged of the block so far.
func (f *follower) agrees(told []model.Switch, b *block) bool {
	is := slices.IndexFunc(told, func(s model.Switch) bool { return s.Lever == f.schedule.Lever })
	if is < 0 {
		return false
	}
	s := &told[is]
	return s.Seed == f.schedule.Seed && s.Start.Equal(f.schedule.Start) &&
		s.Block == b.number && s.On == b.on && !s.Since.After(b.from.Add(late))
}

// close takes off the blocks that are over, and tells of them.
func (f *follower) close(node string, isOver func(*block) bool) []Block {
	var closed []Block
	for len(f.open) > 0 && (isOver(&f.open[0]) || len(f.open) > mostOpen) {
		b := f.open[0]
		f.open = slices.Delete(f.open, 0, 1)
		b.finish()
		if b.number == before {
			if b.cause == "" {
				f.before = verify.Stretch{Seconds: b.seconds, Joules: b.joules, Work: b.work}
			}
			continue
		}
		closed = append(closed, f.tell(node, &b))
	}
	if len(f.open) == 0 {
		f.open = nil
	}
	return closed
}

func (f *follower) tell(node string, b *block) Block {
	told := Block{
		Lever: f.schedule.Lever, Seed: f.schedule.Seed, Start: f.schedule.Start,
		From: b.start, To: b.to, Source: b.of.Source, Scope: b.of.Scope,
		Outcome: verify.Outcome{
			Unit: node, Block: b.number, On: b.on,
			Seconds: b.seconds, Joules: b.joules, Work: b.work,
			Guarded: b.guarded, Excluded: b.cause,
		},
	}
	if b.number == 0 {
		told.Before = f.before
	}
	return told
}
