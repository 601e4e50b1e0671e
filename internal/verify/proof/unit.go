package proof

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/verify"
)

const (
	// missed is for how long a unit may be missing from rounds before it has left.
	missed = 5 * time.Minute
	// forgotten is after how long what is known of it goes.
	forgotten = 24 * time.Hour
	// oldest is how old what is known of a class without units may get.
	oldest = 30 * 24 * time.Hour
)

// unit is what is remembered of a unit.
type unit struct {
	class             verify.Class
	metered, approved bool
	// seen is the last round that had it.
	seen time.Time
	lots map[v1alpha1.Lever]*lot
	// here is the unit in this round. Nil: the round has not.
	here *Unit
}

// lot is how one lever stands on one unit.
type lot struct {
	// drawn counts the schedules that were drawn, of trials and hold-backs.
	drawn int
	// apart is true when the unit is judged by itself: it is clearly unlike its class.
	apart bool
	// entry is how the unit came under its class's adoption.
	entry entry
	// held is what its hold-back has shown, and checked at how many strata it was looked at.
	held    verify.Holding
	checked int
	// hold is the schedule that holds back. Nil: none.
	hold *hold
	// open are the blocks with the lever on of the stratum that is not over, and shown says
	// that its off block was compared with them.
	open  []run
	shown bool
	// due are blocks of hold-backs that are to be booked.
	due []run
}

// entry is how an adopted lever came to a unit.
type entry uint8

const (
	// notEntered: it has not.
	notEntered entry = iota
	// entered: it acts.
	entered
	// untried: units of the class differ too much to let it act without a trial there.
	untried
)

func (u *unit) lot(lever v1alpha1.Lever) *lot {
	l := u.lots[lever]
	if l == nil {
		l = &lot{}
		u.lots[lever] = l
	}
	return l
}

// leversOf a unit that are tried: a group has "namespace/name".
func leversOf(name string) []v1alpha1.Lever {
	if strings.Contains(name, "/") {
		return []v1alpha1.Lever{v1alpha1.LeverTrafficShare}
	}
	return []v1alpha1.Lever{v1alpha1.LeverAffinity, v1alpha1.LeverBuffering, v1alpha1.LeverShaping}
}

func (u *unit) isCandidate(lever v1alpha1.Lever) bool {
	return u.here != nil && slices.ContainsFunc(u.here.Candidates, func(c Candidate) bool { return c.Lever == lever })
}

// comes is how long it takes until a lever does all that it would on the unit.
func (u *unit) comes(lever v1alpha1.Lever) time.Duration {
	for _, c := range u.here.Candidates {
		if c.Lever == lever {
			return max(0, c.Comes)
		}
	}
	return 0
}

// cannot says why a lever cannot be tried on the unit, which the round has. Nil: it can.
func (u *unit) cannot(lever v1alpha1.Lever) error {
	if _, _, err := blocksOf(lever, u.here.Meter); err != nil {
		return err
	}
	if comes := u.comes(lever); comes > longestComing {
		return fmt.Errorf("it takes %v until as many VMs as it acts on were changed, more than %v: raise spec.budgets.maxChangesPerHour",
			comes, longestComing)
	}
	return nil
}

// nodes that the unit's levers can affect now.
func (u *unit) nodes(name string) []string {
	if u.here == nil || len(u.here.Nodes) == 0 {
		return []string{name}
	}
	return u.here.Nodes
}

// names of all units in their order.
func (p *Proofs) names() []string { return slices.Sorted(maps.Keys(p.units)) }

// see takes in the units of a round.
func (p *Proofs) see(units []Unit, now time.Time) {
	for _, u := range p.units {
		u.here = nil
	}
	for i := range units {
		given := &units[i]
		u := p.units[given.Name]
		if u == nil {
			u = &unit{class: known(given.Class), lots: map[v1alpha1.Lever]*lot{}}
			p.units[given.Name] = u
		}
		if u.here != nil {
			continue // Two of one name: the first counts.
		}
		if class := known(given.Class); u.class != class {
			p.leave(given.Name)
			p.forgetEffects(u)
			u.class = class
		}
		u.here, u.seen = given, now
		u.metered, u.approved = given.Meter != (verify.Meter{}), given.Approved
		if u.approved {
			p.leave(given.Name)
		}
		for _, c := range given.Candidates {
			if u.metered && slices.Contains(leversOf(given.Name), c.Lever) {
				p.field(p.at(given.Name, c.Lever))
			}
		}
	}
	p.resumed = earlier(p.resumed, now)
	for _, name := range p.names() {
		u := p.units[name]
		// A clock that was set back does not make a unit stay for ever.
		u.seen = earlier(u.seen, now)
		awaited := now.Sub(p.resumed) <= missed
		if now.Sub(u.seen) > missed && !awaited {
			p.leave(name)
		}
		if now.Sub(u.seen) > forgotten && !awaited {
			p.forgetEffects(u)
			delete(p.units, name)
		}
	}
	p.forgetPlaces(now)
}

// known is a class as far as it tells units apart: without a CPU it does not.
func known(class verify.Class) verify.Class {
	if !isLoaded(class) {
		return verify.Class{}
	}
	return class
}

// leave ends trials for a unit that is no longer of the policy, or of its class. What its
// pairs showed until then counts.
func (p *Proofs) leave(name string) {
	for _, lever := range leversOf(name) {
		if m := p.memberOf(name, lever); m != nil {
			m.left = true
		}
	}
}

// forgetEffects of a unit that left its class: they are not of what it is now. What its
// trial showed of the class stays.
func (p *Proofs) forgetEffects(u *unit) {
	for lever, l := range u.lots {
		delete(p.pools, poolKey{lever, u.class})
		u.lots[lever] = &lot{drawn: l.drawn}
	}
}

// forgetPlaces drops what is of nobody: units that are gone or no longer alone, and classes
// that have had no unit for long.
func (p *Proofs) forgetPlaces(now time.Time) {
	classes := map[verify.Class]bool{}
	for _, u := range p.units {
		classes[u.class] = true
	}
	for at, f := range p.fields {
		f.seen = earlier(f.seen, now)
		u := p.units[at.alone]
		gone := at.alone != "" && (u == nil || p.at(at.alone, at.lever) != at)
		old := at.alone == "" && !classes[at.class] && now.Sub(f.seen) > oldest
		if f.trial == nil && (gone || old) {
			delete(p.fields, at)
			delete(p.pools, poolKey{at.lever, at.class})
		}
	}
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
