package loop

import (
	"slices"
	"time"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/observe/blocks"
	"github.com/joulevirt/joulevirt/internal/power"
	"github.com/joulevirt/joulevirt/internal/verify"
	"github.com/joulevirt/joulevirt/internal/verify/proof"
)

// member is a node of a loop.
type member interface {
	// pass lets a tick pass.
	pass() error
	class() verify.Class
	// busyCore is what the manager knows that one more busy core draws.
	busyCore() power.Estimate
	// unit is the node as experiments see it.
	unit() proof.Unit
	// replan has the node do what experiments say of levers. awaited says that this is not
	// known yet, due that it is otherwise than before.
	replan(stand []model.Proof, awaited, due bool)
	recorded() *record
	close() error
}

// record is what is kept of a node.
type record struct {
	name string
	now  time.Time
	// blocks are measured once more, for truth to be told of each: closed are those that
	// ended.
	blocks *blocks.Store
	closed []blocks.Block
	// sights that the manager's memory did not hear of yet.
	sights []blocks.Sight
	truth  truth
	// use is which levers act where no schedule says so, and acted when they did, up to heard.
	use   map[model.Lever]bool
	acted acts
	heard time.Time
}

func newRecord(name string, from time.Time) record {
	return record{
		name: name, now: from, heard: from, blocks: blocks.NewStore(),
		use: map[model.Lever]bool{}, acted: newActs(),
	}
}

func (r *record) recorded() *record { return r }

// see takes in what the manager knows of the node now. shared are the schedules that switch
// its group.
func (r *record) see(sight blocks.Sight, shared []model.Schedule) {
	passed := r.now.Sub(r.heard)
	for _, lever := range leversOfNodes() {
		if when := r.heard.Add(passed / 2); r.on(lever, sight.Schedules, when) {
			r.acted.add(lever, slices.Concat(sight.Schedules, shared), when, passed.Seconds())
		}
	}
	r.heard = r.now
	r.sights = append(r.sights, sight)
}

// on tells whether a lever is to act.
func (r *record) on(lever model.Lever, schedules []model.Schedule, when time.Time) bool {
	for i := range schedules {
		if schedules[i].Lever == lever {
			return schedules[i].At(when).On
		}
	}
	return r.use[lever]
}

// follow what experiments say of levers.
func (r *record) follow(stand []model.Proof) {
	clear(r.use)
	for i := range stand {
		r.use[stand[i].Lever] = stand[i].Use
	}
}

// boundary is when a schedule switches next, or what it washes out ends, at most the given
// time.
func (r *record) boundary(schedules []model.Schedule, end time.Time) time.Time {
	for i := range schedules {
		s := &schedules[i]
		next, is := s.Next(r.now)
		if !is {
			continue
		}
		// Never earlier than the next whole second: rounds are a second apart at least.
		for _, at := range []time.Time{next, next.Add(s.WashOut - s.Block)} {
			if at = at.Add(time.Second - 1).Truncate(time.Second); at.After(r.now) && at.Before(end) {
				end = at
			}
		}
	}
	return end
}
