package blocks

import (
	"slices"
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/observe/credible"
)

// drift is by how much a node's clock may fall behind from pull to pull, as seen from the
// manager's: more than any does that is not set.
const drift = 100 * time.Millisecond

// node of which schedules are followed.
type node struct {
	// wanted are the plan's schedules, followed those that are measured.
	wanted   []model.Schedule
	followed []*follower
	// pulled is what was pulled last. Its time is zero before.
	pulled pull
	// offset is by how much the node's clock is ahead of the manager's: by what the pull
	// says that was on its way for the shortest time.
	offset  time.Duration
	counter counter
	server  server
	// byServer is true while the policy takes the power from a server.
	byServer bool
	// meter is when it is to be believed.
	meter credible.Verdict
}

// keep follows the schedules of the plan, and no others. That of a new one begins with the
// next rates.
func (n *node) keep(schedules []model.Schedule, now time.Time) {
	n.wanted = schedules
	for _, f := range n.followed {
		is := slices.ContainsFunc(schedules, func(s model.Schedule) bool { return s.Equal(&f.schedule) })
		if !is && !f.gone {
			f.leave(now.Add(n.offset))
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
		return f.gone && len(f.open) == 0 && !now.Before(next) && !now.Add(n.offset).Before(next)
	})
}

// hear takes in rates that were not heard before.
func (n *node) hear(sight *Sight) {
	if sight.Rates == nil {
		return
	}
	next, ok := pullOf(sight)
	if !ok {
		if sight.Rates.Totals != nil {
			n.exclude(Contradictory)
		}
		return
	}
	missed, believed := NotWatched, true
	if last := &n.pulled; !last.at.IsZero() {
		if next.isOlder(last) {
			return
		}
		switch wrong := next.follows(last); wrong {
		case "":
			n.compare(&next)
			n.watch(last.at, next.at)
		case ClockJumped:
			missed = wrong
			n.restart(&next)
		default:
			n.excludeWithin(wrong, last.at, next.at)
			n.restart(&next)
			// Either of the two was wrong: nothing is counted from this one on.
			believed = wrong != Contradictory
		}
	} else {
		n.restart(&next)
	}
	n.begin(&next, missed)
	if believed {
		n.count(&next)
	}
	n.pulled = next
	n.check(sight)
}

// compare the clocks once more. Where the manager's was set, servers' figures cannot be
// placed; what agents count is by the node's clock alone.
func (n *node) compare(next *pull) {
	ahead := next.at.Sub(next.received)
	if (ahead - n.offset).Abs() <= clocksAgree {
		n.offset = max(ahead, n.offset-drift)
		return
	}
	n.offset = ahead
	n.server.restart()
	if n.byServer {
		n.exclude(ClockJumped)
	}
}

// restart has what comes stand for itself.
func (n *node) restart(next *pull) {
	n.offset = next.at.Sub(next.received)
	n.counter = counter{}
	n.server.restart()
}

// begin follows what the plan wants, and begins the blocks that the node is in.
func (n *node) begin(next *pull, missed string) {
	if missed == ClockJumped {
		n.exclude(missed)
	}
	for i := range n.wanted {
		s := &n.wanted[i]
		follows := func(f *follower) bool { return f.schedule.Equal(s) }
		if s.IsValid() && !slices.ContainsFunc(n.followed, follows) {
			n.followed = append(n.followed, followAt(s, next.at))
		}
	}
	for _, f := range n.followed {
		if !f.gone {
			f.reach(next.at, missed)
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

func (n *node) add(p *piece) {
	for b := range n.open {
		b.count(p)
	}
}

// count what the agent counted up to a pull.
func (n *node) count(next *pull) {
	if p, ok := n.counter.to(next); ok {
		n.add(&p)
	}
	if n.server.line != nil {
		n.server.line.Add(next.at, next.totals)
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

// read takes in what the policy's source says of the node's power now.
func (n *node) read(power *model.Power, now time.Time) {
	if power != nil {
		n.byServer = power.Source == model.SourcePrometheus
	}
	if n.pulled.at.IsZero() {
		return
	}
	if power != nil && n.byServer {
		n.server.take(power, now, n.offset)
	}
	n.server.pieces(n.add)
}

// close the blocks that are over.
func (n *node) close(name string, now time.Time) []Block {
	theirs := now.Add(n.offset)
	isOver := func(b *block) bool {
		known := !n.pulled.at.Before(b.to) && (!n.byServer || n.server.isPast(b.to)) && !n.meter.Awaits(b.to)
		over := known || !theirs.Before(b.to.Add(patience))
		if over && n.meter.Doubts(b.from, b.to) {
			b.exclude(MeterSuspect)
		}
		return over
	}
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
