package proof

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/joulevirt/joulevirt/api/v1alpha1"
	"github.com/joulevirt/joulevirt/internal/verify"
)

// place is where a lever is judged: on a class of units, or on one unit alone, because its
// class is not known or because it is clearly unlike its class.
type place struct {
	lever v1alpha1.Lever
	class verify.Class
	alone string
}

func comparePlaces(a, b place) int {
	return cmp.Or(
		cmp.Compare(a.lever, b.lever), cmp.Compare(a.class.CPUModel, b.class.CPUModel), cmp.Compare(a.class.Kernel, b.class.Kernel),
		cmp.Compare(a.class.Idle, b.class.Idle), cmp.Compare(a.class.Clocks, b.class.Clocks),
		cmp.Compare(a.class.Workload, b.class.Workload), cmp.Compare(a.alone, b.alone),
	)
}

// field is how a lever stands at a place. Its zero value: nothing was tried.
type field struct {
	// number of the last trial, and the trial that runs. Nil: none.
	number int
	trial  *trial
	// ready is since when units wait for a trial that may start. Zero: none do.
	ready time.Time
	verdict
	// effects of units in trials, in the order of their names.
	effects []verify.UnitEffect
	// checked is how many strata of hold-backs there were when these were looked at last.
	checked int
	// again is true when the verdict no longer stands, and another trial is to come.
	again bool
}

// verdict that a lever stands under. An empty decision: none.
type verdict struct {
	decision verify.Decision
	// from is when what was seen of the lever begins, seen when it ends, decided when the
	// verdict came, and until when it withholds the lever.
	from, seen, decided, until time.Time
	// rejections so far.
	rejections int
	// found in the trial, and the estimate with the interval that allow for when it ended.
	found          verify.Effect
	log, low, high float64
	// units of the trial, pairs that each had done, and of how many.
	units, pairs, planned int
	message               string
}

// setEffects puts effects of units in place of those that there were of them.
func (f *field) setEffects(effects []verify.UnitEffect) {
	for _, e := range effects {
		if !e.IsKnown() {
			continue
		}
		at, found := slices.BinarySearchFunc(f.effects, e.Unit, compareEffects)
		if found {
			f.effects[at] = e
		} else {
			f.effects = slices.Insert(f.effects, at, e)
		}
	}
}

func (f *field) effectOf(unit string) verify.Effect {
	if at, found := slices.BinarySearchFunc(f.effects, unit, compareEffects); found {
		return f.effects[at].Effect
	}
	return verify.Effect{}
}

func compareEffects(e verify.UnitEffect, unit string) int { return strings.Compare(e.Unit, unit) }

// isLoaded tells whether a class is known. One that is not says nothing of two units.
func isLoaded(class verify.Class) bool { return class.CPUModel != "" }

// at is where a lever is judged for a unit.
func (p *Proofs) at(name string, lever v1alpha1.Lever) place {
	u := p.units[name]
	if !isLoaded(u.class) {
		return place{lever: lever, alone: name}
	}
	if l := u.lots[lever]; l != nil && l.apart {
		return place{lever: lever, class: u.class, alone: name}
	}
	return place{lever: lever, class: u.class}
}

// field at a place, which is made when there is none.
func (p *Proofs) field(at place) *field {
	f := p.fields[at]
	if f == nil {
		f = &field{}
		p.fields[at] = f
	}
	return f
}

// stands is the field at a place as it is: an empty one where there is none.
func (p *Proofs) stands(at place) *field {
	if f := p.fields[at]; f != nil {
		return f
	}
	return &field{}
}

// places in their order.
func (p *Proofs) places() []place {
	all := make([]place, 0, len(p.fields))
	for at := range p.fields {
		all = append(all, at)
	}
	slices.SortFunc(all, comparePlaces)
	return all
}
