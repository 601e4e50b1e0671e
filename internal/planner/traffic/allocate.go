package traffic

import (
	"math"

	"github.com/joulevirt/joulevirt/internal/model"
	"github.com/joulevirt/joulevirt/internal/power"
	"github.com/joulevirt/joulevirt/internal/units"
)

// keptPart is the part of what can be saved that rates in force may lack, and
// keptCost the part of the cost, before traffic is moved again: measured curves,
// limits and totals change a little from round to round.
const (
	keptPart = 0.1
	keptCost = 0.02
)

// stillSaves is the part of MinSaving that rates in force must save to stay.
const stillSaves = 0.5

// Allocate splits a group's traffic over its members so that they cost least,
// and goes there by steps: the shares are for this round, the goals for later.
// Equal groups give equal allocations, whatever the order of their members.
//
// Rates in force that are nearly as good as the best are kept. Those that break
// what the group demands, since a member failed, are mended at once, by the least
// change. Without a reason to skew, the goal is equal shares within floors and
// limits. An error names what in the group makes no sense.
func Allocate(g Group) (Allocation, error) {
	return allocate(&g, (*problem).best)
}

func (p *problem) best(granularity Granularity) ([]float64, bool) {
	if granularity == Equal {
		return p.choose()
	}
	return p.skew()
}

// solver returns the rates that cost least, and false when it finds none.
type solver func(*problem, Granularity) ([]float64, bool)

func allocate(g *Group, solve solver) (Allocation, error) {
	if err := g.check(); err != nil {
		return Allocation{}, err
	}
	p := newProblem(g)
	if err := p.checkNames(); err != nil {
		return Allocation{}, err
	}
	d := decide(p, g, solve)
	if err := p.costs.check(p); err != nil {
		return Allocation{}, err
	}
	return p.allocation(g, d), nil
}

// decision is where a group's traffic is to go. All rates are in the order of
// the problem's members.
type decision struct {
	goal, next []float64
	saved      float64
	reason     model.Reason
}

func decide(p *problem, g *Group, solve solver) decision {
	n := len(p.members)
	switch {
	case n == 0:
		return decision{reason: model.ReasonTooFewMembers}
	case p.total < noTraffic:
		// Shares are planned nevertheless, as of one bit/s that all can carry.
		p = p.unbounded()
		return p.towardsEqual(g, model.ReasonNoTraffic)
	case n == 1:
		return decision{goal: p.equal(), next: p.equal(), reason: model.ReasonTooFewMembers}
	case p.haveFloors > p.total*(1+exact):
		now := p.now(p.equal())
		return decision{goal: now, next: now, reason: model.ReasonFloorsExceedTotal}
	}
	balanced, possible := p.balanced(g.Granularity)
	if !possible {
		return p.withoutRoom(g)
	}
	d := decision{goal: balanced, reason: model.ReasonBalanced}
	now := p.now(balanced)
	switch {
	case p.unknownCurves():
		d.reason = model.ReasonCurvesUnknown
	case p.linearCurves():
		d.reason = model.ReasonCurvesLinear
	default:
		p.weigh(g.Granularity)
		d = p.decideSkew(g, solve, now, balanced)
	}
	d.next = p.step(g, now, d.goal)
	return d
}

// decideSkew compares the cheapest rates with those in force and with balanced
// ones.
func (p *problem) decideSkew(g *Group, solve solver, now, balanced []float64) decision {
	d := decision{goal: balanced, reason: model.ReasonBalanced}
	best, found := solve(p, g.Granularity)
	if !found || !p.holdsStrictly(best) {
		return d
	}
	equal := p.cost(balanced)
	saved := equal - p.cost(best)
	usable := p.keepable(g, now)
	least := g.MinSaving * math.Abs(equal)
	if usable && p.moved(now, balanced) > exact {
		least *= stillSaves
	}
	if saved <= math.Abs(equal)*exact || saved < least {
		return d
	}
	d = decision{goal: best, saved: saved, reason: model.ReasonSkewed}
	if usable {
		lacks := p.cost(now) - p.cost(best)
		if kept := equal - p.cost(now); kept >= least && kept > 0 && lacks <= min(keptPart*saved, keptCost*math.Abs(equal-saved)) {
			d.goal, d.saved = now, kept
		}
	}
	return d
}

// keepable tells whether rates in force may stay.
func (p *problem) keepable(g *Group, now []float64) bool {
	active, highest := 0, 0.0
	for i := range now {
		if now[i] > 0 {
			active++
			highest = max(highest, now[i])
			if !p.members[i].usable() {
				return false
			}
		}
	}
	if g.Granularity == Equal && highest*float64(active) > p.total*(1+inForce) {
		return false // they are not equal shares
	}
	return p.holds(now, inForce)
}

func (p *problem) step(g *Group, now, goal []float64) []float64 {
	if g.Granularity == Equal {
		return p.change(now, goal, g.MaxStep)
	}
	return p.approach(now, goal, g.MaxStep)
}

// unbounded returns the problem without anything that a split would have to keep.
func (p *problem) unbounded() *problem {
	free := *p
	free.total = max(p.total, noTraffic)
	free.spare, free.minActive, free.minDomains = false, 0, 0
	free.members, free.sorted = make([]member, len(p.members)), nil
	for i, m := range p.members {
		free.members[i] = member{name: m.name, at: m.at, domain: m.domain, curve: m.curve, share: m.share, high: free.total}
	}
	return &free
}

func (p *problem) towardsEqual(g *Group, reason model.Reason) decision {
	goal := p.equal()
	return decision{goal: goal, next: p.step(g, p.now(goal), goal), reason: reason}
}

// withoutRoom is for groups whose limits allow nothing that is demanded of them.
// What limits allow without something to spare is balanced. Where they do not
// carry the total, or leave too few members, they say nothing: shares are equal.
func (p *problem) withoutRoom(g *Group) decision {
	bare := *p
	bare.spare = false
	if balanced, possible := bare.balanced(g.Granularity); possible {
		return decision{goal: balanced, next: bare.step(g, bare.now(balanced), balanced), reason: model.ReasonNoRoom}
	}
	free := p.unbounded()
	d := free.towardsEqual(g, model.ReasonNoRoom)
	if g.Granularity == Weighted {
		bare.haveLimits = 0 // so that only floors count
		d.goal = bare.level()
		d.next = free.approach(free.now(d.goal), d.goal, g.MaxStep)
	}
	if p.haveLimits < p.total*(1-exact) {
		// Somebody carries too much already.
		d.next = d.goal
	}
	return d
}

// allocation tells a decision in the order of the group's members.
func (p *problem) allocation(g *Group, d decision) Allocation {
	a := Allocation{
		Shares: make([]Share, len(g.Members)), Reason: d.reason, Message: message(d.reason),
		Saved: units.Watts(max(0, d.saved)),
	}
	total := sumOf(d.goal)
	next := sumOf(d.next)
	now, planned := make([]units.BitsPerSecond, len(g.Members)), make([]units.BitsPerSecond, len(g.Members))
	for i := range p.members {
		m := &p.members[i]
		share := Share{Name: m.name, Share: d.next[i] / next, Goal: d.goal[i] / total}
		share.Reason = p.memberReason(g, d, i)
		if math.Abs(share.Goal-1/float64(len(p.members))) > exact {
			a.Skewed = true
		}
		a.Shares[m.at] = share
		now[i] = g.Members[m.at].Rate
		planned[i] = g.Total * units.BitsPerSecond(share.Goal)
	}
	a.Now = Spread{Sigma: power.Sigma(now), Talkers: power.EffectiveTalkers(now)}
	a.Planned = Spread{Sigma: power.Sigma(planned), Talkers: power.EffectiveTalkers(planned)}
	return a
}

func sumOf(rates []float64) float64 {
	sum := 0.0
	for _, rate := range rates {
		sum += rate
	}
	return sum
}
