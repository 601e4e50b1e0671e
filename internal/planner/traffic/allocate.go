package traffic

import (
	"math"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
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

// Allocate splits a group's traffic over its members so that they cost least. Equal
// groups give equal allocations.
//
// Rates in force that are nearly as good as the best stay. Without a reason to skew,
// shares are equal within floors and limits.
func Allocate(g Group) Allocation {
	p := newProblem(&g)
	return p.allocation(p.decide())
}

// decision is where a group's traffic is to go.
type decision struct {
	rates  []float64
	saved  float64
	reason string
}

func (p *problem) decide() decision {
	floors := 0.0
	for i := range p.members {
		floors += p.members[i].floor
	}
	switch {
	case len(p.members) < 2:
		return decision{rates: p.even(), reason: v1alpha1.ReasonTooFewMembers}
	case p.Total < noTraffic:
		return decision{rates: p.even(), reason: v1alpha1.ReasonNoTraffic}
	case floors > p.total*(1+exact):
		return decision{rates: p.even(), reason: v1alpha1.ReasonFloorsExceedTotal}
	}
	balanced, possible := p.balanced()
	switch {
	case !possible:
		// What limits allow with nothing to spare is balanced. Where they do not carry
		// the total, or leave too few members, they say nothing: shares are equal.
		p.spare = false
		if balanced, possible = p.balanced(); !possible {
			balanced = p.even()
		}
		return decision{rates: balanced, reason: v1alpha1.ReasonNoRoom}
	case p.curvesUnknown():
		return decision{rates: balanced, reason: v1alpha1.ReasonCurvesUnknown}
	case p.curvesLinear():
		return decision{rates: balanced, reason: v1alpha1.ReasonCurvesLinear}
	}
	p.price()
	return p.decideSkew(p.now(balanced), balanced)
}

// decideSkew compares the cheapest rates with those in force and with balanced ones.
func (p *problem) decideSkew(now, balanced []float64) decision {
	d := decision{rates: balanced, reason: v1alpha1.ReasonBalanced}
	best, found := p.solve()
	if !found {
		return d
	}
	equal := p.cost(balanced)
	saved := equal - p.cost(best)
	usable := p.mayStay(now)
	idle := p.cost(make([]float64, len(p.members)))
	least := p.MinSaving * math.Abs(equal-idle)
	if usable && p.moved(now, balanced) > exact {
		least *= stillSaves
	}
	if saved <= math.Abs(equal)*exact || saved < least {
		return d
	}
	d = decision{rates: best, saved: saved, reason: v1alpha1.ReasonSkewed}
	if usable && !p.isOnTheWay(now, best) {
		lacks := p.cost(now) - p.cost(best)
		if kept := equal - p.cost(now); kept >= least && kept > 0 && lacks <= min(keptPart*saved, keptCost*math.Abs(equal-saved)) {
			d.rates, d.saved = now, kept
		}
	}
	return d
}

// isOnTheWay returns whether weights in force have more active members than the best rates: steps
// towards those are not where traffic is to stay, though they cost nearly as little.
func (p *problem) isOnTheWay(now, best []float64) bool {
	return p.Granularity == Weighted && p.active(now).count > p.active(best).count
}

// mayStay returns whether rates in force may stay.
func (p *problem) mayStay(now []float64) bool {
	active, highest := 0, 0.0
	for i := range now {
		if now[i] > 0 {
			active++
			highest = max(highest, now[i])
			if p.members[i].high <= 0 {
				return false
			}
		}
	}
	if p.Granularity == Equal && highest*float64(active) > p.total*(1+inForce) {
		return false // they are not equal shares
	}
	return p.holds(now, inForce)
}

// allocation returns a decision as shares.
func (p *problem) allocation(d decision) Allocation {
	a := Allocation{
		Shares: make([]Share, len(p.members)), Reason: d.reason, Message: message(d.reason), Saved: units.Watts(max(0, d.saved)),
	}
	for i := range p.members {
		a.Shares[i] = Share{Name: p.Members[i].Name, Share: d.rates[i] / p.total, Reason: p.memberReason(d, i)}
		a.Skewed = a.Skewed || math.Abs(a.Shares[i].Share-1/float64(len(p.members))) > exact
	}
	return a
}

// memberReason returns why a member's rate is what it is.
func (p *problem) memberReason(d decision, i int) string {
	m, rate := &p.members[i], d.rates[i]
	near := p.total * exact
	skewed := d.reason == v1alpha1.ReasonSkewed
	// Rates in force that stay may be somewhat beyond.
	slack := 0.0
	if skewed {
		slack = inForce
	}
	switch {
	case d.reason == v1alpha1.ReasonFloorsExceedTotal || d.reason == v1alpha1.ReasonTooFewMembers || d.reason == v1alpha1.ReasonNoTraffic:
		return d.reason
	case rate == 0:
		return v1alpha1.ReasonStandby
	case p.Granularity == Equal && skewed:
		return v1alpha1.ReasonActive
	case m.floor > 0 && rate <= m.floor+near && rate >= m.floor*(1-slack)-near:
		return v1alpha1.ReasonAtFloor
	case rate >= m.high-near && m.high < p.total && rate <= m.high*(1+slack)+near:
		return v1alpha1.ReasonAtLimit
	case !skewed:
		return v1alpha1.ReasonEqualShare
	case rate <= m.low+near:
		return v1alpha1.ReasonKeptActive
	}
	return v1alpha1.ReasonRemainder
}

// message says a group's reason in words. It holds no measured figure: a plan is
// constant while what it does is constant.
func message(reason string) string {
	switch reason {
	case v1alpha1.ReasonSkewed:
		return "traffic is brought together where it costs least, within floors, limits and what must stay active"
	case v1alpha1.ReasonBalanced:
		return "traffic is balanced: no other split saves enough"
	case v1alpha1.ReasonCurvesUnknown:
		return "traffic is balanced: it is not known what it costs all members' nodes"
	case v1alpha1.ReasonCurvesLinear:
		return "traffic is balanced: its cost grows in proportion, so that bringing it together saves nothing"
	case v1alpha1.ReasonFloorsExceedTotal:
		return "the members' floors add up to more than the group's traffic, which is left as it is: lower bandwidth.floor of the profile, or match fewer VMs"
	case v1alpha1.ReasonNoRoom:
		return "traffic is balanced: the members' floors and limits leave no room to bring it together, with the members, failure domains and headroom that the group keeps; add VMs, or raise bandwidth.ceiling of the profile"
	case v1alpha1.ReasonTooFewMembers:
		return "there is nothing to choose: fewer than two members may serve"
	case v1alpha1.ReasonNoTraffic:
		return "traffic is balanced: the group has none"
	default:
		return ""
	}
}
